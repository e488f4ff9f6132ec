package workflow

import (
	"encoding/json"
	"errors"
	"slices"
)

// suspend keeps an instance from beginning anything.
func (r *run) suspend() error {
	if !r.running() && r.state.Status != Compensating {
		return r.stale("only what runs can be suspended")
	}
	r.state.Suspended, r.state.Status = r.state.Status, Suspended
	r.entry(Entry{Kind: InstanceSuspended, Actor: r.in.Actor, Reason: r.in.Reason})
	return nil
}

// resume lets a suspended instance go on, with what came in the meantime.
func (r *run) resume() error {
	if r.state.Status != Suspended {
		return r.stale("only what is suspended can be resumed")
	}
	r.entry(Entry{Kind: InstanceResumed, Actor: r.in.Actor, Reason: r.in.Reason})
	for _, in := range r.wake() {
		r.resuming = true
		// What an earlier one has made stale is void, and a signal that is too much for the
		// instance is lost; a result that is too large fails its step.
		if err := r.take(in); err != nil && !errors.Is(err, ErrStale) && !errors.Is(err, ErrBadInput) {
			return err
		}
		r.settle()
	}
	r.resuming = false
	return nil
}

// wake ends a suspension, if there is one, and returns the inputs that were deferred.
func (r *run) wake() []Input {
	if r.state.Status != Suspended {
		return nil
	}
	deferred := r.state.Deferred
	r.state.Status, r.state.Suspended, r.state.Deferred = r.state.Suspended, "", nil
	return deferred
}

// postponed keeps the input for later when the instance is suspended, and says whether
// it did. activity is what it completes or fails, if it is known.
func (r *run) postponed(activity int) bool {
	if r.state.Status != Suspended {
		return false
	}
	in := r.in
	if activity != 0 {
		in.Activity = activity
	}
	r.state.Deferred = append(r.state.Deferred, in)
	r.changes.Deferred = true
	e := Entry{Kind: InputDeferred, Name: string(in.Kind), Activity: in.Activity, Actor: in.Actor}
	if in.Kind == TimerFired {
		e.Step = in.Timer.Step
	}
	r.entry(e)
	return true
}

// isDeferred says whether an activity ended while the instance was suspended.
func (r *run) isDeferred(activity int) bool {
	return slices.ContainsFunc(r.state.Deferred, func(in Input) bool {
		return in.Activity == activity && in.Kind != TimerFired
	})
}

// deferredResult returns the result of an activity that ended while the instance was
// suspended; false: it did not.
func (r *run) deferredResult(activity int) (json.RawMessage, bool) {
	for _, in := range r.state.Deferred {
		if in.Activity == activity && in.Kind != ActivityFailed && in.Kind != TimerFired {
			return in.Result, true
		}
	}
	return nil, false
}
