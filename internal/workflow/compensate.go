package workflow

import (
	"encoding/json"
	"fmt"
	"time"
)

// beginCompensating undoes what an instance has done; reason says why.
func (r *run) beginCompensating(reason Entry) {
	s := &r.state
	s.Status, s.EndedAt = Compensating, time.Time{}
	s.Forks, s.Reopen, s.Signals, s.Stuck = nil, nil, nil, nil
	r.unsetTotalTimer()
	reason.Kind = InstanceCompensating
	r.entry(reason)
	r.undoNext()
}

// undoNext begins the compensation of the step that ended last; without one the instance
// is compensated.
func (r *run) undoNext() {
	last := len(r.state.Undo) - 1
	if last < 0 {
		r.finish(Compensated)
		r.entry(Entry{Kind: InstanceCompensated, Failure: r.state.Failure})
		return
	}
	undo := r.state.Undo[last]
	step := r.plan.step(undo.StepID)
	r.state.LastStep++
	open := OpenStep{
		N: r.state.LastStep, Place: Place{StepID: step.ID}, Attempt: count(&r.state.Undoing, step.index),
		BeganAt: r.at, Compensates: undo.N,
	}
	activity, failure := r.describe(step, open, OpenActivity{})
	if failure != nil {
		r.fail(step, open, failure)
		return
	}
	r.dispatch(step, r.stay(step, open), activity)
}

// describeCompensation says what undoes a step: a job or a command that gets the variables
// and the step's result, or what the definition says.
func (r *run) describeCompensation(step *planStep, a *Activity, again bool) *Failure {
	c, undo := step.compensation, r.state.Undo[len(r.state.Undo)-1]
	a.Compensation, a.Undoes = true, undo.Activity
	a.JobType, a.CommandType, a.Participant = c.JobType, c.CommandType, c.Participant
	if again && a.Kind == JobActivity {
		return nil
	}
	result := undo.Result
	if result == nil {
		result = json.RawMessage("null")
	}
	if len(c.input) == 0 {
		a.Input = merge(r.state.Variables, single("result", result))
		return nil
	}
	input, err := r.assign(c.input, map[string]any{"result": result})
	if err != nil {
		return expressionFailed(step, err)
	}
	a.Input = input
	return nil
}

// compensated takes the result of a compensation: its step is undone.
func (r *run) compensated(step *planStep, open OpenStep, result json.RawMessage) {
	open = r.closeStep(step, open)
	e := stepEntry(StepCompleted, step, open, r.at)
	e.Output = result
	r.entry(e)
	r.state.Undo = r.state.Undo[:len(r.state.Undo)-1]
	r.undoNext()
}

// compensationFailed leaves the instance to a person.
func (r *run) compensationFailed(step *planStep, open OpenStep, failure *Failure) {
	open = r.closeStep(step, open)
	e := stepEntry(StepFailed, step, open, r.at)
	e.Failure, e.InDoubt = failure, open.InDoubt > 0
	r.entry(e)
	r.state.Status, r.state.Stuck = NeedsAttention, failure
	r.entry(Entry{Kind: InstanceStuck, Step: open.N, StepID: step.ID, StepType: step.Type, Compensates: open.Compensates, Failure: failure})
}

// compensate undoes what an instance has done because a person says so.
func (r *run) compensate() error {
	switch r.state.Status {
	case "", Compensating, Compensated:
		return r.stale("there is nothing to compensate")
	case NeedsAttention:
		return r.retryCompensation()
	case Suspended:
		if r.state.Suspended == Compensating {
			return r.stale("it compensates when it is resumed")
		}
	default:
	}
	r.giveUp()
	r.wake()
	if len(r.state.Undo) == 0 {
		return r.stale("none of its steps has anything to undo")
	}
	r.state.CancelAfter = r.state.Status == Cancelled
	if r.state.Failure == nil {
		r.state.Failure = &Failure{Code: CodeCompensated, Message: clean(r.in.Reason)}
	}
	r.beginCompensating(Entry{Failure: r.state.Failure, Actor: r.in.Actor, Reason: r.in.Reason})
	return nil
}

// skipCompensation takes the compensation that could not be brought about for done.
func (r *run) skipCompensation() error {
	if r.state.Status != NeedsAttention {
		return r.stale("no compensation needs attention")
	}
	last := len(r.state.Undo) - 1
	undo := r.state.Undo[last]
	step := r.plan.step(undo.StepID)
	r.entry(Entry{
		Kind: CompensationSkips, StepID: step.ID, StepType: step.Type, Compensates: undo.N,
		Failure: r.state.Stuck, Actor: r.in.Actor, Reason: r.in.Reason,
	})
	r.state.Undo = r.state.Undo[:last]
	r.state.Status, r.state.Stuck = Compensating, nil
	r.undoNext()
	return nil
}

// resolve ends an instance that needs attention as it is.
func (r *run) resolve() error {
	if r.state.Status != NeedsAttention {
		return r.stale("it does not need attention")
	}
	status := Failed
	if r.state.CancelAfter {
		status = Cancelled
	}
	r.finish(status)
	r.state.Stuck = nil
	r.entry(Entry{Kind: InstanceResolved, Failure: r.state.Failure, Actor: r.in.Actor, Reason: r.in.Reason})
	return nil
}

// undoFits says whether what is kept for compensations stays within the limit with a
// result of that size.
func (r *run) undoFits(size int) error {
	for i := range r.state.Undo {
		size += len(r.state.Undo[i].Result)
	}
	if size > r.limits.Variables {
		return fmt.Errorf("%w (with what is kept for compensations)", r.tooLarge(size))
	}
	return nil
}
