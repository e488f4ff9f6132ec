package topics

import "time"

// ExecutionFailed says that the last attempt failed, or one that is not worth
// repeating. It leads to the final state FAILED; an attempt with others to follow
// is ExecutionRequeued instead.
type ExecutionFailed struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Worker names the worker that held the lease; empty when none did.
	Worker string `json:"worker,omitempty"`
	// Failure says why.
	Failure Failure `json:"failure"`
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
func (ExecutionFailed) EventType() string { return "millrace.execution.failed.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionFailed) EventKey() string { return e.ExecutionID }

func executionFailedType() Type {
	return newType(ExecutionEvents, "FAILED", ExecutionFailed{
		ExecutionID:    exampleExecutionID,
		Attempt:        3,
		Worker:         "worker-1",
		Failure:        Failure{Reason: "exit_code", Message: "exit status 3", ExitCode: new(3), Retryable: true},
		Stderr:         StreamSummary{Bytes: 2_000_000, KeptBytes: 1_048_576, Truncated: true},
		StartedAt:      new(exampleTime()),
		FinishedAt:     exampleTime().Add(time.Second),
		DurationMillis: 1000,
	})
}
