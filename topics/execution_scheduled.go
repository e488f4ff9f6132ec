package topics

// ExecutionScheduled says that an execution was admitted: its capacity is reserved
// and its ExecutionTask is written in the same transaction. It leads to the state
// SCHEDULED.
type ExecutionScheduled struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// ResourceClass is the pool whose capacity is reserved.
	ResourceClass string `json:"resource_class" schema:"minLength=1,maxLength=255"`
	// Admitter names the admitter that decided.
	Admitter string `json:"admitter,omitempty"`
	// WaitedMillis is the time in the queue, in milliseconds, from when it was
	// ready.
	WaitedMillis int64 `json:"waited_millis" schema:"minimum=0"`
	// PendingMillis is how long it took until it was let through, in milliseconds that
	// are rounded up: from its request, or from when it might be admitted, where that
	// came later, which is its not_before or the end of the backoff before an attempt.
	// What was admitted before this was recorded has none.
	PendingMillis int64 `json:"pending_millis,omitempty" schema:"minimum=0"`
	// Reason says why it was let through at this moment: "in_turn", it came first;
	// "passed_waiting_larger", it is small enough for what was free, while a larger
	// one that came first has not waited for long; "aged", its wait had raised it
	// above its own priority. Readers accept reasons that they do not know; what was
	// admitted before reasons were recorded has none.
	Reason string `json:"reason,omitempty" schema:"code,known=in_turn|passed_waiting_larger|aged"`
}

// EventType implements Event.
func (ExecutionScheduled) EventType() string { return "millrace.execution.scheduled.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionScheduled) EventKey() string { return e.ExecutionID }

func executionScheduledType() Type {
	return newType(ExecutionEvents, "SCHEDULED", ExecutionScheduled{
		ExecutionID:   exampleExecutionID,
		Attempt:       1,
		ResourceClass: DefaultResourceClass,
		Admitter:      "coordinator-1",
		WaitedMillis:  12,
		PendingMillis: 19,
		Reason:        ScheduledInTurn,
	})
}
