package topics

import "time"

// ExecutionRequested says that somebody asked for an execution and that the
// request is stored. It is the first event of every execution and leads to the
// state REQUESTED.
type ExecutionRequested struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Request is what was asked for, with defaults filled in.
	Request Request `json:"request"`
	// RequestedAt is when the request was stored.
	RequestedAt time.Time `json:"requested_at"`
}

// EventType implements Event.
func (ExecutionRequested) EventType() string { return "millrace.execution.requested.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionRequested) EventKey() string { return e.ExecutionID }

func executionRequestedType() Type {
	return newType(ExecutionEvents, "REQUESTED", ExecutionRequested{
		ExecutionID: exampleExecutionID,
		Request:     exampleRequest(),
		RequestedAt: exampleTime(),
	})
}
