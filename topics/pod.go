package topics

import "time"

// What an execution's executor tells of the pods that it runs attempts in. These are
// facts that change no state of the execution, as ExecutionOutput is, and like it each
// carries a version of its own. They tell what a pod is, not what becomes of the
// execution: a pod that failed may be followed by another one.

// Pod says which pod an event is about. Every event about pods begins with it.
type Pod struct {
	// ExecutionID is the id of the execution that it belongs to: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt of the execution that it runs, from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// PodID is the id that Kubernetes gave it (its uid).
	PodID string `json:"pod_id" schema:"minLength=1,maxLength=255"`
	// Namespace and Name are where it is found.
	Namespace string `json:"namespace" schema:"minLength=1,maxLength=255"`
	Name      string `json:"name" schema:"minLength=1,maxLength=255"`
}

// EventKey implements Event: the execution id.
func (p Pod) EventKey() string { return p.ExecutionID }

// PodCreated says that a pod was made.
type PodCreated struct {
	Pod
	// CreatedAt is when, by the clock of the cluster.
	CreatedAt time.Time `json:"created_at"`
}

// EventType implements Event.
func (PodCreated) EventType() string { return "millrace.pod.created.v1" }

// PodScheduled says that a pod was given a node.
type PodScheduled struct {
	Pod
	// Node is the node.
	Node string `json:"node" schema:"minLength=1,maxLength=255"`
	// ScheduledAt is when, by the clock of the cluster.
	ScheduledAt time.Time `json:"scheduled_at"`
}

// EventType implements Event.
func (PodScheduled) EventType() string { return "millrace.pod.scheduled.v1" }

// PodRunning says that the containers of a pod run.
type PodRunning struct {
	Pod
	// Node is where; empty when it is not known.
	Node string `json:"node,omitempty" schema:"maxLength=255"`
	// StartedAt is when they began, by the clock of the cluster.
	StartedAt time.Time `json:"started_at"`
}

// EventType implements Event.
func (PodRunning) EventType() string { return "millrace.pod.running.v1" }

// PodSucceeded says that all containers of a pod ended well.
type PodSucceeded struct {
	Pod
	// Node is where; empty when it is not known.
	Node string `json:"node,omitempty" schema:"maxLength=255"`
	// FinishedAt is when the last one ended, by the clock of the cluster.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (PodSucceeded) EventType() string { return "millrace.pod.succeeded.v1" }

// PodFailed says that a pod ended and not well, or that it could not begin.
type PodFailed struct {
	Pod
	// Node is where; empty when it is not known, or it never had one.
	Node string `json:"node,omitempty" schema:"maxLength=255"`
	// Reason is the word that Kubernetes has for it, such as "OOMKilled", "Evicted" or
	// "ErrImagePull".
	Reason string `json:"reason" schema:"minLength=1,maxLength=255"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
	// ExitCode is set when the container of the work exited.
	ExitCode *int `json:"exit_code,omitempty"`
	// FinishedAt is when, by the clock of the cluster.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (PodFailed) EventType() string { return "millrace.pod.failed.v1" }

// PodDeleted says that a pod is gone from the cluster.
type PodDeleted struct {
	Pod
	// Reason says why in a word, as far as it is known, such as "finished" or "preempted".
	Reason string `json:"reason,omitempty" schema:"maxLength=255"`
	// DeletedAt is when, by the clock of the cluster.
	DeletedAt time.Time `json:"deleted_at"`
}

// EventType implements Event.
func (PodDeleted) EventType() string { return "millrace.pod.deleted.v1" }

func podTypes() []Type {
	pod := Pod{ExecutionID: exampleExecutionID, Attempt: 1, PodID: examplePodID, Namespace: "work", Name: examplePodName}
	return []Type{
		newType(ExecutionEvents, "", PodCreated{
			Pod: pod, CreatedAt: exampleTime(),
		}),
		newType(ExecutionEvents, "", PodScheduled{
			Pod: pod, Node: "node-3", ScheduledAt: exampleTime().Add(20 * time.Millisecond),
		}),
		newType(ExecutionEvents, "", PodRunning{
			Pod: pod, Node: "node-3", StartedAt: exampleTime().Add(time.Second),
		}),
		newType(ExecutionEvents, "", PodSucceeded{
			Pod: pod, Node: "node-3", FinishedAt: exampleTime().Add(time.Minute),
		}),
		newType(ExecutionEvents, "", PodFailed{
			Pod: pod, Node: "node-3", Reason: "OOMKilled", Message: "the container used more than 256Mi", ExitCode: new(137),
			FinishedAt: exampleTime().Add(time.Minute),
		}),
		newType(ExecutionEvents, "", PodDeleted{
			Pod: pod, Reason: "finished", DeletedAt: exampleTime().Add(2 * time.Minute),
		}),
	}
}
