package projections

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

// Statuses of sagas.
const (
	sagaRunning        = "RUNNING"
	sagaCompensating   = "COMPENSATING"
	sagaCompleted      = "COMPLETED"
	sagaCompensated    = "COMPENSATED"
	sagaNeedsAttention = "NEEDS_ATTENTION"
	// FAILED, CANCELLED and RESOLVED come from the event: see topics.SagaEnded.
)

// sagaStep is what saga_views shows of a step, or of its compensation.
type sagaStep struct {
	Status     string          `json:"status"`
	Attempt    int             `json:"attempt"`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	InDoubt    bool            `json:"in_doubt,omitempty"`
	Failure    *topics.Failure `json:"failure,omitempty"`
}

// compensationPrefix tells the entry of a step's compensation from that of its action.
const compensationPrefix = "compensate:"

// sagaViews is the table saga_views.
type sagaViews struct {
	table                                *Table
	name, businessKey, started           *Column
	status, reason, message, step, steps *Column
	finished, version                    *Column
}

// Sagas returns the projection that builds saga_views from saga_events.
func Sagas() Projection {
	t := NewTable("saga_views", ByVersion)
	t.Key("id", Text, "id of the saga")
	v := &sagaViews{table: t}
	v.name = t.Once("name", Text, "name of its definition")
	v.businessKey = t.Once("business_key", Text, "what it is about, in the words of whoever started it")
	v.started = t.Once("started_time", Time, "when it began")
	status := t.Register("status_version")
	v.status = status.Column("status", Text, "RUNNING, COMPENSATING, NEEDS_ATTENTION; at the end COMPLETED, COMPENSATED, FAILED, CANCELLED or RESOLVED")
	v.reason = status.Column("reason", Text, "why it compensates or needs attention")
	v.message = status.Column("message", LongText, "the same in words")
	v.step = t.Register("step_version").Column("step", Text, "the step that it is at")
	v.steps = t.Merge("steps", "how each step stands, and its compensation as `compensate:<step>`")
	v.finished = t.Register("finished_version").Column("finished_time", Time, "when it ended")
	v.version = t.Highest("version", Int, "version of the newest event")
	return Projection{Name: "sagas-view", Topic: topics.SagaEvents, Tables: []*Table{t}, Apply: v.apply, Gather: executionsGather}
}

// apply takes over what one event says. What participants reply lies in the same topic
// and is passed over: the orchestrator tells what it made of it.
func (v *sagaViews) apply(b *Batch, e Event) error {
	if kind, known := topics.Lookup(e.Type); !known || kind.Topic != topics.SagaEvents {
		return nil
	}
	event, err := topics.DecodeEvent(e.Envelope)
	if err != nil {
		return fmt.Errorf("decode %s of %s: %w", e.Type, e.Subject, err)
	}
	if _, reply := event.(topics.SagaReply); reply {
		return nil
	}
	row := b.Row(v.table, e.Subject)
	row.Set(v.version, e.Sequence)
	switch s := event.(type) {
	case topics.SagaStarted:
		row.Set(v.name, s.Name)
		row.Set(v.businessKey, s.BusinessKey)
		row.Set(v.started, s.StartedAt)
		row.Set(v.status, sagaRunning)
	case topics.SagaStepStarted:
		row.Set(v.step, s.Step)
		v.put(row, s.Step, s.Compensation, sagaStep{Status: sagaRunning, Attempt: s.Attempt, StartedAt: &s.StartedAt})
	case topics.SagaStepCompleted:
		v.put(row, s.Step, s.Compensation, sagaStep{Status: sagaCompleted, Attempt: s.Attempt, FinishedAt: &s.FinishedAt})
	case topics.SagaStepFailed:
		v.put(row, s.Step, s.Compensation,
			sagaStep{Status: "FAILED", Attempt: s.Attempt, FinishedAt: &s.FinishedAt, InDoubt: s.InDoubt, Failure: &s.Failure})
	case topics.SagaCompensating:
		v.turn(row, sagaCompensating, s.Reason, s.Message)
		row.Clear(v.finished)
	case topics.SagaCompensated:
		v.turn(row, sagaCompensated, s.Reason, s.Message)
		row.Set(v.finished, s.FinishedAt)
	case topics.SagaCompleted:
		v.turn(row, sagaCompleted, "", "")
		row.Set(v.finished, s.FinishedAt)
	case topics.SagaFailed:
		v.turn(row, sagaNeedsAttention, s.Reason, s.Message)
		row.Set(v.finished, s.FinishedAt)
	case topics.SagaResumed:
		v.turn(row, sagaRunning, "", s.Message)
		row.Clear(v.finished)
	case topics.SagaEnded:
		v.turn(row, s.Status, s.Reason, s.Message)
		row.Set(v.finished, s.FinishedAt)
	}
	return nil
}

func (v *sagaViews) turn(row *Row, status, reason, message string) {
	row.Set(v.status, status)
	row.Set(v.reason, reason)
	row.Set(v.message, message)
}

func (v *sagaViews) put(row *Row, step string, compensation bool, s sagaStep) {
	doc, err := json.Marshal(s)
	if err != nil { // cannot happen: texts, numbers and times
		return
	}
	if compensation {
		step = compensationPrefix + step
	}
	row.Put(v.steps, step, doc)
}
