package workflow

import (
	"slices"
)

// enterWait begins a WAIT, or goes on at once with a signal that came before it.
func (r *run) enterWait(step *planStep, open OpenStep) {
	kept := slices.IndexFunc(r.state.Signals, func(s Signal) bool { return step.awaits(s.Name) })
	if kept < 0 {
		r.enterTask(step, open)
		return
	}
	signal := r.state.Signals[kept]
	r.state.Signals = slices.Delete(r.state.Signals, kept, kept+1)
	merged, err := r.fitting(signal.Variables)
	if err != nil {
		r.fail(step, open, unusable(step, err))
		return
	}
	r.setVariables(merged)
	e := stepEntry(SignalReceived, step, open, r.at)
	e.Name = signal.Name
	r.entry(e)
	r.complete(step, open, 0, signal.Variables)
}

// awaits says whether a step waits for a signal of that name.
func (s *planStep) awaits(name string) bool {
	return s.Type == Wait && (s.ID == name || s.Signal == name)
}

// takeSignal gives a signal to the oldest WAIT that waits for it, or keeps it for one.
func (r *run) takeSignal() error {
	open, active := r.waiting(func(step *planStep, a OpenActivity) bool {
		return a.Kind == SignalActivity && (a.N == r.in.Activity || r.in.Activity == 0 && step.awaits(r.in.Name))
	})
	if open != nil {
		return r.finishActivity(r.plan.step(open.StepID), open, active)
	}
	if r.in.Activity != 0 && !r.resuming {
		return r.stale("activity %d does not wait for a signal", r.in.Activity)
	}
	return r.keepSignal()
}

// keepSignal keeps a signal until a WAIT asks for it.
func (r *run) keepSignal() error {
	name := r.in.Name
	if !slices.ContainsFunc(r.plan.steps, func(s planStep) bool { return s.awaits(name) }) {
		return Refuse(ErrBadInput, "no WAIT has the id %q or waits for a signal of that name", name)
	}
	if !r.running() && (r.state.Status != Suspended || r.state.Suspended == Compensating) {
		return r.stale("it takes no signals")
	}
	variables, err := r.object(r.in.Result)
	if err != nil {
		return err
	}
	count, size := 0, len(variables)
	for _, s := range r.state.Signals {
		count, size = count+1, size+len(s.Variables)
	}
	for _, in := range r.state.Deferred {
		if in.Kind == Signalled {
			count, size = count+1, size+len(in.Result)
		}
	}
	if count >= r.limits.Signals {
		return r.stale("it keeps %d signals that no WAIT has asked for, which is the limit", count)
	}
	if size > r.limits.Variables {
		return r.tooLarge(size)
	}
	if r.postponed(0) {
		return nil
	}
	kept := Signal{Name: name}
	if len(variables) > len(emptyObject) {
		kept.Variables = variables
	}
	r.state.Signals = append(r.state.Signals, kept)
	r.entry(Entry{Kind: SignalKept, Name: name, Output: kept.Variables, Actor: r.in.Actor})
	return nil
}

// takeUserTask takes what a person did.
func (r *run) takeUserTask() error {
	if step := r.plan.step(r.in.Name); step == nil || step.Type != UserTask {
		return Refuse(ErrBadInput, "it has no USER_TASK %q", r.in.Name)
	}
	open, active := r.waiting(func(step *planStep, a OpenActivity) bool {
		return a.Kind == UserActivity && step.ID == r.in.Name && (r.in.Activity == 0 || a.N == r.in.Activity)
	})
	if open == nil {
		return r.stale("user task %q is not open", r.in.Name)
	}
	return r.finishActivity(r.plan.step(open.StepID), open, active)
}

// waiting finds the oldest open activity that meets a condition and has not ended during
// a suspension.
func (r *run) waiting(meets func(*planStep, OpenActivity) bool) (*OpenStep, *OpenActivity) {
	for i := range r.state.Open {
		open := &r.state.Open[i]
		step := r.plan.step(open.StepID)
		for j := range open.Activities {
			if active := &open.Activities[j]; meets(step, *active) && !r.isDeferred(active.N) {
				return open, active
			}
		}
	}
	return nil, nil
}
