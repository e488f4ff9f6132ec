package deadletter

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// gaugeInterval is how often letters are counted. The count reads an index only,
// but all of it.
const gaugeInterval = 15 * time.Second

// Gauge counts the letters of each status from time to time. Every process that
// runs one shows the same figures.
type Gauge struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	letters *prometheus.GaugeVec
}

// NewGauge returns a gauge that counts while it runs.
func NewGauge(pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *Gauge {
	g := &Gauge{pool: pool, log: log, letters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_dead_letters", Help: "Dead letters by status, as of the last count.",
	}, []string{"status"})}
	reg.MustRegister(g.letters)
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
	return nil
}
