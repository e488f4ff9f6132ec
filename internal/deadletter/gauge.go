package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// gaugeInterval is how often letters are counted. The count reads an index only,
// but all of it.
const gaugeInterval = 15 * time.Second

// Gauge counts the letters of each status, and redrives of many, from time to time. Every process that
// runs one shows the same figures.
type Gauge struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	letters *prometheus.GaugeVec
	jobs    *prometheus.GaugeVec
}

// NewGauge returns a gauge that counts while it runs.
func NewGauge(pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *Gauge {
	g := &Gauge{pool: pool, log: log, letters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_dead_letters", Help: "Dead letters by status, as of the last count.",
	}, []string{"status"}), jobs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_dead_letter_redrives", Help: "Redrives of many dead letters that are not over, by state, as of the last count.",
	}, []string{"state"})}
	reg.MustRegister(g.letters, g.jobs)
	return g
}

// Run counts until ctx ends.
func (g *Gauge) Run(ctx context.Context) error {
	ticker := time.NewTicker(gaugeInterval)
	defer ticker.Stop()
	for {
		if err := g.Count(ctx); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "dead letters were not counted, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Count counts once.
func (g *Gauge) Count(ctx context.Context) error {
	counts, err := stats(ctx, g.pool)
	if err != nil {
		return err
	}
	for status, n := range counts {
		g.letters.WithLabelValues(string(status)).Set(float64(n))
	}
	return g.countJobs(ctx)
}

func (g *Gauge) countJobs(ctx context.Context) error {
	counts := map[JobState]int64{JobRunning: 0, JobPaused: 0, JobStopped: 0}
	rows, err := g.pool.Query(ctx, `SELECT state, count(*) FROM dead_letter_redrives WHERE state IN ('RUNNING', 'PAUSED', 'STOPPED') GROUP BY state`)
	if err != nil {
		return fmt.Errorf("count redrives: %w", err)
	}
	var state JobState
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { counts[state] = n; return nil }); err != nil {
		return fmt.Errorf("count redrives: %w", err)
	}
	for state, n := range counts {
		g.jobs.WithLabelValues(string(state)).Set(float64(n))
	}
	return nil
}
