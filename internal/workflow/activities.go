package workflow

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// attempt is the number of the attempt that is open or next.
func (a OpenActivity) attempt() int { return a.Failures + 1 }

// mayHaveEffect says whether somebody may be at it: a person or a signal has no effect but
// the one that it reports, and between two attempts nobody is.
func (a OpenActivity) mayHaveEffect() bool {
	return !a.Paused && (a.Kind == JobActivity || a.Kind == CommandActivity || a.Kind == ChildActivity)
}

// describe returns the activity that an open step asks for: its first attempt, or the
// next one of an activity that is open. The failure is the step's.
func (r *run) describe(step *planStep, open OpenStep, again OpenActivity) (Activity, *Failure) {
	a := Activity{N: again.N, Kind: r.kindOf(step, open), Attempt: again.attempt(), Turn: again.Turn}
	if a.N == 0 {
		r.state.LastActivity++
		a.N = r.state.LastActivity
	}
	policy := r.policy(step, open)
	a.RetriesRemaining = max(0, policy.count-again.Failures)
	if open.Compensates > 0 {
		return a, r.describeCompensation(step, &a, again.N != 0)
	}
	a.JobType, a.CommandType, a.Participant = step.JobType, step.CommandType, step.Participant
	a.WorkflowID, a.WorkflowVersion = step.WorkflowID, step.WorkflowVersion
	if a.Kind == JobActivity && again.N != 0 {
		return a, nil
	}
	var err error
	switch a.Kind {
	case UserActivity:
		err = r.describeUserTask(step, &a)
	case SignalActivity:
		err = r.describeWait(step, &a)
	default:
	}
	if err == nil {
		a.Input, err = r.inputOf(step, open, a.Turn)
	}
	if err != nil {
		return a, expressionFailed(step, err)
	}
	return a, nil
}

// kindOf says who does an open step.
func (r *run) kindOf(step *planStep, open OpenStep) ActivityKind {
	if open.Compensates > 0 {
		if step.compensation.CommandType != "" {
			return CommandActivity
		}
		return JobActivity
	}
	switch step.Type {
	case UserTask:
		return UserActivity
	case Wait:
		return SignalActivity
	case Command:
		return CommandActivity
	case Subworkflow:
		return ChildActivity
	case ForEach:
		if step.WorkflowID != "" {
			return ChildActivity
		}
	default:
	}
	return JobActivity
}

// inputOf returns what an activity of a step gets; nil: the variables.
func (r *run) inputOf(step *planStep, open OpenStep, turn int) (json.RawMessage, error) {
	var own json.RawMessage
	var more map[string]any
	if open.Turns != nil {
		own, more = turnVariables(step, open.Turns.Items[turn], turn)
	}
	switch {
	case len(step.input) > 0:
		return r.assign(step.input, more)
	case own != nil:
		return merge(r.state.Variables, own), nil
	}
	return nil, nil
}

func (r *run) describeUserTask(step *planStep, a *Activity) error {
	a.Assignee, a.Groups = step.Assignee, step.CandidateGroups
	if step.due > 0 {
		a.DueAt = r.at.Add(step.due)
	}
	if step.assignee == nil {
		return nil
	}
	value, err := r.eval(step.assignee, nil)
	a.Assignee = asText(value)
	return err
}

func (r *run) describeWait(step *planStep, a *Activity) error {
	a.Signal, a.CorrelationKey = step.Signal, step.CorrelationKey
	if step.correlation == nil {
		return nil
	}
	value, err := r.eval(step.correlation, nil)
	a.CorrelationKey = asText(value)
	return err
}

// dispatch begins an attempt at an activity, whose open step it may add it to.
func (r *run) dispatch(step *planStep, open *OpenStep, a Activity) {
	at := slices.IndexFunc(open.Activities, func(o OpenActivity) bool { return o.N == a.N })
	if at < 0 {
		at = len(open.Activities)
		open.Activities = append(open.Activities, OpenActivity{N: a.N, Kind: a.Kind, Turn: a.Turn})
	}
	active := &open.Activities[at]
	active.Paused, active.TimerAt = false, time.Time{}
	a.Step = *open
	a.Step.Activities, a.Step.Turns, a.Step.Fired = nil, nil, nil
	r.changes.Begin = append(r.changes.Begin, a)
	switch a.Kind {
	case UserActivity:
		r.entry(activityEntry(UserTaskCreated, step, *open, *active, r.at))
	case SignalActivity:
	default:
		e := activityEntry(JobDispatched, step, *open, *active, r.at)
		e.DueAt = a.DueAt
		r.entry(e)
	}
	if open.Compensates > 0 {
		begins := r.at
		if a.DueAt.After(begins) {
			begins = a.DueAt
		}
		active.TimerAt = moment(begins.Add(step.compensation.timeout))
		r.set(Timer{Step: open.N, Kind: AttemptTimer, Index: a.N, DueAt: active.TimerAt})
	}
}

// void calls an open activity off. One that the run itself began was never there.
func (r *run) void(step *planStep, open OpenStep, a OpenActivity) {
	began := slices.IndexFunc(r.changes.Begin, func(b Activity) bool { return b.N == a.N })
	if began >= 0 {
		r.changes.Begin = slices.Delete(r.changes.Begin, began, began+1)
		r.changes.Entries = slices.DeleteFunc(r.changes.Entries, func(e Entry) bool {
			return e.Activity == a.N && (e.Kind == JobDispatched || e.Kind == UserTaskCreated) && e.Attempt == a.attempt()
		})
	}
	if a.N > r.before.activity {
		return
	}
	r.changes.Void = append(r.changes.Void, a.N)
	switch a.Kind {
	case UserActivity:
		r.entry(activityEntry(UserTaskCancelled, step, open, a, r.at))
	case SignalActivity:
	default:
		if began >= 0 || a.Paused {
			// The attempt before has its end in the journal; this one did not begin.
			return
		}
		e := activityEntry(JobCancelled, step, open, a, r.at)
		e.InDoubt = true
		r.entry(e)
	}
}

// takeReport takes what became of an attempt.
func (r *run) takeReport() error {
	open, active, err := r.activity(r.in.Activity, r.in.Attempt)
	if err != nil {
		return err
	}
	step := r.plan.step(open.StepID)
	if r.in.Kind == ActivityCompleted {
		return r.finishActivity(step, open, active)
	}
	merged, err := r.merged(r.in.Result)
	if err != nil && !r.resuming {
		return err
	}
	if r.postponed(active.N) {
		return nil
	}
	r.setVariables(merged)
	r.attemptFailed(step, open, active, reported(r.in, step.ID), r.in.Retryable)
	return nil
}

// activity finds an open activity and its step. attempt 0 is whichever is open.
func (r *run) activity(n, attempt int) (*OpenStep, *OpenActivity, error) {
	if n < 1 || n > r.state.LastActivity {
		return nil, nil, Refuse(ErrBadInput, "it has no activity %d", n)
	}
	for i := range r.state.Open {
		open := &r.state.Open[i]
		for j := range open.Activities {
			switch active := &open.Activities[j]; {
			case active.N != n:
			case r.isDeferred(n):
				return nil, nil, r.stale("activity %d has ended; that is taken when the instance is resumed", n)
			case active.Paused || attempt != 0 && attempt != active.attempt():
				return nil, nil, r.stale("attempt %d of activity %d is not open, attempt %d is next", attempt, n, active.attempt())
			default:
				return open, active, nil
			}
		}
	}
	return nil, nil, r.stale("activity %d has ended", n)
}

// finishActivity takes the result of an activity: a job, a command or a child ended, or a
// person or a signal did what was waited for.
func (r *run) finishActivity(step *planStep, open *OpenStep, active *OpenActivity) error {
	result, merged, err := r.resultOf(step, *open, *active)
	if err != nil && (r.resuming || active.Kind == CommandActivity || active.Kind == ChildActivity) {
		// Nobody is there (any more) who could report something else instead.
		r.in = Input{Kind: ActivityFailed, At: r.in.At, Activity: active.N, Failure: unusable(step, err), Actor: r.in.Actor}
		return r.takeReport()
	}
	if err != nil {
		return err
	}
	if r.postponed(active.N) {
		return nil
	}
	e := activityEntry(completedKind(active.Kind), step, *open, *active, r.at)
	e.Actor = r.in.Actor
	if active.Kind == SignalActivity {
		e.Name = step.Signal
	}
	r.entry(e)
	ended := r.removeActivity(open, *active)
	r.setVariables(merged)
	switch {
	case open.Compensates > 0:
		r.compensated(step, *open, result)
	case open.Turns != nil:
		r.finishTurn(step, open, ended, result)
	default:
		r.complete(step, *open, ended.N, result)
	}
	return nil
}

// unusable is the failure of an activity whose result cannot be taken.
func unusable(step *planStep, err error) *Failure {
	code := CodeBadResult
	if errors.Is(err, ErrTooLarge) {
		code = CodeVariablesTooLarge
	}
	return &Failure{Code: code, Message: clean(err.Error()), StepID: step.ID}
}

// resultOf returns the result of an activity, and the variables with it (nil: as they
// are).
func (r *run) resultOf(step *planStep, open OpenStep, active OpenActivity) (result, merged json.RawMessage, err error) {
	result, err = r.value(r.in.Result)
	switch {
	case err != nil:
		return nil, nil, err
	case open.Compensates > 0:
		return result, nil, nil
	case open.Turns != nil:
		return result, nil, r.turnFits(step, open, result)
	case step.OutputVariable != "":
		merged, err = r.fitting(single(step.OutputVariable, result))
	case isObject(result):
		merged, err = r.fitting(result)
	case result != nil && !isNull(result) && active.Kind != CommandActivity && active.Kind != ChildActivity:
		err = Refuse(ErrBadInput, "variables have to be a JSON object")
	}
	if err == nil && step.compensation != nil {
		err = r.undoFits(len(result))
	}
	return result, merged, err
}

// removeActivity takes an activity off its step once it has ended. It may have begun with
// the same input: a WAIT whose signal came while the instance was suspended.
func (r *run) removeActivity(open *OpenStep, active OpenActivity) OpenActivity {
	r.unsetActivityTimer(*open, active)
	r.changes.Begin = slices.DeleteFunc(r.changes.Begin, func(a Activity) bool { return a.N == active.N })
	open.Activities = slices.DeleteFunc(open.Activities, func(a OpenActivity) bool { return a.N == active.N })
	return active
}

func completedKind(kind ActivityKind) EntryKind {
	switch kind {
	case UserActivity:
		return UserTaskDone
	case SignalActivity:
		return SignalReceived
	default:
		return JobCompleted
	}
}

// activityEntry returns an entry about an activity of a step.
func activityEntry(kind EntryKind, step *planStep, open OpenStep, active OpenActivity, at time.Time) Entry {
	e := stepEntry(kind, step, open, at)
	e.Activity, e.ActivityKind, e.Attempt, e.Turn = active.N, active.Kind, active.attempt(), active.Turn
	return e
}
