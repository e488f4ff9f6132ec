package topics

import "strings"

// The lifecycle of workflows and their tasks, with the types of the CNCF Serverless
// Workflow specification. Millrace's engine and others write such events to the topic
// FlowLifecycle. What stands in lifecycle_workflow.go and lifecycle_task.go is the
// flat data that Millrace writes; other engines write nested data under the same
// types, which Decode refuses. The reader of both is internal/lifecycle.

const (
	// WorkflowLifecyclePrefix begins the types of events about a workflow.
	WorkflowLifecyclePrefix = "io.serverlessworkflow.workflow."
	// TaskLifecyclePrefix begins the types of events about a task of a workflow.
	TaskLifecyclePrefix = "io.serverlessworkflow.task."
)

// The statuses of a workflow or a task in its lifecycle events.
const (
	LifecycleCreated   = "CREATED"
	LifecycleRunning   = "RUNNING"
	LifecycleSuspended = "SUSPENDED"
	LifecycleCompleted = "COMPLETED"
	LifecycleFaulted   = "FAULTED"
	LifecycleCancelled = "CANCELLED"
)

// IsLifecycle reports whether an event of that type tells of the life of a workflow
// or a task, be it a type that is known or not.
func IsLifecycle(eventType string) bool {
	return strings.HasPrefix(eventType, WorkflowLifecyclePrefix) || strings.HasPrefix(eventType, TaskLifecyclePrefix)
}

// LifecycleError says why a workflow or a task is FAULTED, in the terms of RFC 9457.
type LifecycleError struct {
	// Type is a URI that names the kind of error.
	Type string `json:"type,omitempty"`
	// Title is a summary of the kind.
	Title string `json:"title,omitempty"`
	// Detail says what happened this time.
	Detail string `json:"detail,omitempty"`
	// Status is a status code in the sense of HTTP.
	Status int `json:"status,omitempty"`
	// Instance names where it happened, usually the position of the task.
	Instance string `json:"instance,omitempty"`
}
