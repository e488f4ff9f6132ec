package execution

import (
	"time"

	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/topics"
)

// Expire applies whatever is due at now: a limit that has passed or a lease that
// has run out. It reports whether anything changed.
func (e *Execution) Expire(now time.Time, p Policy) bool {
	switch e.State {
	case Requested, Queued:
		return e.expireWaiting(now)
	case Scheduled:
		return e.expireScheduled(now, p)
	case Running:
		return e.expireLease(now, p)
	default:
		return false
	}
}

func (e *Execution) expireWaiting(now time.Time) bool {
	switch {
	case passed(now, e.totalDeadline()):
		e.timeOut(now, topics.TimedOutTotal, "the total time limit passed while the execution waited in the queue")
	case passed(now, e.queueDeadline()):
		e.timeOut(now, topics.TimedOutQueue, "the execution was not admitted within its queue limit")
	case passed(now, e.retryDeadline()):
		e.failTooOld(now)
	default:
		return false
	}
	return true
}

func (e *Execution) expireScheduled(now time.Time, p Policy) bool {
	switch {
	case passed(now, e.totalDeadline()):
		e.timeOut(now, topics.TimedOutTotal, "the total time limit passed before a worker took the execution")
	case passed(now, e.retryDeadline()):
		e.failTooOld(now)
	case passed(now, e.startDeadline(p)):
		e.requeue(now, topics.RequeuedStartLimit, &topics.Failure{
			Reason: "start_limit", Message: "no worker took the execution within its start limit", Retryable: true,
		}, 0, p)
	default:
		return false
	}
	return true
}

// expireLease handles a worker that was not heard of until its lease ran out.
// Its runner has killed the attempt by then (see package executor), so another
// attempt may start. A lost worker is not the execution's failure, so it costs no
// attempt of the retry policy, but it is counted: work that takes its workers
// down again and again is quarantined. Work that outlives its worker does not do so just
// by running, so an attempt that was held for DeliveryMemory begins the count anew.
func (e *Execution) expireLease(now time.Time, p Policy) bool {
	if !passed(now, e.LeaseExpiresAt) {
		return false
	}
	if spec.OutlivesWorker(e.Request.Executor) && now.Sub(e.StartedAt) >= p.DeliveryMemory {
		// It was not what took them down, and may run for longer than any worker lives.
		e.Deliveries = 0
	}
	e.Deliveries++
	worker := e.Worker
	e.record(now, topics.ExecutionLeaseExpired{
		ExecutionID: e.ID, Attempt: e.Attempt, Worker: worker, Deliveries: e.Deliveries,
	})
	switch {
	case e.Cancel != nil:
		e.finishCancelled(now, topics.CancelledWorkerLost, topics.StreamSummary{}, topics.StreamSummary{})
	case passed(now, e.totalDeadline()):
		e.timeOut(now, topics.TimedOutTotal, "the total time limit passed and the worker was lost")
	case forbidsRepeat(e.Request.Retry, ReasonLeaseExpired):
		message := "worker " + worker + " was lost, and the execution is not to be run again after that"
		e.fail(now, Result{Reason: ReasonLeaseExpired, Message: message},
			topics.Failure{Reason: ReasonLeaseExpired, Message: message})
	case e.Deliveries >= p.MaxDeliveries:
		message := "the lease of this execution ran out too often: it may be what takes its workers down"
		e.finish(now, Result{Reason: "quarantined", Message: message})
		e.record(now, topics.ExecutionQuarantined{
			ExecutionID: e.ID, Attempt: e.Attempt, Deliveries: e.Deliveries,
			Cause: topics.QuarantinedLeaseExpired, Message: message,
		})
	default:
		e.requeue(now, topics.RequeuedLeaseExpired, &topics.Failure{
			Reason: "lease_expired", Message: "worker " + worker + " stopped renewing its lease", Retryable: true,
		}, p.LeaseRetryBackoff, p)
	}
	return true
}

// failTooOld ends an execution whose retry could not start in time.
func (e *Execution) failTooOld(now time.Time) {
	const message = "the retry could not start within max_age"
	e.fail(now, Result{Reason: ReasonMaxAge, Message: message}, topics.Failure{Reason: ReasonMaxAge, Message: message})
}

func (e *Execution) timeOut(now time.Time, limit, message string) {
	failure := topics.Failure{Reason: limit + "_limit", Message: message}
	ev := topics.ExecutionTimedOut{
		ExecutionID: e.ID, Attempt: e.Attempt, Failure: failure, Limit: limit, FinishedAt: now,
	}
	if !e.StartedAt.IsZero() {
		started := e.StartedAt
		ev.Worker, ev.StartedAt, ev.DurationMillis = e.Worker, &started, now.Sub(started).Milliseconds()
	}
	e.finish(now, Result{Reason: failure.Reason, Message: message, Limit: limit})
	e.record(now, ev)
}
