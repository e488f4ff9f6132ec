package topics

import "time"

// ExecutionRejected says that an execution will not run. It leads to the final
// state REJECTED.
type ExecutionRejected struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Reason is a stable code in snake_case. Readers accept reasons that they do not
	// know.
	Reason string `json:"reason" schema:"code,known=exceeds_capacity|rate_limited|queue_full|unknown_resource_class|limit_key_invalid"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
	// RetryAfter is how long to wait before asking again; zero when asking again
	// would not help.
	RetryAfter Duration `json:"retry_after,omitzero"`
}

// EventType implements Event.
func (ExecutionRejected) EventType() string { return "millrace.execution.rejected.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionRejected) EventKey() string { return e.ExecutionID }

func executionRejectedType() Type {
	return newType(ExecutionEvents, "REJECTED", ExecutionRejected{
		ExecutionID: exampleExecutionID,
		Reason:      RejectedRateLimited,
		Message:     "more than 100 executions per minute",
		RetryAfter:  Duration(20 * time.Second),
	})
}
