package topics

import "time"

// ExecutionTask is an attempt for a worker to claim, and the only type on a task
// topic. It is written in the transaction of its ExecutionScheduled. A task whose
// attempt is no longer the current one is stale, and workers drop it.
type ExecutionTask struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1 and is the fencing token of the lease.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Request is what to run.
	Request Request `json:"request"`
	// ScheduledAt is when the attempt was admitted.
	ScheduledAt time.Time `json:"scheduled_at"`
}

// EventType implements Event.
func (ExecutionTask) EventType() string { return "millrace.execution.task.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionTask) EventKey() string { return e.ExecutionID }

func executionTaskType() Type {
	return newType(ExecutionTasks, "", ExecutionTask{
		ExecutionID: exampleExecutionID,
		Attempt:     1,
		Request:     exampleRequest(),
		ScheduledAt: exampleTime(),
	})
}
