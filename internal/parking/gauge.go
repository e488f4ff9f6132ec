package parking

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// gaugeInterval is how often parked events are counted.
const gaugeInterval = 15 * time.Second

// Gauge counts lanes and what waits in them from time to time. Every process that
// runs one shows the same figures.
type Gauge struct {
	pool          *pgxpool.Pool
	log           *slog.Logger
	lanes, events *prometheus.GaugeVec
	oldest        *prometheus.GaugeVec
}

// NewGauge returns a gauge that counts while it runs.
func NewGauge(pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *Gauge {
	g := &Gauge{
		pool: pool, log: log,
		lanes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_parked_lanes", Help: "Keys that wait behind a dead letter, as of the last count.",
		}, []string{"consumer", "state"}),
		events: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_parked_events", Help: "Events that wait behind a dead letter with their key, as of the last count.",
		}, []string{"consumer"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_parked_oldest_age_seconds", Help: "How long the event that was parked first has waited, as of the last count.",
		}, []string{"consumer"}),
	}
	reg.MustRegister(g.lanes, g.events, g.oldest)
	return g
}

// Run counts until ctx ends.
func (g *Gauge) Run(ctx context.Context) error {
	ticker := time.NewTicker(gaugeInterval)
	defer ticker.Stop()
	for {
		if err := g.Count(ctx); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "parked events were not counted, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

const countLanes = `
SELECT l.consumer, CASE WHEN ` + blocked + ` THEN 'BLOCKED' WHEN l.tries > 0 THEN 'STALLED' ELSE 'DRAINING' END AS state,
  count(*), coalesce(sum(e.n), 0)::bigint, coalesce(extract(epoch FROM clock_timestamp() - min(e.oldest)), 0)::float8
FROM parked_lanes l, LATERAL (SELECT count(*) AS n, min(parked_at) AS oldest FROM parked_events WHERE lane = l.id) e
GROUP BY l.consumer, state`

// Count counts once. Consumers without a lane are not shown.
func (g *Gauge) Count(ctx context.Context) error {
	type count struct {
		Consumer      string
		State         State
		Lanes, Events int64
		Oldest        float64
	}
	rows, err := g.pool.Query(ctx, countLanes)
	var counts []count
	if err == nil {
		counts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[count])
	}
	if err != nil {
		return fmt.Errorf("count parked events: %w", err)
	}
	g.lanes.Reset()
	g.events.Reset()
	g.oldest.Reset()
	age := make(map[string]float64)
	for _, c := range counts {
		g.lanes.WithLabelValues(c.Consumer, string(c.State)).Set(float64(c.Lanes))
		g.events.WithLabelValues(c.Consumer).Add(float64(c.Events))
		age[c.Consumer] = max(age[c.Consumer], c.Oldest)
	}
	for consumer, seconds := range age {
		g.oldest.WithLabelValues(consumer).Set(seconds)
	}
	return nil
}
