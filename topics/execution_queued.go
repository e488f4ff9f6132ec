package topics

import "time"

// ExecutionQueued says that the coordinator accepted a request and put it in the
// admission queue of its resource class. It leads to the state QUEUED.
type ExecutionQueued struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// ResourceClass is the queue.
	ResourceClass string `json:"resource_class" schema:"minLength=1,maxLength=255"`
	// Priority is 1 to 5; 5 is the most urgent.
	Priority int `json:"priority" schema:"minimum=1,maximum=5"`
	// ReadyAt is the earliest time at which it may be admitted.
	ReadyAt time.Time `json:"ready_at"`
	// Reason says from when on it waits for admission: "ready", from now on, or
	// "not_before", from the time that it asked for. Readers accept reasons that they
	// do not know.
	Reason string `json:"reason,omitempty" schema:"code,known=ready|not_before"`
}

// EventType implements Event.
func (ExecutionQueued) EventType() string { return "millrace.execution.queued.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionQueued) EventKey() string { return e.ExecutionID }

func executionQueuedType() Type {
	return newType(ExecutionEvents, "QUEUED", ExecutionQueued{
		ExecutionID:   exampleExecutionID,
		Attempt:       1,
		ResourceClass: DefaultResourceClass,
		Priority:      DefaultPriority,
		ReadyAt:       exampleTime(),
		Reason:        QueuedReady,
	})
}
