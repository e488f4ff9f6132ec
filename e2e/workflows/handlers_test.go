package workflows

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/sdk/go/worker"
)

// handlers does the jobs of all example workflows.
func handlers(prefix string) *worker.Registry {
	registry := worker.NewRegistry()
	do := func(name string, h worker.Handler) { registry.Register(prefix+"-"+name, h) }
	sets := func(name string, vars map[string]any) {
		do(name, func(context.Context, worker.JobContext) (worker.Result, error) {
			return worker.Result{VariablesToSet: vars}, nil
		})
	}
	for _, name := range []string{
		"reserve-stock", "charge-card", "ship-order", "pick-goods", "print-label", "hand-over", "collect-documents", "accept", "decline",
		"prepare-review", "publish", "order-goods", "open-case", "close-case", "send-offer", "remind", "make-up-for-it", "finish-chain",
		"check-application", "score-credit", "screen-for-fraud", "escalate", "approve", "remind-senior", "prepare-payment", "transfer", "tell-customer",
	} {
		sets(name, map[string]any{name: "done"})
	}
	sets("assess", map[string]any{"verdict": "accepted"})
	sets("assess-badly", map[string]any{"verdict": "unclear"})
	sets("introduce", map[string]any{"givenName": "Ada"})
	sets("begin-chain", map[string]any{"customer": "C-7", "amount": 100})
	do("dawdle", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
		// Until the timer has taken the job away; a result after that is dropped.
		select {
		case <-ctx.Done():
			return worker.Result{}, context.Cause(ctx)
		case <-time.After(5 * time.Minute):
			return worker.Result{VariablesToSet: map[string]any{"dawdle": "done"}}, nil
		}
	})
	do("stumble", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
		if job.RetriesRemaining == 2 {
			return worker.Result{}, errors.New("stumbled")
		}
		return worker.Result{VariablesToSet: map[string]any{"stumble": "done", "attempt": job.Attempt}}, nil
	})
	do("always-fail", func(context.Context, worker.JobContext) (worker.Result, error) {
		return worker.Result{}, errors.New("it cannot be done")
	})
	return registry
}
