package topics

import (
	"encoding/json"
	"time"
)

// WorkflowLifecycle is the data of every event about a workflow. Each type has its own
// name for it, so a writer fills one struct and converts it:
// WorkflowStarted(lifecycle).
type WorkflowLifecycle struct {
	// InstanceID is the id of the workflow instance: key and subject.
	InstanceID string `json:"instanceId" schema:"minLength=1"`
	// WorkflowName, WorkflowNamespace and WorkflowVersion name the definition that it
	// is an instance of.
	WorkflowName      string `json:"workflowName,omitempty"`
	WorkflowNamespace string `json:"workflowNamespace,omitempty"`
	WorkflowVersion   string `json:"workflowVersion,omitempty"`
	// Status is what the event leads to.
	Status string `json:"status,omitempty" schema:"enum=CREATED|RUNNING|SUSPENDED|COMPLETED|FAULTED|CANCELLED"`
	// StartTime is when the instance began.
	StartTime *time.Time `json:"startTime,omitempty"`
	// EndTime is when it completed, faulted or was cancelled.
	EndTime *time.Time `json:"endTime,omitempty"`
	// LastUpdateTime is when it last changed.
	LastUpdateTime *time.Time `json:"lastUpdateTime,omitempty"`
	// Input is what it was started with, any JSON.
	Input json.RawMessage `json:"input,omitempty"`
	// Output is what it completed with, any JSON.
	Output json.RawMessage `json:"output,omitempty"`
	// Error says why it is FAULTED.
	Error *LifecycleError `json:"error,omitempty"`
}

// WorkflowCreated says that an instance was made that has not begun.
type WorkflowCreated WorkflowLifecycle

// EventType implements Event.
func (WorkflowCreated) EventType() string { return "io.serverlessworkflow.workflow.created.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowCreated) EventKey() string { return e.InstanceID }

// WorkflowStarted says that an instance began.
type WorkflowStarted WorkflowLifecycle

// EventType implements Event.
func (WorkflowStarted) EventType() string { return "io.serverlessworkflow.workflow.started.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowStarted) EventKey() string { return e.InstanceID }

// WorkflowSuspended says that an instance was paused.
type WorkflowSuspended WorkflowLifecycle

// EventType implements Event.
func (WorkflowSuspended) EventType() string { return "io.serverlessworkflow.workflow.suspended.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowSuspended) EventKey() string { return e.InstanceID }

// WorkflowResumed says that an instance goes on: one that was paused, or one that had ended.
// It reopens a final status, and end, output and error are void.
type WorkflowResumed WorkflowLifecycle

// EventType implements Event.
func (WorkflowResumed) EventType() string { return "io.serverlessworkflow.workflow.resumed.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowResumed) EventKey() string { return e.InstanceID }

// WorkflowCompleted says that an instance came to its end.
type WorkflowCompleted WorkflowLifecycle

// EventType implements Event.
func (WorkflowCompleted) EventType() string { return "io.serverlessworkflow.workflow.completed.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowCompleted) EventKey() string { return e.InstanceID }

// WorkflowFaulted says that an instance ended with an error.
type WorkflowFaulted WorkflowLifecycle

// EventType implements Event.
func (WorkflowFaulted) EventType() string { return "io.serverlessworkflow.workflow.faulted.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowFaulted) EventKey() string { return e.InstanceID }

// WorkflowCancelled says that an instance was ended from outside.
type WorkflowCancelled WorkflowLifecycle

// EventType implements Event.
func (WorkflowCancelled) EventType() string { return "io.serverlessworkflow.workflow.cancelled.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowCancelled) EventKey() string { return e.InstanceID }

// WorkflowRetried says that an instance that had ended is tried again. It reopens a
// final status, and end, output and error are void.
type WorkflowRetried WorkflowLifecycle

// EventType implements Event.
func (WorkflowRetried) EventType() string { return "io.serverlessworkflow.workflow.retried.v1" }

// EventKey implements Event: the instance id.
func (e WorkflowRetried) EventKey() string { return e.InstanceID }

// WorkflowStatusChanged says that the status of an instance is now another one; the
// status is in the data.
type WorkflowStatusChanged WorkflowLifecycle

// EventType implements Event.
func (WorkflowStatusChanged) EventType() string {
	return "io.serverlessworkflow.workflow.status-changed.v1"
}

// EventKey implements Event: the instance id.
func (e WorkflowStatusChanged) EventKey() string { return e.InstanceID }

func workflowLifecycleTypes() []Type {
	return []Type{
		newType(FlowLifecycle, "", WorkflowCreated(exampleWorkflowLifecycle(LifecycleCreated))),
		newType(FlowLifecycle, "", WorkflowStarted(exampleWorkflowLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", WorkflowSuspended(exampleWorkflowLifecycle(LifecycleSuspended))),
		newType(FlowLifecycle, "", WorkflowResumed(exampleWorkflowLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", WorkflowCompleted(exampleWorkflowLifecycle(LifecycleCompleted))),
		newType(FlowLifecycle, "", WorkflowFaulted(exampleWorkflowLifecycle(LifecycleFaulted))),
		newType(FlowLifecycle, "", WorkflowCancelled(exampleWorkflowLifecycle(LifecycleCancelled))),
		newType(FlowLifecycle, "", WorkflowRetried(exampleWorkflowLifecycle(LifecycleRunning))),
		newType(FlowLifecycle, "", WorkflowStatusChanged(exampleWorkflowLifecycle(LifecycleRunning))),
	}
}
