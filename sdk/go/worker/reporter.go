package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// reporter tells the engine how jobs went, and repeats itself until that is certain or the
// lease is over. Completions that are ready at the same time share a call: with a few
// calls under way, those that come meanwhile make the next ones. One that comes alone goes
// alone and at once.
type reporter struct {
	engine client.JobClient
	cfg    Config
	// single: completions are not put together, because of the configuration or because
	// the engine does not know how.
	single atomic.Bool

	mu    sync.Mutex
	queue []pending
	calls int
}

// pending is a completion that waits for its call.
type pending struct {
	completion client.Completion
	answer     chan error
}

// maxCalls is how many calls with completions are under way at once. More would make for
// smaller batches.
const maxCalls = 4

func newReporter(engine client.JobClient, cfg Config) *reporter {
	r := &reporter{engine: engine, cfg: cfg}
	r.single.Store(cfg.Batch == 1)
	return r
}

func (r *reporter) complete(ctx context.Context, h *hold, c client.Completion) error {
	return r.persist(ctx, h, func(ctx context.Context) error {
		if r.single.Load() {
			return r.engine.CompleteJob(ctx, c)
		}
		return r.together(ctx, c)
	})
}

func (r *reporter) fail(ctx context.Context, h *hold, f client.Failure) error {
	return r.persist(ctx, h, func(ctx context.Context) error { return r.engine.FailJob(ctx, f) })
}

// persist repeats a call, at least once, for as long as the lease lasts, which heartbeats
// extend meanwhile. It may be repeated: the engine takes a report that it has taken
// already for what it is.
func (r *reporter) persist(ctx context.Context, h *hold, call func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		callCtx, cancel := context.WithTimeout(ctx, max(r.cfg.Lease/3, time.Second))
		err := call(callCtx)
		cancel()
		if err == nil || !client.Retryable(err) || ctx.Err() != nil {
			return err
		}
		pause := backoff(attempt)
		var refused *client.Error
		if errors.As(err, &refused) {
			pause = max(pause, refused.RetryAfter)
		}
		if attempt > 0 && h.left() < pause {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// backoff is 100 ms, 200 ms, 400 ms ... up to 5 s, give or take a fifth.
func backoff(attempt int) time.Duration {
	d := min(100*time.Millisecond<<min(attempt, 10), 5*time.Second)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// together hands a completion to the next call.
func (r *reporter) together(ctx context.Context, c client.Completion) error {
	p := pending{completion: c, answer: make(chan error, 1)}
	r.mu.Lock()
	r.queue = append(r.queue, p)
	if r.calls < maxCalls {
		r.calls++
		go r.flush(context.WithoutCancel(ctx))
	}
	r.mu.Unlock()
	select {
	case err := <-p.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush makes calls until nothing waits.
func (r *reporter) flush(ctx context.Context) {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.calls--
			r.mu.Unlock()
			return
		}
		n := min(len(r.queue), r.cfg.Batch)
		batch := r.queue[:n:n]
		r.queue = append([]pending(nil), r.queue[n:]...)
		r.mu.Unlock()

		callCtx, cancel := context.WithTimeout(ctx, max(r.cfg.Lease/3, time.Second))
		for i, err := range r.send(callCtx, batch) {
			batch[i].answer <- err
		}
		cancel()
	}
}

func (r *reporter) send(ctx context.Context, batch []pending) []error {
	if len(batch) == 1 {
		return []error{r.engine.CompleteJob(ctx, batch[0].completion)}
	}
	completions := make([]client.Completion, len(batch))
	for i, p := range batch {
		completions[i] = p.completion
	}
	errs := r.engine.CompleteJobs(ctx, completions)
	if len(errs) == len(batch) && !errors.Is(errs[0], client.ErrUnsupported) {
		return errs
	}
	r.single.Store(true)
	errs = make([]error, len(batch))
	for i, c := range completions {
		errs[i] = r.engine.CompleteJob(ctx, c)
	}
	return errs
}
