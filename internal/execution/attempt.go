package execution

import (
	"cmp"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// Start gives the lease of a scheduled execution to a worker until now+lease.
// attempt is the one that the worker read from its task record.
func (e *Execution) Start(now time.Time, worker string, attempt int, lease time.Duration) error {
	if err := e.require(topics.ExecutionStarted{}); err != nil {
		return err
	}
	if attempt != e.Attempt {
		return fmt.Errorf("execution %s is at attempt %d, not %d: %w", e.ID, e.Attempt, attempt, ErrStaleAttempt)
	}
	e.StartedAt = now
	e.Worker = worker
	e.Renew(now, lease)
	e.record(now, topics.ExecutionStarted{
		ExecutionID: e.ID, Attempt: e.Attempt, Worker: worker, Executor: e.Request.Executor,
		LeaseExpiresAt: e.LeaseExpiresAt, WaitedMillis: millisUp(now.Sub(e.ScheduledAt)),
	})
	return nil
}

// CheckHolder returns ErrStaleAttempt unless the worker holds the lease of that
// attempt. A lease that has run out still counts while nobody has taken the
// execution over: work that is done is not thrown away for being late.
func (e *Execution) CheckHolder(worker string, attempt int) error {
	switch {
	case e.State.Terminal():
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, ErrTerminal)
	case e.State != Running || e.Attempt != attempt || e.Worker != worker:
		return fmt.Errorf("execution %s is %s at attempt %d: %w", e.ID, e.State, e.Attempt, ErrStaleAttempt)
	}
	return nil
}

// Renew moves the end of the lease to now+lease. It is no fact about the execution
// and records none.
func (e *Execution) Renew(now time.Time, lease time.Duration) {
	e.LeaseExpiresAt = now.Add(lease)
	e.DueAt = e.LeaseExpiresAt
}

// Output records a piece of output of the current attempt.
func (e *Execution) Output(now time.Time, ev topics.ExecutionOutput) {
	e.record(now, ev)
}

// Pod records what has become of a pod of the execution, which may be told after the end
// too.
func (e *Execution) Pod(now time.Time, ev topics.Event) {
	e.record(now, ev)
}

// Finish ends the current attempt with what the executor reported. A failure
// with attempts left goes back to the queue; everything else is final.
func (e *Execution) Finish(now time.Time, worker string, attempt int, r executor.Result, p Policy) error {
	if err := e.CheckHolder(worker, attempt); err != nil {
		return err
	}
	if r.Outcome == executor.TimedOut {
		r.Reason = cmp.Or(r.Reason, ReasonRunLimit)
	}
	if r.Outcome != executor.Completed {
		// Readers refuse a failure without a reason; an executor that gave none is
		// not to hold up the log.
		r.Reason = cmp.Or(r.Reason, "unspecified")
	}
	stdout, stderr := topics.StreamSummary(r.Stdout), topics.StreamSummary(r.Stderr)
	result := Result{
		Reason: r.Reason, Message: r.Message, ExitCode: r.ExitCode, Signal: r.Signal, Value: r.Value,
		ValueRef: (*topics.ValueReference)(r.ValueRef), Stdout: stdout, Stderr: stderr,
	}
	duration := now.Sub(e.StartedAt).Milliseconds()
	started := e.StartedAt
	failure := topics.Failure{
		Reason: r.Reason, Message: r.Message, ExitCode: r.ExitCode, Signal: r.Signal, Retryable: r.Retryable,
	}
	switch r.Outcome {
	case executor.Completed:
		e.finish(now, result)
		e.record(now, topics.ExecutionCompleted{
			ExecutionID: e.ID, Attempt: attempt, Worker: worker, ExitCode: r.ExitCode, Value: r.Value,
			ValueRef: result.ValueRef, Stdout: stdout, Stderr: stderr, StartedAt: started, FinishedAt: now, DurationMillis: duration,
		})
	case executor.TimedOut:
		result.Limit = e.passedRunLimit(now)
		if result.Limit == topics.TimedOutRun {
			e.Failures++
			if e.retries(now, failure) {
				e.requeue(now, topics.RequeuedFailed, &failure, e.backoff(), p)
				return nil
			}
		}
		e.finish(now, result)
		e.record(now, topics.ExecutionTimedOut{
			ExecutionID: e.ID, Attempt: attempt, Worker: worker, Failure: failure, Limit: result.Limit,
			Stdout: stdout, Stderr: stderr, StartedAt: &started, FinishedAt: now, DurationMillis: duration,
		})
	case executor.Cancelled:
		e.finishCancelled(now, topics.CancelledOnRequest, stdout, stderr)
	case executor.Abandoned:
		switch {
		case e.Cancel != nil:
			e.finishCancelled(now, topics.CancelledOnRequest, stdout, stderr)
			return nil
		case forbidsRepeat(e.Request.Retry, r.Reason):
			e.fail(now, result, failure)
			return nil
		case r.RetryAfter > 0:
			e.requeue(now, topics.RequeuedPostponed, &failure, e.postponed(r.RetryAfter, p), p)
			return nil
		}
		e.requeue(now, topics.RequeuedHandedBack, &failure, 0, p)
	case executor.Failed:
		if r.Disrupted && e.Cancel != nil {
			// It did not end by itself, and nobody waits for it to do so any more.
			e.finishCancelled(now, topics.CancelledOnRequest, stdout, stderr)
			return nil
		}
		e.Failures++
		if e.retries(now, failure) {
			e.requeue(now, topics.RequeuedFailed, &failure, e.backoff(), p)
			return nil
		}
		e.fail(now, result, failure)
	default:
		return fmt.Errorf("execution %s: unknown outcome %q: %w", e.ID, r.Outcome, ErrIllegal)
	}
	return nil
}

// fail ends the execution for good with a failure of its last attempt, which may not
// have started.
func (e *Execution) fail(now time.Time, r Result, failure topics.Failure) {
	ev := topics.ExecutionFailed{
		ExecutionID: e.ID, Attempt: e.Attempt, Failure: failure, Stdout: r.Stdout, Stderr: r.Stderr, FinishedAt: now,
	}
	if !e.StartedAt.IsZero() {
		started := e.StartedAt
		ev.Worker, ev.StartedAt, ev.DurationMillis = e.Worker, &started, now.Sub(started).Milliseconds()
	}
	e.finish(now, r)
	e.record(now, ev)
}

func (e *Execution) finishCancelled(now time.Time, cause string, stdout, stderr topics.StreamSummary) {
	ev := topics.ExecutionCancelled{
		ExecutionID: e.ID, Attempt: e.Attempt, Cause: cause, WasRunning: true, Stdout: stdout, Stderr: stderr, FinishedAt: now,
	}
	result := Result{Reason: "cancelled", Stdout: stdout, Stderr: stderr}
	if e.Cancel != nil {
		ev.By, ev.Reason = e.Cancel.By, e.Cancel.Reason
		result.Message = e.Cancel.Reason
	}
	e.finish(now, result)
	e.record(now, ev)
}

// clockSlack is how far the worker's clock may be ahead of now.
const clockSlack = time.Second

// passedRunLimit names the limit that ended a running attempt: the one that came
// first, since the worker's clock may be a little ahead of now. Where the attempt carries
// on what one before it began, the work may have been stopped for having run too long
// before this attempt itself has.
func (e *Execution) passedRunLimit(now time.Time) string {
	total := e.totalDeadline()
	if e.Origin() < e.Attempt {
		now = now.Add(clockSlack)
	} else if !total.IsZero() && total.Equal(e.RunDeadline()) {
		return topics.TimedOutTotal
	}
	if passed(now, total) {
		return topics.TimedOutTotal
	}
	return topics.TimedOutRun
}

// attemptsLeft reports whether the retry policy and the total limit allow
// another attempt.
func (e *Execution) attemptsLeft(now time.Time) bool {
	return e.Failures < e.Request.Retry.MaxAttempts && !passed(now, e.totalDeadline())
}

// backoff returns the wait before the next attempt: the base doubled for every
// failure after the first, capped, and stretched by up to Jitter of itself. The jitter is
// derived from the execution's id and attempt, so that a decision can be
// repeated and tested.
func (e *Execution) backoff() time.Duration {
	r := e.Request.Retry
	wait := time.Duration(r.Backoff)
	limit := time.Duration(r.MaxBackoff)
	for range e.Failures - 1 {
		if limit > 0 && wait >= limit {
			break
		}
		wait *= 2
	}
	if limit > 0 {
		wait = min(wait, limit)
	}
	return wait + time.Duration(r.Jitter*spread(e.ID, e.Attempt)*float64(wait))
}

// spread maps an execution's attempt to a number in [0, 1) (FNV-1a).
func spread(id string, attempt int) float64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	h = (h ^ uint64(attempt)) * prime
	return float64(h>>11) / (1 << 53)
}
