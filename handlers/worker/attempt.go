package worker

import (
	"context"
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
	w.mu.Lock()
	w.attempts[a.ref] = a
	w.mu.Unlock()
	// The caller has entered, so the count is above zero and a shutdown waits.
	w.running.Go(func() {
		defer w.release(needs(e.Request))
		defer w.forget(a)
		defer stop(nil)
		w.runAttempt(ctx, e, a, sent)
	})
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

func (w *Worker) runAttempt(ctx context.Context, e *execution.Execution, a *attempt, sent time.Time) {
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
	w.report(f)
}

// report records the end of an attempt. It repeats until the answer is certain:
// recorded, or not the worker's to record any more. Neither a lost lease nor a
// cancel keeps it from that: the store decides whether the result still counts.
func (w *Worker) report(f store.Finish) {
	ctx := w.final
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		outcome, err := w.finishes.do(ctx, f)
		switch {
		case err == nil && outcome == nil:
			return
		case err == nil:
			w.log.InfoContext(ctx, "result of an attempt came too late", "execution_id", f.ID, "attempt", f.Attempt,
				"outcome", f.Result.Outcome, "cause", outcome)
			return
		case ctx.Err() != nil:
			w.log.WarnContext(ctx, "worker stopped before a result was recorded, its lease will run out",
				"execution_id", f.ID, "attempt", f.Attempt, "error", err)
			return
		}
		w.log.WarnContext(ctx, "result could not be recorded yet", "execution_id", f.ID, "attempt", f.Attempt,
			"error", err, "next_try_in", wait)
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
