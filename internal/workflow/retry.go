package workflow

import (
	"math"
	"slices"
	"time"
)

// attemptFailed takes the failure of an attempt: another one follows as the policy says,
// or its step has failed.
func (r *run) attemptFailed(step *planStep, open *OpenStep, active *OpenActivity, failure *Failure, retryable bool) {
	doubtful := inDoubt(failure.Code)
	if doubtful {
		open.InDoubt = active.N
	}
	e := activityEntry(JobRetried, step, *open, *active, r.at)
	e.Failure, e.InDoubt, e.Actor = failure, doubtful, r.in.Actor
	r.unsetActivityTimer(*open, *active)
	if failure.Code == CodeLeaseExpired && retryable {
		// A worker that was lost says nothing about the work: that costs no retry.
		r.entry(e)
		r.againAfterFailure(step, open, active, 0)
		return
	}
	policy := r.policy(step, *open)
	wait, more := policy.after(active.Failures+1, failure.Code, r.at.Sub(open.BeganAt), r.dice(*active), r.in.RetryAfter)
	if retryable && more {
		if wait > 0 {
			e.DueAt = moment(r.at.Add(wait))
		}
		r.entry(e)
		active.Failures++
		r.againAfterFailure(step, open, active, wait)
		return
	}
	e.Kind = JobFailed
	r.entry(e)
	ended := *active
	open.Activities = slices.DeleteFunc(open.Activities, func(a OpenActivity) bool { return a.N == ended.N })
	if r.in.Kind == TimerFired {
		r.changes.Void = append(r.changes.Void, ended.N)
	}
	r.fail(step, *open, failure)
}

// again begins the next attempt at an activity after a wait. Jobs wait by themselves,
// anything else for a timer. The failure says why it cannot begin.
func (r *run) again(step *planStep, open *OpenStep, active *OpenActivity, wait time.Duration) *Failure {
	due := moment(r.at.Add(wait))
	if wait > 0 && active.Kind != JobActivity {
		active.Paused, active.TimerAt = true, due
		r.set(Timer{Step: open.N, Kind: RetryTimer, Index: active.N, DueAt: due})
		return nil
	}
	a, failure := r.describe(step, *open, *active)
	if failure != nil {
		return failure
	}
	if wait > 0 {
		a.DueAt = due
	}
	r.dispatch(step, open, a)
	return nil
}

// againAfterFailure is again for an attempt that has just ended.
func (r *run) againAfterFailure(step *planStep, open *OpenStep, active *OpenActivity, wait time.Duration) {
	if failure := r.again(step, open, active, wait); failure != nil {
		r.removeActivity(open, *active)
		r.fail(step, *open, failure)
	}
}

// policy is how attempts at an open step are repeated.
func (r *run) policy(step *planStep, open OpenStep) retryPolicy {
	if open.Compensates > 0 {
		return step.compensation.retry
	}
	return step.retry
}

// after says whether another attempt follows the given number of failures, and how long
// after the last one. age is that of the step; dice, from 0 to 1, decides about the jitter;
// asked, when it is not 0, is the wait that the one who failed has asked for.
func (p retryPolicy) after(failures int, code string, age time.Duration, dice float64, asked time.Duration) (time.Duration, bool) {
	if failures > p.count || len(p.on) > 0 && !slices.Contains(p.on, code) {
		return 0, false
	}
	wait := time.Duration(min(float64(p.initial)*math.Pow(p.multiplier, float64(failures-1)), float64(p.max)))
	// The random part makes a wait shorter, never longer than it is written.
	wait -= time.Duration(float64(wait) * p.jitter * dice)
	if asked > 0 {
		wait = asked
	}
	return wait, p.maxAge == 0 || age+wait < p.maxAge
}

// dice is a number from 0 to 1 that differs from instance to instance and from attempt to
// attempt, and is the same whenever the same input is taken again.
func (r *run) dice(active OpenActivity) float64 {
	x := uint64(r.state.StartedAt.UnixMicro()) ^ uint64(active.N)<<32 ^ uint64(active.Failures)
	// The finalizer of splitmix64.
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
