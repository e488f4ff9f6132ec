package engine

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// SagaTopics is the Sagas that sends commands over saga_commands and tells of sagas on
// saga_events.
type SagaTopics struct{}

var _ Sagas = SagaTopics{}

// Events implements Sagas.
func (SagaTopics) Events(h Happening) []topics.Event {
	return sagaEvents(h.Instance, h.Definition, h.Failure, h.Entries, h.At)
}

// Commands implements Sagas. They belong to the aggregate of the saga's events, and come
// behind those of their transaction.
func (SagaTopics) Commands(begun []BegunCommand) ([]outbox.Entry, error) {
	entries := make([]outbox.Entry, len(begun))
	for i, b := range begun {
		correlation := b.Instance.CorrelationID
		if correlation == "" {
			correlation = b.Instance.ID.String()
		}
		envelope, err := topics.NewEnvelope(commandOf(b.Instance, b.Activity, b.Deadline), topics.WithTime(b.At),
			topics.WithCorrelation(correlation, ""), topics.WithOwner(b.Instance.Tenant, b.Instance.User))
		if err != nil {
			return nil, fmt.Errorf("command of instance %s: %w", b.Instance.ID, err)
		}
		entries[i] = outbox.Entry{
			AggregateType: AggregateSaga, AggregateID: b.Instance.ID.String(), Topic: topics.SagaCommands, Envelope: envelope,
		}
	}
	return entries, nil
}

// Commands of sagas need no table: the id of one is made from its instance and the number
// of its step, and is the same for every attempt. That of a compensation is made from the
// step that it undoes, so that a compensation which a person repeats is the same one.

// commandID names the command of a step.
func commandID(instance uuid.UUID, step int) uuid.UUID {
	return uuid.NewSHA1(instance, strconv.AppendInt([]byte("step "), int64(step), 10))
}

// compensationID names the command that undoes a step.
func compensationID(instance uuid.UUID, step int) uuid.UUID {
	return uuid.NewSHA1(instance, strconv.AppendInt([]byte("undo "), int64(step), 10))
}

// stepCommandID names the command of an open step, whichever it is.
func stepCommandID(instance uuid.UUID, step workflow.OpenStep) uuid.UUID {
	if step.Compensates != 0 {
		return compensationID(instance, step.Compensates)
	}
	return commandID(instance, step.N)
}

// commandActivity returns the number of the open activity whose command has that id, and
// whether there is one.
func commandActivity(instance uuid.UUID, s workflow.State, command uuid.UUID) (number int, open bool) {
	for _, step := range s.Open {
		if len(step.Activities) == 0 || stepCommandID(instance, step) != command {
			continue
		}
		for _, a := range step.Activities {
			if a.Kind == workflow.CommandActivity {
				return a.N, true
			}
		}
	}
	return 0, false
}

// commandOf is the command that asks for an activity that begins, or for its next attempt:
// in is the instance after the input that began it.
func commandOf(in Instance, a workflow.Activity, deadline time.Time) topics.SagaCommand {
	command := topics.SagaCommand{
		SagaID: in.ID.String(), Saga: in.DefinitionID, Version: in.DefinitionVersion, BusinessKey: in.BusinessKey,
		CommandID: stepCommandID(in.ID, a.Step).String(), Participant: a.Participant, Type: a.CommandType,
		Step: a.Step.StepID, Attempt: max(a.Attempt, 1), Issue: in.Version,
		Compensation: a.Compensation, Payload: a.Input,
	}
	if a.Compensation {
		command.CompensatesCommandID = commandID(in.ID, a.Step.Compensates).String()
	}
	if command.Payload == nil {
		command.Payload = in.Variables
	}
	if !deadline.IsZero() {
		deadline = deadline.UTC()
		command.Deadline = &deadline
	}
	return command
}

// deadlineOf is when the attempt is given up: with its own timer, or with its step. Zero
// is never.
func deadlineOf(plan *workflow.Plan, c workflow.Changes, a workflow.Activity) time.Time {
	var due time.Time
	earlier := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for _, t := range c.Set {
		if t.Step == a.Step.N && t.Kind == workflow.AttemptTimer && t.Index == a.N {
			earlier(t.DueAt)
		}
	}
	if a.Compensation {
		return due
	}
	for _, step := range plan.Definition().Steps {
		if step.ID != a.Step.StepID || step.Timeout == "" {
			continue
		}
		if limit, err := workflow.ParseDuration(step.Timeout); err == nil && limit > 0 {
			earlier(a.Step.BeganAt.Add(limit))
		}
	}
	return due
}
