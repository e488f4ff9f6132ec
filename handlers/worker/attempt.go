package worker

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// attempt is one attempt that this worker holds the lease of, from the claim to
// the moment at which its result is recorded.
type attempt struct {
	ref   store.Ref
	lease *localLease
	stop  context.CancelCauseFunc
	// reports is what the attempt tells of itself.
	reports reports
	// carriedOn says that its executor lets another worker carry on what it leaves.
	carriedOn bool
}

// start runs a claimed execution in the background. sent is the time just before
// the claim was sent: the lease cannot have begun earlier.
func (w *Worker) start(e *execution.Execution, sent time.Time) {
	ctx, stop := context.WithCancelCause(context.Background())
	a := &attempt{
		ref:   store.Ref{ID: e.ID, Attempt: e.Attempt},
		lease: newLocalLease(w.deadline(sent)),
		stop:  stop,
	}
	_, a.carriedOn = w.executors[e.Request.Executor].(executor.Settler)
	w.mu.Lock()
	w.attempts[a.ref] = a
	w.mu.Unlock()
	// The caller has entered, so the count is above zero and a shutdown waits.
	w.running.Go(func() {
		defer w.release(needs(e.Request))
		outcome, recorded := w.runAttempt(ctx, e, a, sent)
		stop(nil)
		w.forget(a)
		if recorded && outcome != executor.Abandoned {
			w.settle(e)
		}
	})
}

// settle tells the executor that the end of an attempt is recorded, if it has kept what
// the attempt has left. Until it has let go of that, the room is not free.
func (w *Worker) settle(e *execution.Execution) {
	x, keeps := w.executors[e.Request.Executor].(executor.Settler)
	if !keeps {
		return
	}
	ctx, cancel := context.WithTimeout(w.final, w.cfg.Lease)
	defer cancel()
	x.Settle(ctx, w.task(e))
}

// task is what an executor is told of a claimed execution.
func (w *Worker) task(e *execution.Execution) executor.Task {
	r := e.Request
	t := executor.Task{
		ExecutionID: e.ID, Attempt: e.Attempt, First: e.Origin(), Spec: r.Spec, Tenant: r.Tenant, User: r.User, Priority: r.Priority,
		Class: r.ResourceClass, MaxOutputBytes: w.cfg.MaxOutputBytes,
		Needs: executor.Needs{CPUMillis: r.Requirements.CPUMillis, MemoryBytes: r.Requirements.MemoryBytes, GPUs: r.Requirements.GPUs},
	}
	if limit := e.RunDeadline(); !limit.IsZero() {
		t.RunLimit = limit.Sub(e.StartedAt)
	}
	return t
}

// deadline is when an attempt must be dead if its lease was renewed by a
// statement sent at that time.
func (w *Worker) deadline(sent time.Time) time.Time {
	return sent.Add(w.cfg.Lease - w.cfg.Margin)
}

func (w *Worker) forget(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, a.ref)
}

// runAttempt runs an attempt and reports what came of it. It returns whether that was
// recorded.
func (w *Worker) runAttempt(ctx context.Context, e *execution.Execution, a *attempt, sent time.Time) (executor.Outcome, bool) {
	if e.Cancel != nil {
		a.stop(executor.ErrCancelled)
	}
	run := ctx
	if limit := e.RunDeadline(); !limit.IsZero() {
		// Both times are the database's; only their distance is used here.
		var cancel context.CancelFunc
		run, cancel = context.WithDeadlineCause(ctx, sent.Add(limit.Sub(e.StartedAt)), executor.ErrRunLimit)
		defer cancel()
	}
	out := newOutputBuffer(a.ref, w.cfg, w.store, w.log, func(b store.Beat, sent time.Time) { w.beat(a, b, sent) })
	flushing, stopFlushing := context.WithCancel(ctx)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		out.flushEvery(flushing, w.cfg.OutputInterval)
	}()

	w.metrics.called(sent)
	result := w.runTask(run, e, a, out)
	crash.At("worker.ended")
	stopFlushing()
	<-flushed
	w.metrics.ended(e.Request.Executor, result.Outcome, time.Since(sent))
	result = w.keepValue(a.ref, result)
	f := store.Finish{Ref: a.ref, Worker: w.cfg.ID, Result: result, Output: out.rest()}
	f.Progress, f.Checkpoint = a.reports.last()
	return result.Outcome, w.report(f)
}

// report records the end of an attempt. It repeats until the answer is certain:
// recorded, or not the worker's to record any more. Neither a lost lease nor a
// cancel keeps it from that: the store decides whether the result still counts. It
// returns whether the end was recorded: by this report, or, where the execution has ended
// meanwhile, by one before it whose answer was lost.
func (w *Worker) report(f store.Finish) bool {
	ctx := w.final
	repeated := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		outcome, err := w.finishes.do(ctx, f)
		switch {
		case err == nil && (outcome == nil || repeated && errors.Is(outcome, execution.ErrTerminal)):
			return true
		case err == nil:
			w.log.InfoContext(ctx, "result of an attempt came too late", "execution_id", f.ID, "attempt", f.Attempt,
				"outcome", f.Result.Outcome, "cause", outcome)
			return false
		case ctx.Err() != nil:
			w.log.WarnContext(ctx, "worker stopped before a result was recorded, its lease will run out",
				"execution_id", f.ID, "attempt", f.Attempt, "error", err)
			return false
		}
		w.log.WarnContext(ctx, "result could not be recorded yet", "execution_id", f.ID, "attempt", f.Attempt,
			"error", err, "next_try_in", wait)
		repeated = true
		sleep(ctx, wait)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
