package topics

// ExecutionReprioritized says that an execution that waits was given another
// priority. It changes no state: the execution keeps the time that it has waited,
// and only its place among the others is a new one.
type ExecutionReprioritized struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt at that moment; 0 when none was queued yet.
	Attempt int `json:"attempt" schema:"minimum=0"`
	// Priority is the new one, 1 to 5; 5 is the most urgent.
	Priority int `json:"priority" schema:"minimum=1,maximum=5"`
	// PreviousPriority is what it was until now.
	PreviousPriority int `json:"previous_priority" schema:"minimum=1,maximum=5"`
	// By names who asked; empty when nobody was authenticated.
	By string `json:"by,omitempty"`
	// Reason is what the caller gave, in words.
	Reason string `json:"reason,omitempty"`
}

// EventType implements Event.
func (ExecutionReprioritized) EventType() string { return "millrace.execution.reprioritized.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionReprioritized) EventKey() string { return e.ExecutionID }

func executionReprioritizedType() Type {
	return newType(ExecutionEvents, "", ExecutionReprioritized{
		ExecutionID:      exampleExecutionID,
		Attempt:          1,
		Priority:         5,
		PreviousPriority: DefaultPriority,
		By:               "ada",
		Reason:           "the customer waits for it",
	})
}
