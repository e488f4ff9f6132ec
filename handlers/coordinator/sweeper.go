package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Due is what the sweeper needs of the executions; *store.Store implements it.
type Due interface {
	Sweep(ctx context.Context, max int) (int, error)
}

// Sweeper applies limits and leases that have run out. Any number may run.
type Sweeper struct {
	due      Due
	interval time.Duration
	log      *slog.Logger
	swept    prometheus.Counter
}

// sweepBatch is how many executions one transaction changes at most.
const sweepBatch = 500

// NewSweeper makes a sweeper that looks every interval; zero means 250 ms.
func NewSweeper(due Due, interval time.Duration, log *slog.Logger, reg prometheus.Registerer) *Sweeper {
	if interval == 0 {
		interval = 250 * time.Millisecond
	}
	s := &Sweeper{due: due, interval: interval, log: log, swept: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_executions_swept_total", Help: "Executions that a time limit or the end of a lease moved on.",
	})}
	reg.MustRegister(s.swept)
	return s
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		n, err := s.due.Sweep(ctx, sweepBatch)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "sweep did not succeed, it will be repeated", "error", err)
		}
		s.swept.Add(float64(n))
		if n == sweepBatch {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
