package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/pods"
)

const (
	// factsAtOnce is how many facts are recorded by one call.
	factsAtOnce = 500
	// recordWithin bounds such a call.
	recordWithin = 30 * time.Second
	// recordLast is how long the facts of a worker that stops may take. What is not
	// recorded by then is told again by whoever sees the pods next.
	recordLast = 5 * time.Second
)

// recorder takes the facts of pods to the ledger, in the order in which they were noted, and
// tries each until it is kept.
type recorder struct {
	ledger pods.Ledger
	log    *slog.Logger
	faults func()

	mu    sync.Mutex
	queue []pods.Fact
	// told is how many facts of a pod were noted: its state tells them in order.
	told map[types.UID]map[pods.Phase]bool
	// noted and kept count facts.
	noted, kept int64
	wake        chan struct{}
	// progress is closed when kept has risen.
	progress chan struct{}
}

func newRecorder(ledger pods.Ledger, log *slog.Logger, faults func()) *recorder {
	return &recorder{
		ledger: ledger, log: log, faults: faults, told: map[types.UID]map[pods.Phase]bool{},
		wake: make(chan struct{}, 1), progress: make(chan struct{}),
	}
}

// seen notes what the state of a pod tells that was not noted yet.
func (r *recorder) seen(p *corev1.Pod) { r.note(p.UID, Facts(p)) }

// gone notes what the last state of a pod tells, what it has waited for if it never began,
// and that it is gone.
func (r *recorder) gone(p *corev1.Pod) {
	facts, now := Facts(p), time.Now().UTC()
	if f, ok := StuckFact(p, now); ok {
		facts = append(facts, f)
	}
	if f, ok := DeletedFact(p, now); ok {
		facts = append(facts, f)
	}
	r.note(p.UID, facts)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, p.UID)
}

func (r *recorder) note(uid types.UID, facts []pods.Fact) {
	if r.ledger == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told[uid]
	if told == nil {
		told = map[pods.Phase]bool{}
		r.told[uid] = told
	}
	for _, f := range facts {
		if told[f.Phase] {
			continue
		}
		told[f.Phase] = true
		r.queue = append(r.queue, f)
		r.noted++
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run records until ctx ends, and then what there still is.
func (r *recorder) run(ctx context.Context) {
	for {
		r.drain(ctx)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLast)
			defer cancel()
			r.drain(last)
			return
		case <-r.wake:
		}
	}
}

// drain records what there is. It returns when there is no more, or when ctx has ended.
func (r *recorder) drain(ctx context.Context) {
	pause := watchPauseMin
	for {
		batch := r.next()
		if len(batch) == 0 || ctx.Err() != nil {
			return
		}
		call, cancel := context.WithTimeout(ctx, recordWithin)
		err := r.ledger.Record(call, batch)
		cancel()
		if err == nil {
			pause = watchPauseMin
			r.done(len(batch))
			continue
		}
		if ctx.Err() == nil {
			r.faults()
			r.log.WarnContext(ctx, "what has become of pods could not be recorded yet", "facts", len(batch), "error", err, "next_try_in", pause)
		}
		sleep(ctx, pause)
		pause = min(2*pause, watchPauseMax)
	}
}

func (r *recorder) next() []pods.Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue[:min(len(r.queue), factsAtOnce)]
}

func (r *recorder) done(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = r.queue[n:]
	if len(r.queue) == 0 {
		r.queue = nil
	}
	r.kept += int64(n)
	close(r.progress)
	r.progress = make(chan struct{})
}

// flush waits until everything that was noted before the call is kept, or ctx ends.
func (r *recorder) flush(ctx context.Context) {
	r.mu.Lock()
	until := r.noted
	for r.kept < until && ctx.Err() == nil {
		progress := r.progress
		r.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
}

// insisted repeats a call of the ledger until it is answered, after everything was recorded
// that was noted before. The error is that ctx has ended. Without a ledger it calls nothing.
func (r *recorder) insisted(ctx context.Context, what string, do func(context.Context) error) error {
	if r.ledger == nil {
		return nil
	}
	r.flush(ctx)
	for pause := watchPauseMin; ; pause = min(2*pause, watchPauseMax) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		call, cancel := context.WithTimeout(ctx, recordWithin)
		err := do(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			r.faults()
			r.log.WarnContext(ctx, "the ledger of pods does not answer yet", "call", what, "error", err, "next_try_in", pause)
		}
		sleep(ctx, pause)
	}
}

// forgo notes that a pod is about to be taken away, and what its run has come to. Where that
// is nothing, since the work is offered again (Abandoned), the pod must not have begun.
//
// That the cluster does not say that a pod has begun is not enough otherwise: its node may
// start it before it learns of the deletion, and nobody sees that if this worker dies.
func (r *recorder) forgo(ctx context.Context, p *corev1.Pod, result executor.Result) error {
	pod, ours := PodOf(p)
	if !ours {
		return nil
	}
	var verdict *pods.Verdict
	if result.Outcome != executor.Abandoned {
		verdict = new(verdictOf(result))
	}
	return r.insisted(ctx, "forgo", func(ctx context.Context) error { return r.ledger.Forgo(ctx, pod, verdict) })
}

// worked returns the pod of a task's run that may have done something of the work, or has a
// verdict, if there was one.
func (r *recorder) worked(ctx context.Context, task executor.Task) (last pods.Last, known bool, err error) {
	run := pods.Run{ExecutionID: task.ExecutionID, First: task.Origin()}
	err = r.insisted(ctx, "worked", func(ctx context.Context) (err error) {
		last, known, err = r.ledger.Worked(ctx, run)
		return err
	})
	return last, known, err
}

// pending is how many facts are not kept yet.
func (r *recorder) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}
