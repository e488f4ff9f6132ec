package workflow

import (
	"slices"
	"time"
)

// set sets a timer, or moves it.
func (r *run) set(t Timer) {
	t.DueAt = moment(t.DueAt)
	r.changes.Unset = slices.DeleteFunc(r.changes.Unset, t.same)
	r.changes.Set = append(slices.DeleteFunc(r.changes.Set, t.same), t)
}

// unset voids a timer. One that the run itself has set for a step of its own was never
// there.
func (r *run) unset(t Timer) {
	r.changes.Set = slices.DeleteFunc(r.changes.Set, t.same)
	if t.Step <= r.before.step && !slices.ContainsFunc(r.changes.Unset, t.same) {
		t.DueAt = time.Time{}
		r.changes.Unset = append(r.changes.Unset, t)
	}
}

// same says whether two timers are one, be it set to different times.
func (t Timer) same(other Timer) bool {
	return t.Step == other.Step && t.Kind == other.Kind && t.Index == other.Index
}

func (r *run) setTotalTimer() {
	if r.plan.timeout > 0 {
		r.state.TimeoutAt = moment(r.at.Add(r.plan.timeout))
		r.set(Timer{Kind: TotalTimer, DueAt: r.state.TimeoutAt})
	}
}

func (r *run) unsetTotalTimer() {
	if !r.state.TimeoutAt.IsZero() {
		r.state.TimeoutAt = time.Time{}
		r.unset(Timer{Kind: TotalTimer})
	}
}

// setStepTimers sets the timers of a step that waits.
func (r *run) setStepTimers(step *planStep, open OpenStep) {
	if open.Compensates > 0 {
		return
	}
	if step.timeout > 0 {
		r.set(Timer{Step: open.N, Kind: StepTimer, DueAt: r.at.Add(step.timeout)})
	}
	for i, boundary := range step.boundaries {
		if boundary.Type == TimerEvent {
			r.set(Timer{Step: open.N, Kind: BoundaryTimer, Index: i, DueAt: r.at.Add(boundary.after)})
		}
	}
}

// unsetStepTimers voids those timers of a step that have not fired.
func (r *run) unsetStepTimers(step *planStep, open OpenStep) {
	for _, a := range open.Activities {
		r.unsetActivityTimer(open, a)
	}
	if open.Compensates > 0 {
		return
	}
	if step.timeout > 0 {
		r.unset(Timer{Step: open.N, Kind: StepTimer})
	}
	for i, boundary := range step.boundaries {
		if boundary.Type == TimerEvent && !slices.Contains(open.Fired, i) {
			r.unset(Timer{Step: open.N, Kind: BoundaryTimer, Index: i})
		}
	}
	if step.Type == TimerStep {
		r.unset(Timer{Step: open.N, Kind: WaitTimer})
	}
}

// unsetActivityTimer voids the timer of an activity, if it has one.
func (r *run) unsetActivityTimer(open OpenStep, a OpenActivity) {
	switch {
	case a.TimerAt.IsZero():
	case a.Paused:
		r.unset(Timer{Step: open.N, Kind: RetryTimer, Index: a.N})
	default:
		r.unset(Timer{Step: open.N, Kind: AttemptTimer, Index: a.N})
	}
}

// takeTimer takes a timer that is due.
func (r *run) takeTimer() error {
	t := r.in.Timer
	if t.Kind == TotalTimer {
		return r.takeTotalTimer()
	}
	at := slices.IndexFunc(r.state.Open, func(o OpenStep) bool { return o.N == t.Step })
	if at < 0 {
		return r.stale("step %d of the %s timer is not open", t.Step, t.Kind)
	}
	open := &r.state.Open[at]
	step := r.plan.step(open.StepID)
	if !r.expects(step, *open, t) {
		return r.stale("step %d waits for no such %s timer", t.Step, t.Kind)
	}
	if r.firedBefore(t) {
		return r.stale("the %s timer of step %d has fired before", t.Kind, t.Step)
	}
	if r.postponed(0) {
		return nil
	}
	e := stepEntry(TimerWasFired, step, *open, r.at)
	e.Name = string(t.Kind)
	if t.Kind == RetryTimer || t.Kind == AttemptTimer {
		e.Activity = t.Index
	}
	r.entry(e)
	r.fire(step, open, t)
	return nil
}

// firedBefore says whether a timer has fired since the instance was suspended.
func (r *run) firedBefore(t Timer) bool {
	return slices.ContainsFunc(r.state.Deferred, func(in Input) bool { return in.Kind == TimerFired && in.Timer.same(t) })
}

// expects says whether a timer that fired is one that is set.
func (r *run) expects(step *planStep, open OpenStep, t Timer) bool {
	switch t.Kind {
	case RetryTimer, AttemptTimer:
		return slices.ContainsFunc(open.Activities, func(a OpenActivity) bool {
			due := t.DueAt.IsZero() || moment(t.DueAt).Equal(a.TimerAt)
			return a.N == t.Index && !a.TimerAt.IsZero() && a.Paused == (t.Kind == RetryTimer) && due
		})
	case BoundaryTimer:
		return open.Compensates == 0 && t.Index >= 0 && t.Index < len(step.boundaries) &&
			step.boundaries[t.Index].Type == TimerEvent && !slices.Contains(open.Fired, t.Index)
	case StepTimer:
		return open.Compensates == 0 && step.timeout > 0
	case WaitTimer:
		return step.Type == TimerStep
	default:
		return false
	}
}

// fire does what a timer is for.
func (r *run) fire(step *planStep, open *OpenStep, t Timer) {
	switch t.Kind {
	case WaitTimer:
		r.complete(step, *open, 0, nil)
	case StepTimer:
		r.fail(step, *open, &Failure{Code: CodeTimeout, Message: "the step took longer than " + step.Timeout, StepID: step.ID})
	case BoundaryTimer:
		r.fireBoundary(step, open, t.Index)
	case RetryTimer, AttemptTimer:
		at := slices.IndexFunc(open.Activities, func(a OpenActivity) bool { return a.N == t.Index })
		active := &open.Activities[at]
		if t.Kind == RetryTimer {
			active.Paused, active.TimerAt = false, time.Time{}
			if failure := r.again(step, open, active, 0); failure != nil {
				r.fail(step, *open, failure)
			}
			return
		}
		r.attemptFailed(step, open, active, &Failure{
			Code: CodeTimeout, Message: "no answer within " + step.compensation.timeout.String(), StepID: step.ID,
		}, true)
	default:
	}
}

// fireBoundary goes on behind a boundary timer, beside the step or in its place.
func (r *run) fireBoundary(step *planStep, open *OpenStep, index int) {
	boundary := step.boundaries[index]
	open.Fired = append(open.Fired, index)
	to := open.Place
	to.StepID = boundary.TargetStepID
	if boundary.Interrupting {
		closed := r.closeStep(step, *open)
		e := stepEntry(StepFailed, step, closed, r.at)
		e.Failure = &Failure{Code: CodeInterrupted, Message: "interrupted by boundary timer", StepID: step.ID}
		e.InDoubt = r.doubt(step, closed)
		r.entry(e)
	}
	r.move(to)
}

// takeTotalTimer fails an instance whose time is over.
func (r *run) takeTotalTimer() error {
	due := r.state.TimeoutAt
	if t := r.in.Timer; due.IsZero() || !t.DueAt.IsZero() && !moment(t.DueAt).Equal(due) {
		return r.stale("it has no such time limit now")
	}
	if r.firedBefore(r.in.Timer) {
		return r.stale("its time limit has been reached before")
	}
	if r.postponed(0) {
		return nil
	}
	r.entry(Entry{Kind: TimerWasFired, Name: string(TotalTimer)})
	r.failInstance(&Failure{Code: CodeTimeout, Message: "the instance took longer than " + r.plan.definition.Timeout}, nil)
	return nil
}
