package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/internal/together"
)

// reporter tells the engine how jobs went, and repeats itself until that is certain or the
// lease is over. Completions that are ready at the same time share a call.
type reporter struct {
	engine client.JobClient
	cfg    Config
	batch  together.Caller[client.Completion, error]
	// single: completions are not put together, because of the configuration or because
	// the engine does not know how.
	single atomic.Bool
}

func newReporter(engine client.JobClient, cfg Config) *reporter {
	r := &reporter{engine: engine, cfg: cfg}
	r.single.Store(cfg.Batch == 1)
	r.batch = together.Caller[client.Completion, error]{Max: cfg.Batch, Call: r.completeAll}
	return r
}

func (r *reporter) complete(ctx context.Context, h *hold, c client.Completion) error {
	return r.persist(ctx, h, func(ctx context.Context) error {
		if r.single.Load() {
			return r.engine.CompleteJob(ctx, c)
		}
		answer, err := r.batch.Do(ctx, c)
		return errors.Join(err, answer)
	})
}

func (r *reporter) fail(ctx context.Context, h *hold, f client.Failure) error {
	return r.persist(ctx, h, func(ctx context.Context) error { return r.engine.FailJob(ctx, f) })
}

// callLimit is how long the engine may take to answer a report.
func (r *reporter) callLimit() time.Duration { return max(r.cfg.Lease/3, time.Second) }

// persist repeats a call, at least once, for as long as the lease lasts, which heartbeats
// extend meanwhile. It may be repeated: the engine takes a report that it has taken
// already for what it is.
func (r *reporter) persist(ctx context.Context, h *hold, call func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		callCtx, cancel := context.WithTimeout(ctx, r.callLimit())
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

func (r *reporter) completeAll(ctx context.Context, completions []client.Completion) []error {
	ctx, cancel := context.WithTimeout(ctx, r.callLimit())
	defer cancel()
	if len(completions) > 1 {
		errs := r.engine.CompleteJobs(ctx, completions)
		if len(errs) == len(completions) && !errors.Is(errs[0], client.ErrUnsupported) {
			return errs
		}
		r.single.Store(true)
	}
	errs := make([]error, len(completions))
	for i, c := range completions {
		errs[i] = r.engine.CompleteJob(ctx, c)
	}
	return errs
}
