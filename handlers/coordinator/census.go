package coordinator

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

// censusInterval is how often the queue is counted.
const censusInterval = 15 * time.Second

// Counts is what the census needs of the executions; *store.Store implements it.
type Counts interface {
	QueueStatus(ctx context.Context, f store.QueueFilter) (store.QueueStatus, error)
	ForgetWorkers(ctx context.Context) error
}

// Census counts what waits, from time to time, and clears away the entries of workers
// that have been gone for long. Every process that runs one shows the same figures.
type Census struct {
	counts                                           Counts
	log                                              *slog.Logger
	queued, byPriority, held, oldest, workers, holds *prometheus.GaugeVec
}

// NewCensus makes a census; Run starts it.
func NewCensus(counts Counts, log *slog.Logger, reg prometheus.Registerer) *Census {
	c := &Census{
		counts: counts, log: log,
		queued: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_queued_executions", Help: "Executions that wait for admission, by resource class, as of the last count.",
		}, []string{"resource_class"}),
		byPriority: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_queued_executions_by_priority",
			Help: "Executions that wait for admission, by resource class and priority, as of the last count; 10000 stands for that many or more.",
		}, []string{"resource_class", "priority"}),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_held_executions", Help: "Executions that are on hold, of those that wait, by resource class, as of the last count.",
		}, []string{"resource_class"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_queued_oldest_age_seconds",
			Help: "How long the execution has waited that has been ready for longest, by resource class, as of the last count.",
		}, []string{"resource_class"}),
		workers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_live_workers", Help: "Workers that are alive, by resource class, as of the last count.",
		}, []string{"resource_class"}),
		holds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_admission_holds", Help: "Holds that keep executions from being admitted, by scope, as of the last count.",
		}, []string{"scope"}),
	}
	for _, gauge := range c.gauges() {
		reg.MustRegister(gauge)
	}
	return c
}

func (c *Census) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{c.queued, c.byPriority, c.held, c.oldest, c.workers, c.holds}
}

// Run counts until ctx ends.
func (c *Census) Run(ctx context.Context) error {
	ticker := time.NewTicker(censusInterval)
	defer ticker.Stop()
	for {
		if err := c.Count(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "the queue was not counted, it will be repeated", "error", err)
		}
		if err := c.counts.ForgetWorkers(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "entries of lost workers were not removed, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Count counts once. Classes in which nothing waits or runs, and which have no worker,
// are not shown.
func (c *Census) Count(ctx context.Context) error {
	status, err := c.counts.QueueStatus(ctx, store.QueueFilter{})
	if err != nil {
		return err
	}
	for _, gauge := range c.gauges() {
		gauge.Reset()
	}
	for _, class := range status.Classes {
		c.queued.WithLabelValues(class.Class).Set(float64(class.Queued))
		for i, n := range class.ByPriority {
			c.byPriority.WithLabelValues(class.Class, strconv.Itoa(i+topics.MinPriority)).Set(float64(n))
		}
		c.held.WithLabelValues(class.Class).Set(float64(class.Held))
		c.oldest.WithLabelValues(class.Class).Set(max(class.Waited.Seconds(), 0))
		c.workers.WithLabelValues(class.Class).Set(float64(class.Workers))
	}
	for _, h := range status.Holds {
		c.holds.WithLabelValues(string(h.Scope)).Inc()
	}
	return nil
}
