package topics

import (
	"encoding/json"
	"time"
)

// What happens to sagas. Every event carries the version of its saga, from 1
// (Envelope.Sequence).
//
// A saga begins with SagaStarted and takes its steps, each of which may be attempted
// several times. It ends with SagaCompleted when all went well. A step that cannot
// succeed leads to SagaCompensating; then the compensations of the steps that were
// taken run in reverse order, as steps do, and SagaCompensated is the end. SagaFailed
// says that a compensation could not be brought about either: a person must look.

// SagaStarted says that a saga began.
type SagaStarted struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Name names its definition.
	Name string `json:"name" schema:"minLength=1,maxLength=255"`
	// BusinessKey is what it is about in the words of whoever started it, such as an
	// order number.
	BusinessKey string `json:"business_key,omitempty" schema:"maxLength=255"`
	// Steps are the names of its steps in the order in which they are taken.
	Steps []string `json:"steps,omitempty"`
	// Input is what it was started with, any JSON.
	Input json.RawMessage `json:"input,omitempty"`
	// StartedAt is when it began.
	StartedAt time.Time `json:"started_at"`
}

// EventType implements Event.
func (SagaStarted) EventType() string { return "millrace.saga.started.v1" }

// EventKey implements Event: the saga id.
func (e SagaStarted) EventKey() string { return e.SagaID }

// SagaStep says which attempt at which step of which saga an event is about. Every event
// about steps begins with it.
type SagaStep struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Step is the name of the step.
	Step string `json:"step" schema:"minLength=1,maxLength=255"`
	// Compensation is true when this is about the step's compensation, false when it is
	// about its action.
	Compensation bool `json:"compensation,omitempty"`
	// Attempt counts the attempts at the action, or at the compensation, from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// CommandID is the id of the command that asked for it, by which participants refuse
	// one that comes late.
	CommandID string `json:"command_id,omitempty" schema:"maxLength=255"`
}

// EventKey implements Event: the saga id.
func (s SagaStep) EventKey() string { return s.SagaID }

// SagaStepStarted says that the command of a step was sent.
type SagaStepStarted struct {
	SagaStep
	// StartedAt is when.
	StartedAt time.Time `json:"started_at"`
}

// EventType implements Event.
func (SagaStepStarted) EventType() string { return "millrace.saga.step_started.v1" }

// SagaStepCompleted says that a participant did what a step asked for.
type SagaStepCompleted struct {
	SagaStep
	// Output is what it returned, any JSON.
	Output json.RawMessage `json:"output,omitempty"`
	// FinishedAt is when.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (SagaStepCompleted) EventType() string { return "millrace.saga.step_completed.v1" }

// SagaStepFailed says that an attempt at a step did not succeed, or that its time ran
// out, so that it is in doubt whether it did.
type SagaStepFailed struct {
	SagaStep
	// Failure says why. Its Retryable is false when no other attempt follows.
	Failure Failure `json:"failure"`
	// InDoubt is true when the participant did not answer: it may have done it.
	InDoubt bool `json:"in_doubt,omitempty"`
	// FinishedAt is when.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (SagaStepFailed) EventType() string { return "millrace.saga.step_failed.v1" }

// SagaCompensating says that a saga is given up and what was done is undone from now
// on.
type SagaCompensating struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Step is the step that could not succeed; empty when it was none, but a time limit
	// of the whole or a cancellation.
	Step string `json:"step,omitempty" schema:"maxLength=255"`
	// Reason is a stable code in snake_case, such as "step_failed", "timed_out" or
	// "cancelled".
	Reason string `json:"reason" schema:"code"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
}

// EventType implements Event.
func (SagaCompensating) EventType() string { return "millrace.saga.compensating.v1" }

// EventKey implements Event: the saga id.
func (e SagaCompensating) EventKey() string { return e.SagaID }

// SagaCompensated says that everything that had been done is undone. The saga has
// ended.
type SagaCompensated struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Reason and Message repeat why it was given up.
	Reason  string `json:"reason" schema:"code"`
	Message string `json:"message,omitempty"`
	// FinishedAt is when.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (SagaCompensated) EventType() string { return "millrace.saga.compensated.v1" }

// EventKey implements Event: the saga id.
func (e SagaCompensated) EventKey() string { return e.SagaID }

// SagaCompleted says that all steps were taken. The saga has ended.
type SagaCompleted struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Output is its result, any JSON.
	Output json.RawMessage `json:"output,omitempty"`
	// FinishedAt is when.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (SagaCompleted) EventType() string { return "millrace.saga.completed.v1" }

// EventKey implements Event: the saga id.
func (e SagaCompleted) EventKey() string { return e.SagaID }

// SagaFailed says that a compensation could not be brought about with all its attempts:
// the saga stays half undone until a person has looked at it.
type SagaFailed struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Step is the step whose compensation failed; empty when it was something else.
	Step string `json:"step,omitempty" schema:"maxLength=255"`
	// Reason is a stable code in snake_case, such as "compensation_failed".
	Reason string `json:"reason" schema:"code"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
	// FinishedAt is when it was given up.
	FinishedAt time.Time `json:"finished_at"`
}

// EventType implements Event.
func (SagaFailed) EventType() string { return "millrace.saga.failed.v1" }

// EventKey implements Event: the saga id.
func (e SagaFailed) EventKey() string { return e.SagaID }

func sagaTypes() []Type {
	return []Type{
		newType(SagaEvents, "", SagaStarted{
			SagaID: exampleExecutionID, Name: "book-trip", BusinessKey: "trip-42",
			Steps: []string{"flight", "hotel", "car"}, Input: json.RawMessage(`{"trip":42}`),
			StartedAt: exampleTime(),
		}),
		newType(SagaEvents, "", SagaStepStarted{
			SagaStep:  SagaStep{SagaID: exampleExecutionID, Step: "hotel", Attempt: 1, CommandID: exampleCommandID},
			StartedAt: exampleTime(),
		}),
		newType(SagaEvents, "", SagaStepCompleted{
			SagaStep: SagaStep{SagaID: exampleExecutionID, Step: "flight", Attempt: 2, CommandID: exampleCommandID},
			Output:   json.RawMessage(`{"booking":"F-7"}`), FinishedAt: exampleTime().Add(time.Second),
		}),
		newType(SagaEvents, "", SagaStepFailed{
			SagaStep: SagaStep{SagaID: exampleExecutionID, Step: "flight", Compensation: true, Attempt: 1, CommandID: exampleCommandID},
			Failure:  Failure{Reason: "timed_out", Message: "no answer within 30s", Retryable: true},
			InDoubt:  true, FinishedAt: exampleTime().Add(30 * time.Second),
		}),
		newType(SagaEvents, "", SagaCompensating{
			SagaID: exampleExecutionID, Step: "hotel", Reason: "step_failed", Message: "no room left",
		}),
		newType(SagaEvents, "", SagaCompensated{
			SagaID: exampleExecutionID, Reason: "step_failed", Message: "no room left",
			FinishedAt: exampleTime().Add(time.Minute),
		}),
		newType(SagaEvents, "", SagaCompleted{
			SagaID: exampleExecutionID, Output: json.RawMessage(`{"booked":["F-7","H-9","C-1"]}`),
			FinishedAt: exampleTime().Add(time.Minute),
		}),
		newType(SagaEvents, "", SagaFailed{
			SagaID: exampleExecutionID, Step: "flight", Reason: "compensation_failed",
			Message: "the airline refuses the cancellation", FinishedAt: exampleTime().Add(time.Hour),
		}),
	}
}
