package topics

// ExecutionQuarantined says that an execution was taken out because it was handed
// to workers too often without a result: it may be what kills them. It leads to
// the final state QUARANTINED.
type ExecutionQuarantined struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the last attempt.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Deliveries counts how often the execution was handed to a worker.
	Deliveries int `json:"deliveries" schema:"minimum=0"`
	// Cause says what happened too often. Readers accept causes that they do not
	// know.
	Cause string `json:"cause,omitempty" schema:"code,known=lease_expired"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
}

// EventType implements Event.
func (ExecutionQuarantined) EventType() string { return "millrace.execution.quarantined.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionQuarantined) EventKey() string { return e.ExecutionID }

func executionQuarantinedType() Type {
	return newType(ExecutionEvents, "QUARANTINED", ExecutionQuarantined{
		ExecutionID: exampleExecutionID,
		Attempt:     5,
		Deliveries:  5,
		Cause:       QuarantinedLeaseExpired,
		Message:     "its lease expired 5 times",
	})
}
