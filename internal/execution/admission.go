package execution

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// Queue puts a requested execution into the admission queue: its first attempt
// may be admitted from now on, or from not_before.
func (e *Execution) Queue(now time.Time, p Policy) error {
	if err := e.require(topics.ExecutionQueued{}); err != nil {
		return err
	}
	e.Attempt, e.First = 1, 1
	e.QueuedAt = now
	e.ReadyAt = now
	reason := topics.QueuedReady
	if nb := e.Request.NotBefore; nb != nil && nb.After(now) {
		e.ReadyAt, reason = *nb, topics.QueuedNotBefore
	}
	e.enqueue(now, p)
	e.record(now, topics.ExecutionQueued{
		ExecutionID: e.ID, Attempt: e.Attempt, ResourceClass: e.Request.ResourceClass,
		Priority: e.Request.Priority, ReadyAt: e.ReadyAt, Reason: reason,
	})
	return nil
}

// enqueue places the execution in the admission queue, at its end or, when it is to
// start later, outside of it until then.
func (e *Execution) enqueue(now time.Time, p Policy) {
	e.Waiting = WaitingForTurn
	if e.ReadyAt.After(now) {
		e.Waiting = WaitingForTime
	}
	e.rank(p)
}

// rank places the execution in the admission queue. Age is part of the key
// itself, so an index serves the order and nothing has to be recomputed while
// the execution waits.
func (e *Execution) rank(p Policy) {
	e.Rank = e.ReadyAt.Add(-time.Duration(e.Request.Priority-1) * p.AgeingStep)
	e.DueAt = earliest(e.queueDeadline(), e.retryDeadline(), e.totalDeadline())
}

// Reject refuses a requested or queued execution for good. The reason is a
// stable code; retryAfter, when positive, tells the submitter when the same
// request may be accepted.
func (e *Execution) Reject(now time.Time, reason, message string, retryAfter time.Duration) error {
	ev := topics.ExecutionRejected{
		ExecutionID: e.ID, Reason: reason, Message: message, RetryAfter: topics.Duration(retryAfter),
	}
	if err := e.require(ev); err != nil {
		return err
	}
	e.finish(now, Result{Reason: reason, Message: message, RetryAfter: ev.RetryAfter})
	e.record(now, ev)
	return nil
}

// pendingSince is from when on nothing of its own kept the execution from being
// admitted.
func (e *Execution) pendingSince() time.Time {
	switch nb := e.Request.NotBefore; {
	case e.Attempt > 1:
		return e.ReadyAt
	case nb != nil && nb.After(e.RequestedAt):
		return *nb
	default:
		return e.RequestedAt
	}
}

// millisUp is a duration in milliseconds, rounded up, and 1 at least: 0 stands for one
// that is not known.
func millisUp(d time.Duration) int64 {
	return max(int64((d+time.Millisecond-1)/time.Millisecond), 1)
}

// Schedule admits a queued execution: from here on it holds capacity, and its
// task record is on the way to the workers. It returns that task. The reason is one of
// topics.ScheduledInTurn and those beside it.
func (e *Execution) Schedule(now time.Time, admitter, reason string, p Policy) (topics.ExecutionTask, error) {
	if err := e.require(topics.ExecutionScheduled{}); err != nil {
		return topics.ExecutionTask{}, err
	}
	e.ScheduledAt = now
	e.DueAt = earliest(e.startDeadline(p), e.retryDeadline(), e.totalDeadline())
	e.record(now, topics.ExecutionScheduled{
		ExecutionID: e.ID, Attempt: e.Attempt, ResourceClass: e.Request.ResourceClass, Admitter: admitter,
		WaitedMillis: max(now.Sub(e.ReadyAt).Milliseconds(), 0), PendingMillis: millisUp(now.Sub(e.pendingSince())), Reason: reason,
	})
	task := topics.ExecutionTask{ExecutionID: e.ID, Attempt: e.Attempt, Request: e.Request, ScheduledAt: now}
	return task, nil
}

// Reprioritize gives an execution that has not been admitted another priority. What
// it has waited still counts, so its place is the one that it would have if it had
// been asked for with that priority. An execution that has this priority already
// stays as it is, wherever it stands. After its admission the priority decides
// nothing any more, and the error is ErrAdmitted, or ErrTerminal after the end.
func (e *Execution) Reprioritize(now time.Time, priority int, by, reason string, p Policy) error {
	c := &checker{}
	c.number("/priority", int64(priority), topics.MinPriority, topics.MaxPriority)
	previous := e.Request.Priority
	switch {
	case len(c.faults) > 0:
		return &InvalidError{Fields: c.faults}
	case priority == previous:
		return nil
	case e.State.Terminal():
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, ErrTerminal)
	case e.State != Requested && e.State != Queued:
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, ErrAdmitted)
	}
	e.Request.Priority = priority
	if e.State == Queued {
		e.rank(p)
	}
	e.record(now, topics.ExecutionReprioritized{
		ExecutionID: e.ID, Attempt: e.Attempt, Priority: priority, PreviousPriority: previous, By: by, Reason: reason,
	})
	return nil
}

// requeue sends the execution back to the queue for its next attempt. After a failure
// the work begins afresh; otherwise the next attempt carries on what there is of it.
func (e *Execution) requeue(now time.Time, cause string, failure *topics.Failure, wait time.Duration, p Policy) {
	e.First = e.Origin()
	e.Attempt++
	if cause == topics.RequeuedFailed {
		e.First = e.Attempt
	}
	e.setBack(now, cause, failure)
	e.ReadyAt = now.Add(wait)
	e.QueuedAt = now
	e.LeaseExpiresAt = time.Time{}
	e.ScheduledAt = time.Time{}
	e.StartedAt = time.Time{}
	e.enqueue(now, p)
	e.record(now, topics.ExecutionRequeued{
		ExecutionID: e.ID, Attempt: e.Attempt, Cause: cause, Failure: failure, ReadyAt: e.ReadyAt,
	})
}

// Origin is the attempt with which the work began that the current one carries on.
func (e *Execution) Origin() int { return cmp.Or(e.First, e.Attempt) }

// setbackMessage is how much of a message a setback keeps, in bytes: the event has all.
const setbackMessage = 2 << 10

// setBack notes why the attempt came to nothing.
func (e *Execution) setBack(now time.Time, cause string, failure *topics.Failure) {
	s := &Setback{Cause: cause, Times: 1, Since: now}
	if before := e.Setback; before != nil && before.Cause == cause {
		s.Times, s.Since = before.Times+1, before.Since
	}
	if failure != nil {
		s.Reason, s.Message = failure.Reason, strings.ToValidUTF8(failure.Message[:min(len(failure.Message), setbackMessage)], "")
	}
	e.Setback = s
}

// postponed returns how long an execution waits for which there was no room: as long as
// its executor asks for, and twice as long each time that there is none again.
func (e *Execution) postponed(wait time.Duration, p Policy) time.Duration {
	limit := max(wait, p.MaxPostponed)
	if s := e.Setback; s != nil && s.Cause == topics.RequeuedPostponed {
		for range s.Times {
			if wait >= limit/2 {
				return limit
			}
			wait *= 2
		}
	}
	return wait
}

// RequestCancel asks for the execution to stop. One that does not run yet is
// cancelled at once; a running one is marked, and its worker stops it. Asking
// again changes nothing and is no error; asking after the end is ErrTerminal.
func (e *Execution) RequestCancel(now time.Time, by, reason string) error {
	if e.State.Terminal() {
		return e.require(topics.ExecutionCancelled{})
	}
	if e.State != Running {
		e.finish(now, Result{Reason: "cancelled", Message: reason})
		e.Cancel = &CancelRequest{By: by, Reason: reason, At: now}
		e.record(now, topics.ExecutionCancelled{
			ExecutionID: e.ID, Attempt: e.Attempt, Cause: topics.CancelledOnRequest, By: by, Reason: reason, FinishedAt: now,
		})
		return nil
	}
	if e.Cancel != nil {
		return nil
	}
	e.Cancel = &CancelRequest{By: by, Reason: reason, At: now}
	e.record(now, topics.ExecutionCancelRequested{ExecutionID: e.ID, Attempt: e.Attempt, By: by, Reason: reason})
	return nil
}

// finish fills the fields that every terminal state shares.
func (e *Execution) finish(now time.Time, r Result) {
	e.FinishedAt = now
	e.LeaseExpiresAt = time.Time{}
	e.DueAt = time.Time{}
	e.Setback = nil
	e.Result = &r
}
