package topics

import (
	"encoding/json"
	"time"
)

// SagaCommand asks a participant of a saga to do something, or to undo what it did.
//
// A command keeps its id over its attempts: a participant applies an id once, answers
// what comes again as it did before, and refuses an id whose compensation came first.
type SagaCommand struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// Saga names its definition, Version is the version of that.
	Saga    string `json:"saga" schema:"minLength=1,maxLength=255"`
	Version int    `json:"version,omitempty" schema:"minimum=1"`
	// BusinessKey is what the saga is about in the words of whoever started it.
	BusinessKey string `json:"business_key,omitempty" schema:"maxLength=255"`
	// CommandID names the command, in all its attempts.
	CommandID string `json:"command_id" schema:"minLength=1,maxLength=255"`
	// Participant is whom it is for; others pass it over.
	Participant string `json:"participant" schema:"minLength=1,maxLength=255"`
	// Type says what is to be done, in the participant's words.
	Type string `json:"type" schema:"minLength=1,maxLength=255"`
	// Step is the step of the saga that it belongs to.
	Step string `json:"step" schema:"minLength=1,maxLength=255"`
	// Attempt counts the attempts at the step, or at its compensation, from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Issue rises with every command that is sent for the saga: of two with one
	// CommandID the one with the higher number is the later attempt, the same number is
	// the same attempt.
	Issue int64 `json:"issue" schema:"minimum=1"`
	// Compensation is true when it undoes the command CompensatesCommandID, which the
	// participant may have done, or not, or never seen.
	Compensation         bool   `json:"compensation,omitempty"`
	CompensatesCommandID string `json:"compensates_command_id,omitempty" schema:"maxLength=255"`
	// Payload is what the participant needs to know, any JSON; of a step of a Go program
	// the state of the saga.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Deadline is when the saga gives the attempt up: it must not be begun any more.
	Deadline *time.Time `json:"deadline,omitempty"`
}

// EventType implements Event.
func (SagaCommand) EventType() string { return "millrace.saga.command.v1" }

// EventKey implements Event: the saga id.
func (e SagaCommand) EventKey() string { return e.SagaID }

// Outcomes of a SagaReply.
const (
	// SagaDone: the command was carried out, by this attempt or an earlier one.
	SagaDone = "done"
	// SagaNotDone: it was not, and nothing of it is left.
	SagaNotDone = "failed"
	// SagaRefused: it was not and will not be: its compensation was there first, or the
	// attempt came after its deadline.
	SagaRefused = "refused"
)

// SagaReply is what a participant answers to a SagaCommand.
type SagaReply struct {
	// SagaID is the id of the saga's instance: key and subject.
	SagaID string `json:"saga_id" schema:"minLength=1,maxLength=255"`
	// CommandID is the command that is answered, Attempt its attempt.
	CommandID string `json:"command_id" schema:"minLength=1,maxLength=255"`
	Attempt   int    `json:"attempt,omitempty" schema:"minimum=1"`
	// Participant is who answers.
	Participant string `json:"participant" schema:"minLength=1,maxLength=255"`
	// Outcome is "done" (by this attempt or an earlier one), "failed" (it was not done,
	// and nothing of it is left) or "refused" (it was not and will not be done).
	Outcome string `json:"outcome" schema:"enum=done|failed|refused"`
	// Failure says why it was not done. Its Retryable tells whether another attempt may
	// help.
	Failure *Failure `json:"failure,omitempty"`
	// Output is what it gave: an object, whose members become variables of the saga, or
	// any JSON where the step keeps it under a name of its own.
	Output json.RawMessage `json:"output,omitempty"`
}

// EventType implements Event.
func (SagaReply) EventType() string { return "millrace.saga.reply.v1" }

// EventKey implements Event: the saga id.
func (e SagaReply) EventKey() string { return e.SagaID }

func sagaExchangeTypes() []Type {
	const exampleUndoID = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a37"
	return []Type{
		newType(SagaCommands, "", SagaCommand{
			SagaID: exampleExecutionID, Saga: "book-trip", Version: 3, BusinessKey: "trip-42",
			CommandID: exampleUndoID, Participant: "airline", Type: "cancel-flight", Step: "flight",
			Attempt: 1, Issue: 9, Compensation: true, CompensatesCommandID: exampleCommandID,
			Payload: json.RawMessage(`{"trip":42,"booking":"F-7"}`), Deadline: new(exampleTime().Add(time.Minute)),
		}),
		newType(SagaEvents, "", SagaReply{
			SagaID: exampleExecutionID, CommandID: exampleCommandID, Attempt: 2, Participant: "hotel",
			Outcome: SagaNotDone, Failure: &Failure{Reason: "no_room", Message: "no room left", Retryable: false},
			Output: json.RawMessage(`{"waiting_list":7}`),
		}),
	}
}
