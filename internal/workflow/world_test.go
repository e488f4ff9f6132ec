package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

// world is what stands around the machine: it keeps what the changes say is open and holds
// the machine to its promises after every input. It knows the state only as it is stored.
type world struct {
	t      require.TestingT
	plan   *workflow.Plan
	limits workflow.Limits
	now    time.Time

	state   workflow.State
	journal []workflow.Record
	// open are the attempts that somebody is at, paused the activities between two of
	// them, reported those that ended while the instance was suspended.
	open             map[int]workflow.Activity
	paused, reported map[int]bool
	timers           map[timerID]time.Time
	// undo is what has to be undone, derived from the journal alone.
	undo []int
	next []string
	// taken are the reports and timers that were accepted.
	taken []workflow.Input
	last  workflow.Changes
	// passed are the transitions that it went through.
	passed []edge
}

type timerID struct {
	step  int
	kind  workflow.TimerKind
	index int
}

func idOf(t workflow.Timer) timerID { return timerID{t.Step, t.Kind, t.Index} }

func newWorld(t require.TestingT, plan *workflow.Plan, limits workflow.Limits) *world {
	return &world{
		t: t, plan: plan, limits: limits, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		open: map[int]workflow.Activity{}, paused: map[int]bool{}, reported: map[int]bool{}, timers: map[timerID]time.Time{},
	}
}

// take gives an input to the machine and applies what it leads to.
func (w *world) take(in workflow.Input) error {
	in.At = w.now
	before := w.state
	text := mustMarshal(w.t, before)
	changes, err := w.plan.Advance(context.Background(), before, in, w.limits)
	require.Equal(w.t, string(text), string(mustMarshal(w.t, before)), "Advance changes nothing of its argument")
	again, errAgain := w.plan.Advance(context.Background(), restored(w.t, before), in, w.limits)
	require.Equal(w.t, err, errAgain)
	if err != nil {
		require.True(w.t, errors.Is(err, workflow.ErrStale) || errors.Is(err, workflow.ErrBadInput), "%v", err)
		return err
	}
	require.Equal(w.t, string(mustMarshal(w.t, changes)), string(mustMarshal(w.t, again)), "the same input gives the same changes")
	require.Equal(w.t, string(changes.State.Variables), string(again.State.Variables))
	require.Equal(w.t, before.Version+1, changes.State.Version)
	w.apply(in, changes)
	w.check(in, before, changes)
	return nil
}

func (w *world) apply(in workflow.Input, c workflow.Changes) {
	w.last = c
	w.state = restored(w.t, c.State)
	w.journal = append(w.journal, workflow.Record{At: in.At, Entries: c.Entries})
	w.applyReport(in, c)
	for _, n := range c.Void {
		require.True(w.t, w.isOpen(n), "activity %d is void and was not open", n)
		w.end(n)
	}
	for _, a := range c.Begin {
		require.NotContains(w.t, w.open, a.N, "activity %d begins and is open", a.N)
		delete(w.paused, a.N)
		delete(w.reported, a.N)
		w.open[a.N] = a
	}
	if in.Kind == workflow.TimerFired {
		delete(w.timers, idOf(in.Timer))
	}
	for _, t := range c.Unset {
		delete(w.timers, idOf(t))
	}
	for _, t := range c.Set {
		require.False(w.t, slices.ContainsFunc(c.Unset, func(u workflow.Timer) bool { return idOf(u) == idOf(t) }), "%v is set and unset", t)
		w.timers[idOf(t)] = t.DueAt
	}
	for _, t := range c.Set {
		if t.Kind == workflow.RetryTimer {
			w.paused[t.Index] = true
		}
	}
	if c.Next != "" {
		w.next = append(w.next, c.Next)
	}
	if in.Kind == workflow.Resume {
		clear(w.reported)
	}
	w.applyUndo(c.Entries)
}

// applyReport ends the activity that an input reports.
func (w *world) applyReport(in workflow.Input, c workflow.Changes) {
	n := in.Activity
	switch in.Kind {
	case workflow.ActivityCompleted, workflow.ActivityFailed:
		w.taken = append(w.taken, in)
	case workflow.TimerFired:
		w.taken = append(w.taken, in)
		if in.Timer.Kind == workflow.AttemptTimer && !slices.Contains(c.Void, in.Timer.Index) && !c.Deferred {
			n = in.Timer.Index
		}
	case workflow.Resume:
		w.resume(c)
		return
	case workflow.UserTaskCompleted, workflow.Signalled:
		for _, e := range c.Entries {
			ends := e.Kind == workflow.UserTaskDone || e.Kind == workflow.SignalReceived || e.Kind == workflow.InputDeferred
			if ends && e.Activity != 0 {
				n = e.Activity
			}
		}
	default:
	}
	if n != 0 {
		w.end(n)
		if c.Deferred {
			w.reported[n] = true
		}
	}
}

// resume ends the activities whose attempt timers fired while the instance was suspended.
func (w *world) resume(c workflow.Changes) {
	for _, e := range c.Entries {
		ends := e.Kind == workflow.JobFailed || e.Kind == workflow.JobRetried
		if ends && !slices.Contains(c.Void, e.Activity) {
			delete(w.open, e.Activity)
		}
	}
}

func (w *world) isOpen(n int) bool {
	_, open := w.open[n]
	return open || w.paused[n] || w.reported[n]
}

func (w *world) end(n int) {
	delete(w.open, n)
	delete(w.paused, n)
	delete(w.reported, n)
}

// applyUndo holds the journal to the order of compensations: a stack.
func (w *world) applyUndo(entries []workflow.Entry) {
	done := map[int]bool{}
	for _, e := range entries {
		if e.StepID == "" || w.step(e.StepID).Compensation == nil {
			continue
		}
		if e.Compensates != 0 {
			if e.Kind == workflow.StepCompleted || e.Kind == workflow.CompensationSkips {
				require.NotEmpty(w.t, w.undo)
				top := w.undo[len(w.undo)-1]
				require.Equal(w.t, top, e.Compensates, "compensations run in the reverse order of what they undo")
				w.undo = w.undo[:len(w.undo)-1]
			}
			continue
		}
		switch e.Kind {
		case workflow.JobCompleted:
			done[e.Step] = true
		case workflow.StepCompleted:
			w.undo = append(w.undo, e.Step)
		case workflow.StepFailed, workflow.StepSkipped:
			// It was done, and then none of its ways out fitted; or nobody knows.
			isTurn := w.step(e.StepID).Type == workflow.ForEach
			if e.InDoubt || done[e.Step] && !isTurn {
				w.undo = append(w.undo, e.Step)
			}
		default:
		}
	}
}

// check holds the state to what the changes have said so far.
func (w *world) check(in workflow.Input, before workflow.State, c workflow.Changes) {
	s := w.state
	if before.Status.Final() {
		require.Contains(w.t, []workflow.Kind{workflow.RetryFailed, workflow.Compensate}, in.Kind, "no way out of %s", before.Status)
	}
	require.Equal(w.t, s.Status.Final(), !s.EndedAt.IsZero(), "%s", s.Status)
	open, paused, timers := map[int]int{}, map[int]bool{}, map[timerID]bool{}
	for _, o := range s.Open {
		require.Truef(w.t, o.Fork == 0 || slices.ContainsFunc(s.Forks, func(f workflow.Fork) bool { return f.N == o.Fork }), "the fork of step %d is there", o.N)
		for _, a := range o.Activities {
			if a.Paused {
				paused[a.N] = true
			} else {
				open[a.N] = a.Failures + 1
			}
		}
		w.expectTimers(o, timers)
	}
	if !s.TimeoutAt.IsZero() {
		timers[timerID{kind: workflow.TotalTimer}] = true
	}
	for _, d := range s.Deferred {
		delete(open, d.Activity)
		if d.Kind == workflow.TimerFired {
			delete(timers, idOf(d.Timer))
		}
	}
	attempts := map[int]int{}
	for n, a := range w.open {
		attempts[n] = a.Attempt
	}
	require.Equal(w.t, open, attempts, "open activities")
	require.Equal(w.t, slices.Sorted(maps.Keys(paused)), slices.Sorted(maps.Keys(w.paused)), "activities that wait for their next attempt")
	require.Equal(w.t, sortedTimers(timers), sortedTimers(w.timers), "timers")
	w.checkStatus(c)
	w.checkTransitions(in, before, c)
	w.checkEntries(c)
	w.checkHistory()
}

func (w *world) expectTimers(o workflow.OpenStep, timers map[timerID]bool) {
	step := w.step(o.StepID)
	for _, a := range o.Activities {
		switch {
		case a.TimerAt.IsZero():
		case a.Paused:
			timers[timerID{o.N, workflow.RetryTimer, a.N}] = true
		default:
			timers[timerID{o.N, workflow.AttemptTimer, a.N}] = true
		}
	}
	if o.Compensates != 0 {
		require.Len(w.t, o.Activities, 1)
		require.False(w.t, o.Activities[0].TimerAt.IsZero(), "a compensation has a timer")
		return
	}
	if step.Timeout != "" {
		timers[timerID{o.N, workflow.StepTimer, 0}] = true
	}
	if step.Type == workflow.TimerStep {
		timers[timerID{o.N, workflow.WaitTimer, 0}] = true
	}
	for i, b := range step.BoundaryEvents {
		if b.Type == workflow.TimerEvent && !slices.Contains(o.Fired, i) {
			timers[timerID{o.N, workflow.BoundaryTimer, i}] = true
		}
	}
}

func (w *world) checkStatus(c workflow.Changes) {
	s := w.state
	waits := slices.ContainsFunc(s.Open, func(o workflow.OpenStep) bool {
		kind := w.step(o.StepID).Type
		return o.Compensates == 0 && (kind == workflow.UserTask || kind == workflow.Wait)
	})
	switch s.Status {
	case workflow.Active:
		require.NotEmpty(w.t, s.Open)
		require.False(w.t, waits)
	case workflow.Waiting:
		require.True(w.t, waits)
	case workflow.Compensating:
		require.Len(w.t, s.Open, 1, "one compensation at a time")
		require.NotEmpty(w.t, s.Undo)
	case workflow.NeedsAttention:
		require.Empty(w.t, s.Open)
		require.NotEmpty(w.t, s.Undo)
		require.NotNil(w.t, s.Stuck)
	case workflow.Suspended:
		require.Contains(w.t, []workflow.Status{workflow.Active, workflow.Waiting, workflow.Compensating}, s.Suspended)
		require.Empty(w.t, c.Begin, "nothing begins while it is suspended")
	default:
		require.True(w.t, s.Status.Final(), "%s", s.Status)
		require.Empty(w.t, s.Open)
		require.Empty(w.t, w.timers)
		require.Empty(w.t, w.open)
	}
	if s.Status.Final() && s.Status != workflow.Failed {
		require.Empty(w.t, s.Forks, "no branch is lost")
	}
	if s.Status == workflow.Compensated {
		require.Empty(w.t, w.undo, "everything is undone")
	}
	undo := make([]int, len(s.Undo))
	for i := range s.Undo {
		undo[i] = s.Undo[i].N
	}
	require.Equal(w.t, append([]int{}, w.undo...), undo, "what is to be undone follows from the journal")
	if c.Next != "" {
		require.Equal(w.t, workflow.Completed, s.Status)
	}
}

// checkEntries holds the journal to its promise: an entry for each attempt that begins.
func (w *world) checkEntries(c workflow.Changes) {
	begun := map[int]int{}
	for _, a := range c.Begin {
		if a.Kind != workflow.SignalActivity {
			begun[a.N] = a.Attempt
		}
	}
	told := map[int]int{}
	for _, e := range c.Entries {
		if e.Kind == workflow.JobDispatched || e.Kind == workflow.UserTaskCreated {
			told[e.Activity] = e.Attempt
		}
	}
	require.Equal(w.t, begun, told, "what begins is in the journal")
}

// checkHistory holds the history to the state: what runs is what is open.
func (w *world) checkHistory() {
	running := []int{}
	for _, s := range workflow.History(w.journal) {
		if s.Status == workflow.StepIsRunning {
			running = append(running, s.N)
		}
		require.False(w.t, s.BeganAt.IsZero())
	}
	open := []int{}
	for _, o := range w.state.Open {
		open = append(open, o.N)
	}
	slices.Sort(open)
	require.Equal(w.t, open, running, "the history's running steps")
}

func (w *world) step(id string) workflow.Step {
	for _, s := range w.plan.Definition().Steps {
		if s.ID == id {
			return s
		}
	}
	require.Fail(w.t, "no step "+id)
	return workflow.Step{}
}

func sortedTimers[V any](m map[timerID]V) []string {
	names := []string{}
	for id := range m {
		names = append(names, fmt.Sprintf("%s of step %d (%d)", id.kind, id.step, id.index))
	}
	slices.Sort(names)
	return names
}

// restored is a state as it comes back from the store.
func restored(t require.TestingT, s workflow.State) workflow.State {
	read := workflow.State{Status: s.Status, Version: s.Version, StartedAt: s.StartedAt, EndedAt: s.EndedAt}
	read.Variables = slices.Clone(s.Variables)
	require.NoError(t, json.Unmarshal(mustMarshal(t, s), &read))
	assert.Equal(t, string(mustMarshal(t, s)), string(mustMarshal(t, read)), "the state survives being stored")
	return read
}

func mustMarshal(t require.TestingT, v any) []byte {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// log tells the journal in words.
func (w *world) log() string {
	var lines []string
	for _, record := range w.journal {
		for _, e := range record.Entries {
			lines = append(lines, line(e))
		}
	}
	return strings.Join(lines, "\n")
}

func line(e workflow.Entry) string {
	text := string(e.Kind)
	if e.StepID != "" {
		text += " " + e.StepID
	}
	if e.Compensates != 0 {
		text += " (undo)"
	}
	if e.Attempt > 1 {
		text += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	if e.Failure != nil {
		text += ": " + e.Failure.Code
	}
	return text
}
