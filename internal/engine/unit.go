package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// unit is one transaction: what its requests have loaded, and what they lead to. Requests
// are done one after the other on what those before them have left in memory; in the end
// all is written at once.
type unit struct {
	engine *Engine
	batch  []*request
	// current is the request that is being done.
	current *request
	// foreign is true within a transaction of the caller's.
	foreign bool
	// send runs statements in the transaction, for the rare request that finds out late
	// what it needs.
	send func(ctx context.Context, b *writes) error
	// now is the time of the transaction, by the clock of the database, and xid its id;
	// that is empty for a transaction that only starts instances.
	now time.Time
	xid string

	// instances are those that were loaded, locked, or made; order has those that were
	// made, in that order.
	instances map[uuid.UUID]*live
	order     []*live
	jobs      map[uuid.UUID]jobs.Held
	timers    map[timerKey]time.Time
	children  map[activityKey]*row
	tasks     map[taskKey]taskRow
	waits     map[signalKey][]waitRow
	signals   map[uuid.UUID]signalRow
	existing  map[uuid.UUID]*row

	effects
}

// effects are what a unit writes beside its instances, and does after the commit.
type effects struct {
	journal  []journalRow
	jobWrite jobs.Writes
	// timerSet has the timers to set, timerUnset those to remove.
	timerSet    map[timerKey]time.Time
	timerUnset  map[timerKey]bool
	orphans     []activityKey
	newTasks    []newTask
	endTasks    []endTask
	newWaits    []newWait
	endWaits    []activityKey
	newSignals  []signalRow
	usedSignals []usedSignal
	// commands are those that begin.
	commands []BegunCommand
	// replies is how many replies to commands have led an instance on.
	replies int
	events  []event
	tally   tally
	// follow is what is asked of the engine once this is committed.
	follow []*request
	ended  []uuid.UUID
	// chained counts the instances that were started by the end of others.
	chained int
	// fault is set when the unit cannot be written as it is: it is given up as a whole.
	fault error
	// steps are what remains to be done in this transaction; see settle.
	steps []func(ctx context.Context) error
}

// live is an instance in a unit.
type live struct {
	*row
	plan *workflow.Plan
	// fresh is true until the row exists; changed when it must be written.
	fresh, changed bool
	// stored are the variables that the row has.
	stored json.RawMessage
}

type journalRow struct {
	instance uuid.UUID
	version  int64
	at       time.Time
	input    workflow.Kind
	actor    string
	entries  []workflow.Entry
}

// event is one for the outbox.
type event struct {
	topics.Event
	aggregate string
	instance  *live
	version   int64
	at        time.Time
	// cause is the request that led to it.
	cause *request
}

// activityKey identifies an activity.
type activityKey struct {
	instance uuid.UUID
	activity int
}

func newUnit(e *Engine) *unit {
	return &unit{
		engine: e, instances: map[uuid.UUID]*live{}, jobs: map[uuid.UUID]jobs.Held{},
		timers: map[timerKey]time.Time{}, children: map[activityKey]*row{}, tasks: map[taskKey]taskRow{}, waits: map[signalKey][]waitRow{},
		signals: map[uuid.UUID]signalRow{}, existing: map[uuid.UUID]*row{},
		effects: effects{timerSet: map[timerKey]time.Time{}, timerUnset: map[timerKey]bool{}},
	}
}

// find returns a loaded instance.
func (u *unit) find(id uuid.UUID) (*live, error) {
	l := u.instances[id]
	if l == nil {
		return nil, fmt.Errorf("instance %s: %w", id, ErrNotFound)
	}
	return l, nil
}

// advance gives an input to an instance, and notes what follows.
func (u *unit) advance(ctx context.Context, l *live, in workflow.Input) error {
	in.At = u.now
	changes, err := l.plan.Advance(ctx, l.state, in, u.engine.config.Limits)
	if err != nil {
		return refusal(l, err)
	}
	if changes.State.Version == l.state.Version {
		return nil
	}
	u.note(ctx, l, in, changes)
	return nil
}

// note takes in what an input has led to.
func (u *unit) note(ctx context.Context, l *live, in workflow.Input, c workflow.Changes) {
	before := l.state
	l.state, l.changed = c.State, true
	l.updatedAt = u.now
	l.failureReason = reason(c.State.Failure)
	u.journal = append(u.journal, journalRow{l.id, c.State.Version, u.now, in.Kind, in.Actor, u.kept(l, c.Entries)})
	for _, t := range c.Unset {
		u.unsetTimer(keyOf(l.id, t))
	}
	for _, t := range c.Set {
		u.setTimer(keyOf(l.id, t), t.DueAt)
	}
	u.endActivities(l, in, before, c)
	u.beginActivities(ctx, l, c)
	u.suspension(l, before.Status)
	if c.Next != "" {
		u.chain(ctx, l, c.Next)
	}
	if c.State.Status.Final() && !before.Status.Final() {
		u.end(l)
	}
	u.tally.note(before.Status, c)
	u.tell(l, before, in, c)
}

// end notes that an instance is over: whoever started it is owed an input.
func (u *unit) end(l *live) {
	u.ended = append(u.ended, l.id)
	if l.parent == uuid.Nil {
		return
	}
	if parent := u.instances[l.parent]; parent != nil && len(u.order) < maxPlanted {
		u.then(l.parent, func(ctx context.Context, u *unit, parent *live) error { return u.childEnded(ctx, parent, l.row) })
		return
	}
	key := timerKey{instance: l.parent, kind: timerChild, index: l.parentActivity}
	u.setTimer(key, u.now)
	u.follow = append(u.follow, u.engine.timerRequest(key))
}

// suspension keeps the jobs of an instance from being claimed while it is suspended.
func (u *unit) suspension(l *live, before workflow.Status) {
	now := l.state.Status
	if (now == workflow.Suspended) == (before == workflow.Suspended) {
		return
	}
	var ids []uuid.UUID
	for _, step := range l.state.Open {
		for _, a := range step.Activities {
			if a.Kind == workflow.JobActivity {
				ids = append(ids, jobs.ID(l.id, a.N))
			}
		}
	}
	if now == workflow.Suspended {
		u.jobWrite.Suspend(ids...)
	} else {
		u.jobWrite.Resume(ids...)
	}
}

// tell derives the events of an input.
func (u *unit) tell(l *live, before workflow.State, in workflow.Input, c workflow.Changes) {
	e := u.engine
	if e.config.NoLifecycle && e.config.Sagas == nil {
		return
	}
	h := Happening{
		Instance: l.instance(), Definition: l.plan.Definition(), Before: before.Status, Variables: before.Variables,
		Input: in.Kind, Actor: in.Actor,
		At: u.now, Failure: c.State.Failure, Entries: c.Entries,
	}
	if !e.config.NoLifecycle {
		for _, ev := range lifecycleEvents(h) {
			l.lifecycleVersion++
			u.events = append(u.events, event{ev, AggregateWorkflow, l, l.lifecycleVersion, u.now, u.current})
		}
	}
	if e.config.Sagas != nil {
		for _, ev := range e.config.Sagas.Events(h) {
			l.sagaVersion++
			u.events = append(u.events, event{ev, AggregateSaga, l, l.sagaVersion, u.now, u.current})
		}
	}
}

// entries are the events as the outbox takes them.
func (u *unit) entries() ([]outbox.Entry, error) {
	all := make([]outbox.Entry, 0, len(u.events)+4)
	for _, ev := range u.events {
		l := ev.instance
		topic := topics.FlowLifecycle
		if ev.aggregate == AggregateSaga {
			topic = topics.SagaEvents
		}
		correlation := l.correlation
		if correlation == "" {
			correlation = l.id.String()
		}
		env, err := topics.NewEnvelope(ev.Event, topics.WithTime(ev.at), topics.WithSequence(ev.version),
			topics.WithOwner(l.tenant, l.user), topics.WithCorrelation(correlation, ""),
			topics.WithTrace(ev.cause.traceParent, ev.cause.traceState))
		if err != nil {
			return nil, fmt.Errorf("event %s of instance %s: %w", ev.EventType(), l.id, err)
		}
		all = append(all, outbox.Entry{
			AggregateType: ev.aggregate, AggregateID: ev.EventKey(), Topic: topic, Envelope: env, Version: ev.version,
		})
	}
	return all, nil
}

// looks has the next attempt look for the instances that this one was to start.
func (u *unit) looks() {
	for _, r := range u.batch {
		if r.starts != uuid.Nil {
			r.needs.exists = r.starts
		}
	}
}

// sameVariables reports whether the row has the variables already.
func (l *live) sameVariables() bool {
	return !l.fresh && bytes.Equal(l.stored, l.state.Variables)
}
