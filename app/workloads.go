package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/kubernetes/workloads"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/sagas/execution"
)

// sweepWorkloads is how often it is looked for workloads that have arrived after their end.
const sweepWorkloads = time.Minute

// newWorkloads makes the workloads of execution sagas pods, for the constructors of sagas
// that ask for them; where nobody does, nothing is made.
func newWorkloads(cfg configs.Config, c *connections, l *loops, leases *lease.Manager, log *slog.Logger) (execution.Workloads, error) {
	if c.cluster == nil {
		return nil, errors.New("a saga asks for workloads, and this process has no cluster: add kubernetes to worker.executors, or give the saga workloads of your own")
	}
	settings := cfg.Kubernetes.PodSettings()
	settings.Installation = c.cluster.installation
	w, err := workloads.New(c.cluster.client, settings, workloads.Config{Patience: cfg.Kubernetes.PodPatience()})
	if err != nil {
		return nil, err
	}
	l.run("keeper of workloads", func(ctx context.Context) error {
		return leases.Run(ctx, "kubernetes/workloads/"+c.cluster.installation, func(ctx context.Context, _ *lease.Held) error {
			sweepEvery(ctx, w, log)
			return nil
		})
	})
	return w, nil
}

func sweepEvery(ctx context.Context, w *workloads.Workloads, log *slog.Logger) {
	ticker := time.NewTicker(sweepWorkloads)
	defer ticker.Stop()
	for {
		if err := w.Sweep(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "workloads that nobody wants could not be looked for, it will be tried again", "error", err, "next_try_in", sweepWorkloads)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
