package worker

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// reportedBytes bounds the checkpoints that go with one heartbeat, so that renewals
// stay quick. Those that are left go with the next one, or with the result.
const reportedBytes = 4 << 20

// reports keeps what an attempt has told of itself and nobody has stored yet. It
// implements executor.Reporter.
type reports struct {
	mu sync.Mutex
	// progress and checkpoint are what was told last, with numbers that tell them
	// from what was told before; nil once they are stored.
	progress      *executor.Progress
	checkpoint    []byte
	progressNo    int
	checkpointNo  int
	attemptIsOver bool
}

var _ executor.Reporter = (*reports)(nil)

// Progress implements executor.Reporter.
func (r *reports) Progress(p executor.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attemptIsOver {
		return
	}
	r.progress = &p
	r.progressNo++
}

// Checkpoint implements executor.Reporter.
func (r *reports) Checkpoint(data []byte) error {
	if err := (executor.Deaf{}).Checkpoint(data); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attemptIsOver {
		return nil
	}
	// Not bytes.Clone: an empty checkpoint is one, and no nil.
	r.checkpoint = append(make([]byte, 0, len(data)), data...)
	r.checkpointNo++
	return nil
}

// outgoing is a report on its way to the store.
type outgoing struct {
	store.Report
	progressNo, checkpointNo int
}

// pending returns what is to be stored; nothing is forgotten before stored is
// called. It reports whether there is anything.
func (r *reports) pending(ref store.Ref) (outgoing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := outgoing{store.Report{Ref: ref, Progress: r.progress, Checkpoint: r.checkpoint}, r.progressNo, r.checkpointNo}
	return s, s.Progress != nil || s.Checkpoint != nil
}

// stored forgets what was sent, unless something newer has been told meanwhile.
func (r *reports) stored(s outgoing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progressNo == s.progressNo {
		r.progress = nil
	}
	if r.checkpointNo == s.checkpointNo {
		r.checkpoint = nil
	}
}

// last returns what goes with the result: what no heartbeat is known to have
// stored. What is told after that is not heard.
func (r *reports) last() (*executor.Progress, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attemptIsOver = true
	return r.progress, r.checkpoint
}

// pendingReports gathers what attempts have told since the last heartbeat.
func pendingReports(held []*attempt) (map[store.Ref]outgoing, []store.Report) {
	all := make(map[store.Ref]outgoing)
	var list []store.Report
	size := 0
	for _, a := range held {
		s, some := a.reports.pending(a.ref)
		if !some || size > 0 && size+len(s.Checkpoint) > reportedBytes {
			continue
		}
		size += len(s.Checkpoint)
		all[a.ref], list = s, append(list, s.Report)
	}
	return all, list
}

// checkpoint reads what the attempts before have left for this one.
func (w *Worker) checkpoint(ctx context.Context, e *execution.Execution) ([]byte, error) {
	if e.Attempt <= 1 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Lease/3)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		data, err := w.store.Checkpoint(ctx, e.ID)
		if err == nil {
			return bytes.Clone(data), nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the checkpoint could not be read: %w", err)
		}
		w.log.WarnContext(ctx, "checkpoint could not be read yet", "execution_id", e.ID, "attempt", e.Attempt,
			"error", err, "next_try_in", wait)
		sleep(ctx, wait)
	}
}

// runTask runs an attempt from the checkpoint of those before. Without it the work
// would begin anew, so the attempt is handed back instead when it cannot be read.
func (w *Worker) runTask(ctx context.Context, e *execution.Execution, a *attempt, out *outputBuffer) executor.Result {
	checkpoint, err := w.checkpoint(ctx, e)
	switch {
	case ctx.Err() != nil:
		return executor.Stopped(context.Cause(ctx))
	case err != nil:
		return executor.Result{Outcome: executor.Abandoned, Reason: "checkpoint_unreadable", Message: err.Error(), Retryable: true}
	}
	task := w.task(e)
	task.Checkpoint, task.Reporter = checkpoint, &a.reports
	result, err := w.executors[e.Request.Executor].Run(ctx, task, a.lease, out)
	if err != nil {
		return executor.Result{Outcome: executor.Failed, Reason: "executor_error", Message: err.Error(), Retryable: true}
	}
	return result
}
