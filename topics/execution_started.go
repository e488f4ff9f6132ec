package topics

import "time"

// ExecutionStarted says that a worker took the lease of an attempt and runs it. It
// leads to the state RUNNING.
type ExecutionStarted struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1 and is the fencing token of the lease.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Worker names the worker that held the lease.
	Worker string `json:"worker" schema:"minLength=1"`
	// Executor names what runs the work.
	Executor string `json:"executor" schema:"minLength=1,maxLength=255"`
	// LeaseExpiresAt is when the lease ends unless the worker extends it.
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	// WaitedMillis is how long it waited for a worker after it was admitted, in
	// milliseconds that are rounded up. What was started before this was recorded has
	// none.
	WaitedMillis int64 `json:"waited_millis,omitempty" schema:"minimum=0"`
}

// EventType implements Event.
func (ExecutionStarted) EventType() string { return "millrace.execution.started.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionStarted) EventKey() string { return e.ExecutionID }

func executionStartedType() Type {
	return newType(ExecutionEvents, "RUNNING", ExecutionStarted{
		ExecutionID:    exampleExecutionID,
		Attempt:        1,
		Worker:         "worker-1",
		Executor:       "process",
		LeaseExpiresAt: exampleTime().Add(30 * time.Second),
		WaitedMillis:   8,
	})
}
