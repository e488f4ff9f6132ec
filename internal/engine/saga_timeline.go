package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// Moment is something that happened to a saga, in the words of its events.
type Moment struct {
	At time.Time
	// Version is the version of the instance that it led to.
	Version int64
	// Event is the word of the event: started, step_started, step_completed, step_failed,
	// compensating, compensated, completed, failed, resumed, ended.
	Event string
	// Step, Compensation, Attempt and CommandID are of events of steps.
	Step         string
	Compensation bool
	Attempt      int
	CommandID    string
	// Reason and Message say why; Retryable that another attempt follows; InDoubt that
	// nobody knows whether the attempt had its effect.
	Reason, Message    string
	Retryable, InDoubt bool
	// Status is how a saga has ended, Output what came of a step.
	Status string
	Output json.RawMessage
	// Actor is who did it, if a person did.
	Actor string
}

// SagaTimeline tells what happened to a saga from lines of its audit log, which must be
// those of whole versions, in order.
func SagaTimeline(in Instance, lines []AuditEntry) ([]Moment, error) {
	var all []Moment
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && lines[n].Version == lines[0].Version {
			n++
		}
		t := sagaTeller{in: in, definition: &workflow.Definition{}, at: lines[0].At, attempts: make(map[int]int)}
		for _, line := range lines[:n] {
			var e workflow.Entry
			if err := json.Unmarshal(line.Detail, &e); err != nil {
				return nil, fmt.Errorf("read the journal of %s: %w", in.ID, err)
			}
			before := len(t.events)
			t.tell(e)
			for _, event := range t.events[before:] {
				m := momentOf(event)
				m.At, m.Version = line.At, line.Version
				if m.Actor == "" && e.Actor != "" && isPersonal(e.Kind) {
					m.Actor = e.Actor
				}
				all = append(all, m)
			}
		}
		lines = lines[n:]
	}
	return all, nil
}

// isPersonal says whether the actor of an entry is a person.
func isPersonal(k workflow.EntryKind) bool {
	switch k {
	case workflow.InstanceStarted, workflow.InstanceCancelled, workflow.InstanceRetried, workflow.InstanceCompensating,
		workflow.InstanceResolved, workflow.CompensationSkips:
		return true
	default:
		return false
	}
}

// momentOf is what an event says.
func momentOf(event topics.Event) Moment {
	switch e := event.(type) {
	case topics.SagaStarted:
		return Moment{Event: "started"}
	case topics.SagaStepStarted:
		return Moment{Event: "step_started", Step: e.Step, Compensation: e.Compensation, Attempt: e.Attempt, CommandID: e.CommandID}
	case topics.SagaStepCompleted:
		return Moment{Event: "step_completed", Step: e.Step, Compensation: e.Compensation, Attempt: e.Attempt, CommandID: e.CommandID, Output: e.Output}
	case topics.SagaStepFailed:
		return Moment{
			Event: "step_failed", Step: e.Step, Compensation: e.Compensation, Attempt: e.Attempt, CommandID: e.CommandID,
			Reason: e.Failure.Reason, Message: e.Failure.Message, Retryable: e.Failure.Retryable, InDoubt: e.InDoubt,
		}
	case topics.SagaCompensating:
		return Moment{Event: "compensating", Step: e.Step, Reason: e.Reason, Message: e.Message}
	case topics.SagaCompensated:
		return Moment{Event: "compensated", Reason: e.Reason, Message: e.Message}
	case topics.SagaCompleted:
		return Moment{Event: "completed"}
	case topics.SagaFailed:
		return Moment{Event: "failed", Step: e.Step, Reason: e.Reason, Message: e.Message}
	case topics.SagaResumed:
		return Moment{Event: "resumed", Step: e.Step, Actor: e.Actor, Message: e.Message}
	case topics.SagaEnded:
		return Moment{Event: "ended", Status: e.Status, Reason: e.Reason, Message: e.Message, Actor: e.Actor}
	}
	return Moment{Event: event.EventType()}
}
