package topics

import "time"

// ExecutionTimedOut says that an execution ran into one of its limits. It leads to
// the final state TIMED_OUT.
type ExecutionTimedOut struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt that this ended; 0 when none was queued yet.
	Attempt int `json:"attempt" schema:"minimum=0"`
	// Worker names the worker that held the lease; empty when none did.
	Worker string `json:"worker,omitempty"`
	// Failure says it in the words of a failure.
	Failure Failure `json:"failure"`
	// Limit is the limit that was exceeded.
	Limit string `json:"limit" schema:"enum=queue|start|run|total"`
	// Stdout and Stderr say how much output there was, over this attempt.
	Stdout StreamSummary `json:"stdout,omitzero"`
	Stderr StreamSummary `json:"stderr,omitzero"`
	// StartedAt is when the attempt began; unset when it never did.
	StartedAt *time.Time `json:"started_at,omitempty"`
	// FinishedAt is when the execution ended.
	FinishedAt time.Time `json:"finished_at"`
	// DurationMillis is how long the attempt ran, in milliseconds.
	DurationMillis int64 `json:"duration_millis" schema:"minimum=0"`
}

// EventType implements Event.
func (ExecutionTimedOut) EventType() string { return "millrace.execution.timed_out.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionTimedOut) EventKey() string { return e.ExecutionID }

func executionTimedOutType() Type {
	return newType(ExecutionEvents, "TIMED_OUT", ExecutionTimedOut{
		ExecutionID:    exampleExecutionID,
		Attempt:        1,
		Worker:         "worker-1",
		Failure:        Failure{Reason: "run_limit", Message: "ran longer than 30s", Signal: "SIGKILL"},
		Limit:          "run",
		StartedAt:      new(exampleTime()),
		FinishedAt:     exampleTime().Add(30 * time.Second),
		DurationMillis: 30_000,
	})
}
