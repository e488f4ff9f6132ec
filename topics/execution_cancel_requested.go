package topics

// ExecutionCancelRequested says that somebody asked for a running execution to be
// cancelled. It changes no state: ExecutionCancelled follows when the attempt has
// stopped, or another end when that was faster.
type ExecutionCancelRequested struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt at that moment; 0 when none was queued yet.
	Attempt int `json:"attempt" schema:"minimum=0"`
	// By names who asked; empty when nobody was authenticated.
	By string `json:"by,omitempty"`
	// Reason is what the caller gave, in words.
	Reason string `json:"reason,omitempty"`
}

// EventType implements Event.
func (ExecutionCancelRequested) EventType() string { return "millrace.execution.cancel_requested.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionCancelRequested) EventKey() string { return e.ExecutionID }

func executionCancelRequestedType() Type {
	return newType(ExecutionEvents, "", ExecutionCancelRequested{
		ExecutionID: exampleExecutionID,
		Attempt:     1,
		By:          "ada",
		Reason:      "wrong input",
	})
}
