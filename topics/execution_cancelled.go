package topics

import "time"

// ExecutionCancelled says that an execution was cancelled and that nothing of it
// runs any more. It leads to the final state CANCELLED.
type ExecutionCancelled struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt that this ended; 0 when none was queued yet.
	Attempt int `json:"attempt" schema:"minimum=0"`
	// Cause says how it came to its end: "on_request", or "worker_lost" when the
	// worker that was to stop it was not heard of until its lease ran out. Readers
	// accept causes that they do not know.
	Cause string `json:"cause,omitempty" schema:"code,known=on_request|worker_lost"`
	// By names who asked; empty when nobody was authenticated.
	By string `json:"by,omitempty"`
	// Reason is what the caller gave, in words.
	Reason string `json:"reason,omitempty"`
	// WasRunning is true when an attempt had to be stopped.
	WasRunning bool `json:"was_running"`
	// Stdout and Stderr say how much output there was, over this attempt.
	Stdout StreamSummary `json:"stdout,omitzero"`
	Stderr StreamSummary `json:"stderr,omitzero"`
	// FinishedAt is when the execution ended.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (ExecutionCancelled) EventType() string { return "millrace.execution.cancelled.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionCancelled) EventKey() string { return e.ExecutionID }

func executionCancelledType() Type {
	return newType(ExecutionEvents, "CANCELLED", ExecutionCancelled{
		ExecutionID: exampleExecutionID,
		Attempt:     1,
		Cause:       CancelledOnRequest,
		By:          "ada",
		Reason:      "wrong input",
		WasRunning:  true,
		FinishedAt:  exampleTime().Add(time.Second),
	})
}
