package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// enter lets a token into a step.
func (r *run) enter(at Place) {
	step := r.plan.step(at.StepID)
	if step.Type == JoinGateway {
		r.arrive(step, at)
		return
	}
	if !r.mayBegin(at) {
		return
	}
	open := r.begin(step, at)
	switch step.Type {
	case Wait:
		r.enterWait(step, open)
	case TimerStep:
		r.enterTimer(step, open)
	case ForEach:
		r.enterForEach(step, open)
	case Transformation:
		r.enterTransformation(step, open)
	case ParallelGateway:
		r.enterFork(step, open)
	case Decision:
		// Its way out is all that there is to it.
		r.complete(step, open, 0, nil)
	case End:
		r.entry(stepEntry(StepCompleted, step, open, r.at))
		r.giveUp()
		r.state.Forks = nil
		r.completeInstance()
	default:
		r.enterTask(step, open)
	}
}

// mayBegin says whether the instance may begin another step; if not, it has failed.
func (r *run) mayBegin(at Place) bool {
	var what string
	switch {
	case r.state.LastStep >= r.limits.Steps:
		what = fmt.Sprintf("the instance has begun %d steps: is there a loop without an end?", r.limits.Steps)
	case r.entered >= r.limits.Chain:
		what = fmt.Sprintf("%d steps were passed without waiting for anything: is there a loop without an end?", r.limits.Chain)
	default:
		return true
	}
	r.failInstance(&Failure{Code: CodeStepLimit, Message: what, StepID: at.StepID}, &at)
	return false
}

// begin numbers a step.
func (r *run) begin(step *planStep, at Place) OpenStep {
	r.entered++
	r.state.LastStep++
	return OpenStep{N: r.state.LastStep, Place: at, Attempt: count(&r.state.Attempts, step.index), BeganAt: r.at}
}

// count adds one to a count in a list that grows as it is needed, and returns it.
func count(counts *[]int, index int) int {
	if missing := index + 1 - len(*counts); missing > 0 {
		*counts = append(*counts, make([]int, missing)...)
	}
	(*counts)[index]++
	return (*counts)[index]
}

// stay leaves a token at a step that waits, with its timers.
func (r *run) stay(step *planStep, open OpenStep) *OpenStep {
	r.entry(stepEntry(StepEntered, step, open, r.at))
	r.setStepTimers(step, open)
	r.state.Open = append(r.state.Open, open)
	return &r.state.Open[len(r.state.Open)-1]
}

// enterTask begins a step that is one activity.
func (r *run) enterTask(step *planStep, open OpenStep) {
	activity, failure := r.describe(step, open, OpenActivity{})
	if failure != nil {
		r.fail(step, open, failure)
		return
	}
	r.dispatch(step, r.stay(step, open), activity)
}

// enterTimer begins a TIMER. A time that is past is due at once, which is not now: the
// token waits for it like any other.
func (r *run) enterTimer(step *planStep, open OpenStep) {
	due := r.at.Add(step.duration)
	if step.until != nil {
		value, err := r.eval(step.until, nil)
		if err == nil {
			due, err = timeOf(value)
		}
		if err != nil {
			r.fail(step, open, expressionFailed(step, err))
			return
		}
	}
	r.stay(step, open)
	r.set(Timer{Step: open.N, Kind: WaitTimer, DueAt: due})
}

// enterTransformation sets variables and goes on.
func (r *run) enterTransformation(step *planStep, open OpenStep) {
	made, err := r.assign(step.transformations, nil)
	var merged json.RawMessage
	if err == nil {
		merged, err = r.fitting(made)
	}
	if err != nil {
		r.fail(step, open, expressionFailed(step, err))
		return
	}
	r.setVariables(merged)
	r.complete(step, open, 0, made)
}

// complete ends a step that did what it is for, the activity (0: none) with the result,
// and moves its token on.
func (r *run) complete(step *planStep, open OpenStep, activity int, output json.RawMessage) {
	open = r.closeStep(step, open)
	if step.compensation != nil {
		r.state.Undo = append(r.state.Undo, Undo{N: open.N, StepID: step.ID, Activity: activity, Result: output})
	}
	target, failure := r.wayOut(step)
	if failure != nil {
		r.failed(step, open, failure, false)
		return
	}
	e := stepEntry(StepCompleted, step, open, r.at)
	e.Output = output
	r.entry(e)
	if target == "" {
		r.die(open.Place)
		return
	}
	open.StepID = target
	r.move(open.Place)
}

// wayOut returns the step that follows; "" is none.
func (r *run) wayOut(step *planStep) (string, *Failure) {
	if len(step.conditions) == 0 {
		return step.NextStep, nil
	}
	for _, c := range step.conditions {
		value, err := r.eval(c.Expression, nil)
		if err != nil {
			return "", expressionFailed(step, err)
		}
		if raw, ok := value.(json.RawMessage); ok {
			value = decoded(raw)
		}
		matched, ok := value.(bool)
		if !ok {
			return "", &Failure{Code: CodeDecisionNotBoolean, StepID: step.ID,
				Message: clean(fmt.Sprintf("%q is neither true nor false", c.Expression))}
		}
		if matched {
			return c.target, nil
		}
	}
	return "", &Failure{Code: CodeNoBranchMatched, StepID: step.ID,
		Message: "DecisionNoBranchMatched: none of the conditions is true"}
}

// closeStep takes a step off the list of those that are open, with its activities and
// timers, and returns it as it was. A step that never waited is returned as it is.
func (r *run) closeStep(step *planStep, open OpenStep) OpenStep {
	at := slices.IndexFunc(r.state.Open, func(o OpenStep) bool { return o.N == open.N })
	if at < 0 {
		return open
	}
	open = r.state.Open[at]
	r.state.Open = slices.Delete(r.state.Open, at, at+1)
	r.unsetStepTimers(step, open)
	// What the run itself began was never sent: it cannot have had an effect.
	sent := open.Activities[:0:0]
	for _, a := range open.Activities {
		r.void(step, open, a)
		if a.N <= r.before.activity {
			sent = append(sent, a)
		}
	}
	open.Activities = sent
	return open
}

// doubt says whether a step that ends without success may have had an effect all the
// same: an attempt got no answer, or it is given up while somebody is at it, or a part of
// it is done. Such a step is undone like one that was completed.
func (r *run) doubt(step *planStep, open OpenStep) bool {
	if open.Compensates > 0 {
		return open.InDoubt > 0
	}
	undo := Undo{N: open.N, StepID: step.ID, Activity: open.InDoubt, InDoubt: true}
	doubtful := open.InDoubt > 0
	for _, a := range open.Activities {
		result, done := r.deferredResult(a.N)
		if done || a.mayHaveEffect() {
			doubtful, undo.Activity, undo.Result = true, a.N, result
		}
	}
	if open.Turns != nil && open.Turns.Done > 0 {
		doubtful, undo.Result = true, list(open.Turns.Results)
	}
	if doubtful && step.compensation != nil {
		r.state.Undo = append(r.state.Undo, undo)
	}
	return doubtful
}

// stepEntry returns an entry about a step.
func stepEntry(kind EntryKind, step *planStep, open OpenStep, at time.Time) Entry {
	e := Entry{
		Kind: kind, Step: open.N, StepID: step.ID, StepType: step.Type, StepAttempt: open.Attempt,
		Compensates: open.Compensates,
	}
	if !open.BeganAt.Equal(at) {
		e.BeganAt = open.BeganAt
	}
	return e
}
