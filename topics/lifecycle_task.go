package topics

import (
	"encoding/json"
	"time"
)

// TaskLifecycle is the data of every event about a task of a workflow. Each type has
// its own name for it, as for WorkflowLifecycle.
//
// A task is identified by the instance, its position, the iteration and the attempt.
type TaskLifecycle struct {
	// InstanceID is the id of the workflow instance: key and subject.
	InstanceID string `json:"instanceId" schema:"minLength=1"`
	// TaskExecutionID names this run of the task; some engines make a new one for
	// every event.
	TaskExecutionID string `json:"taskExecutionId,omitempty"`
	// TaskName is the name of the task in the definition.
	TaskName string `json:"taskName,omitempty"`
	// TaskPosition is where the task stands in the definition, such as "do/0/greet".
	TaskPosition string `json:"taskPosition" schema:"minLength=1"`
	// Iteration counts the turns of the loop around the task; 0 where there is none.
	Iteration int `json:"iteration,omitempty" schema:"minimum=0"`
	// Attempt counts the repetitions after failures; 0 is the first.
	Attempt int `json:"attempt,omitempty" schema:"minimum=0"`
	// Status is what the event leads to.
	Status string `json:"status,omitempty" schema:"enum=CREATED|RUNNING|SUSPENDED|COMPLETED|FAULTED|CANCELLED"`
	// StartTime is when the task began.
	StartTime *time.Time `json:"startTime,omitempty"`
	// EndTime is when it completed, faulted or was cancelled.
	EndTime *time.Time `json:"endTime,omitempty"`
	// LastUpdateTime is when it last changed.
	LastUpdateTime *time.Time `json:"lastUpdateTime,omitempty"`
	// Input is what it was given, any JSON.
	Input json.RawMessage `json:"input,omitempty"`
	// Output is what it returned, any JSON.
	Output json.RawMessage `json:"output,omitempty"`
	// Error says why it is FAULTED.
	Error *LifecycleError `json:"error,omitempty"`
}

// TaskCreated says that a task was made that has not begun.
type TaskCreated TaskLifecycle

// EventType implements Event.
func (TaskCreated) EventType() string { return "io.serverlessworkflow.task.created.v1" }

// EventKey implements Event: the instance id.
func (e TaskCreated) EventKey() string { return e.InstanceID }

// TaskStarted says that a task began.
type TaskStarted TaskLifecycle

// EventType implements Event.
func (TaskStarted) EventType() string { return "io.serverlessworkflow.task.started.v1" }

// EventKey implements Event: the instance id.
func (e TaskStarted) EventKey() string { return e.InstanceID }

// TaskSuspended says that a task was paused.
type TaskSuspended TaskLifecycle

// EventType implements Event.
func (TaskSuspended) EventType() string { return "io.serverlessworkflow.task.suspended.v1" }

// EventKey implements Event: the instance id.
func (e TaskSuspended) EventKey() string { return e.InstanceID }

// TaskResumed says that a task goes on: one that was paused, or one that had ended.
// It reopens a final status, and end, output and error are void.
type TaskResumed TaskLifecycle

// EventType implements Event.
func (TaskResumed) EventType() string { return "io.serverlessworkflow.task.resumed.v1" }

// EventKey implements Event: the instance id.
func (e TaskResumed) EventKey() string { return e.InstanceID }

// TaskCompleted says that a task came to its end.
type TaskCompleted TaskLifecycle

// EventType implements Event.
func (TaskCompleted) EventType() string { return "io.serverlessworkflow.task.completed.v1" }

// EventKey implements Event: the instance id.
func (e TaskCompleted) EventKey() string { return e.InstanceID }

// TaskFaulted says that a task ended with an error.
type TaskFaulted TaskLifecycle

// EventType implements Event.
func (TaskFaulted) EventType() string { return "io.serverlessworkflow.task.faulted.v1" }

// EventKey implements Event: the instance id.
func (e TaskFaulted) EventKey() string { return e.InstanceID }

// TaskCancelled says that a task was ended from outside.
type TaskCancelled TaskLifecycle

// EventType implements Event.
func (TaskCancelled) EventType() string { return "io.serverlessworkflow.task.cancelled.v1" }

// EventKey implements Event: the instance id.
func (e TaskCancelled) EventKey() string { return e.InstanceID }

// TaskRetried says that a task that had ended is tried again. It reopens a
// final status, and end, output and error are void.
type TaskRetried TaskLifecycle

// EventType implements Event.
func (TaskRetried) EventType() string { return "io.serverlessworkflow.task.retried.v1" }

// EventKey implements Event: the instance id.
func (e TaskRetried) EventKey() string { return e.InstanceID }

// TaskStatusChanged says that the status of a task is now another one; the
// status is in the data.
type TaskStatusChanged TaskLifecycle

// EventType implements Event.
func (TaskStatusChanged) EventType() string { return "io.serverlessworkflow.task.status-changed.v1" }

// EventKey implements Event: the instance id.
func (e TaskStatusChanged) EventKey() string { return e.InstanceID }

func taskLifecycleTypes() []Type {
	return []Type{
		newType(FlowLifecycle, "", TaskCreated(exampleTaskLifecycle(LifecycleCreated))),
		newType(FlowLifecycle, "", TaskStarted(exampleTaskLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", TaskSuspended(exampleTaskLifecycle(LifecycleSuspended))),
		newType(FlowLifecycle, "", TaskResumed(exampleTaskLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", TaskCompleted(exampleTaskLifecycle(LifecycleCompleted))),
		newType(FlowLifecycle, "", TaskFaulted(exampleTaskLifecycle(LifecycleFaulted))),
		newType(FlowLifecycle, "", TaskCancelled(exampleTaskLifecycle(LifecycleCancelled))),
		newType(FlowLifecycle, "", TaskRetried(exampleTaskLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", TaskStatusChanged(exampleTaskLifecycle(LifecycleRunning))),
	}
}
