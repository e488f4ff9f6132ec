package workflow

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Advance takes an instance of the plan from one state to the next. s itself is not
// changed. The error wraps ErrStale or ErrBadInput, or is the one of ctx when that ends
// before an expression is evaluated; the changes are to be ignored then.
func (p *Plan) Advance(ctx context.Context, s State, in Input, lim Limits) (Changes, error) {
	r := run{ctx: ctx, plan: p, limits: lim.withDefaults(), before: before{step: s.LastStep, activity: s.LastActivity}}
	r.at, r.state = moment(in.At), s.clone()
	r.changes.Entries = make([]Entry, 0, 4)
	if err := r.take(in); err != nil {
		return Changes{}, err
	}
	r.settle()
	if r.broken != nil {
		return Changes{}, r.broken
	}
	r.state.Version++
	r.changes.State = r.state
	return r.changes, nil
}

// run is one call of Advance.
type run struct {
	ctx     context.Context
	plan    *Plan
	limits  Limits
	at      time.Time
	state   State
	changes Changes
	before  before
	// in is the input that is being taken.
	in Input
	// todo are the tokens on their way to a step, the next one last: a branch goes as far
	// as it can before the one after it begins.
	todo []Place
	// entered counts the steps that the input has led through.
	entered int
	// vars are the variables for expressions, while they are those of the state.
	vars map[string]any
	// resuming is set while inputs that were deferred are taken.
	resuming bool
	// broken is why the run cannot be ended: the context's error.
	broken error
}

// before is what was the youngest when the run began: what is younger is the run's own.
type before struct{ step, activity int }

// take does what an input asks for, up to the tokens that it moves.
func (r *run) take(in Input) error {
	r.in = in
	switch in.Kind {
	case Start:
		return r.start()
	case ActivityCompleted, ActivityFailed:
		return r.takeReport()
	case TimerFired:
		return r.takeTimer()
	case Signalled:
		return r.takeSignal()
	case UserTaskCompleted:
		return r.takeUserTask()
	case Cancel:
		return r.cancel()
	case Suspend:
		return r.suspend()
	case Resume:
		return r.resume()
	case RetryFailed:
		return r.retryFailed()
	case SkipCompensation:
		return r.skipCompensation()
	case Compensate:
		return r.compensate()
	case Resolve:
		return r.resolve()
	}
	return Refuse(ErrBadInput, "unknown kind of input %q", in.Kind)
}

func (r *run) start() error {
	if r.state.Status != "" {
		return r.stale("it was started before")
	}
	variables, err := r.object(r.state.Variables)
	if err == nil && len(variables) > r.limits.Variables {
		err = r.tooLarge(len(variables))
	}
	if err != nil {
		return err
	}
	r.state.Variables = variables
	r.state.Status, r.state.StartedAt = Active, r.at
	r.entry(Entry{Kind: InstanceStarted, Actor: r.in.Actor, Reason: r.in.Reason})
	r.setTotalTimer()
	r.move(Place{StepID: r.plan.first().ID})
	return nil
}

// settle moves the tokens until all of them wait, and says what that makes of the
// instance.
func (r *run) settle() {
	r.drain()
	if !r.running() {
		return
	}
	if len(r.state.Open) == 0 {
		r.completeInstance()
		return
	}
	status := Active
	for i := range r.state.Open {
		if kind := r.plan.step(r.state.Open[i].StepID).Type; kind == UserTask || kind == Wait {
			status = Waiting
		}
	}
	if status == Waiting && r.state.Status != Waiting {
		r.entry(Entry{Kind: InstanceWaiting})
	}
	r.state.Status = status
}

// drain moves the tokens until all of them wait or the instance has ended.
func (r *run) drain() {
	for len(r.todo) > 0 && r.running() && r.broken == nil {
		last := len(r.todo) - 1
		next := r.todo[last]
		r.todo = r.todo[:last]
		r.enter(next)
	}
}

// move sends a token to a step.
func (r *run) move(to Place) { r.todo = append(r.todo, to) }

// running says whether tokens may move.
func (r *run) running() bool { return r.state.Status == Active || r.state.Status == Waiting }

func (r *run) completeInstance() {
	r.finish(Completed)
	r.state.Failure = nil
	r.entry(Entry{Kind: InstanceCompleted})
	if d := r.plan.definition; d.AutoStartNextWorkflow {
		r.changes.Next = d.NextWorkflowID
	}
}

// finish makes a status final.
func (r *run) finish(status Status) {
	r.state.Status, r.state.EndedAt = status, r.at
	r.state.Signals, r.state.Deferred, r.state.Suspended = nil, nil, ""
	r.todo = nil
	r.unsetTotalTimer()
}

// entry writes a line of the journal.
func (r *run) entry(e Entry) { r.changes.Entries = append(r.changes.Entries, e) }

// stale is the error of an input that does not fit the state.
func (r *run) stale(format string, args ...any) error {
	status := r.state.Status
	if status == "" {
		status = "not started"
	}
	return Refuse(ErrStale, "%s (the instance is %s)", fmt.Sprintf(format, args...), status)
}

// moment is a time as PostgreSQL keeps it, so that what is computed from it is equal to
// what is read back.
func moment(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// clone returns a copy of which everything may be changed that the machine changes.
func (s State) clone() State {
	s.Attempts, s.Undoing = slices.Clone(s.Attempts), slices.Clone(s.Undoing)
	s.Forks = slices.Clone(s.Forks)
	for i := range s.Forks {
		s.Forks[i].Arrived = slices.Clone(s.Forks[i].Arrived)
	}
	s.Undo = slices.Clone(s.Undo)
	s.Signals = slices.Clone(s.Signals)
	s.Deferred = slices.Clone(s.Deferred)
	s.Open = slices.Clone(s.Open)
	for i := range s.Open {
		s.Open[i] = s.Open[i].clone()
	}
	return s
}

func (o OpenStep) clone() OpenStep {
	o.Activities = slices.Clone(o.Activities)
	o.Fired = slices.Clone(o.Fired)
	if o.Turns != nil {
		turns := *o.Turns
		turns.Items, turns.Results = slices.Clone(turns.Items), slices.Clone(turns.Results)
		o.Turns = &turns
	}
	return o
}
