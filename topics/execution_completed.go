package topics

import (
	"encoding/json"
	"time"
)

// ExecutionCompleted says that an attempt succeeded. It leads to the final state
// COMPLETED.
type ExecutionCompleted struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Worker names the worker that held the lease.
	Worker string `json:"worker" schema:"minLength=1"`
	// ExitCode is 0 for a process and unset for anything else.
	ExitCode *int `json:"exit_code,omitempty"`
	// Value is what a function returned.
	Value json.RawMessage `json:"value,omitempty"`
	// ValueRef stands for a value that is too large for an event. It can be asked for
	// by the id of the execution, for as long as it is kept.
	ValueRef *ValueReference `json:"value_ref,omitempty"`
	// Stdout and Stderr say how much output there was, over this attempt.
	Stdout StreamSummary `json:"stdout"`
	Stderr StreamSummary `json:"stderr"`
	// StartedAt is when the attempt began.
	StartedAt time.Time `json:"started_at"`
	// FinishedAt is when the execution ended.
	FinishedAt time.Time `json:"finished_at"`
	// DurationMillis is how long the attempt ran, in milliseconds.
	DurationMillis int64 `json:"duration_millis" schema:"minimum=0"`
}

// EventType implements Event.
func (ExecutionCompleted) EventType() string { return "millrace.execution.completed.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionCompleted) EventKey() string { return e.ExecutionID }

func executionCompletedType() Type {
	return newType(ExecutionEvents, "COMPLETED", ExecutionCompleted{
		ExecutionID:    exampleExecutionID,
		Attempt:        1,
		Worker:         "worker-1",
		ExitCode:       new(0),
		Stdout:         StreamSummary{Bytes: 6, KeptBytes: 6},
		StartedAt:      exampleTime(),
		FinishedAt:     exampleTime().Add(1500 * time.Millisecond),
		DurationMillis: 1500,
	})
}
