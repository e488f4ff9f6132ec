package engine

import (
	"context"
	"log/slog"
)

// The aggregates that events belong to, as the outbox names them.
const (
	AggregateWorkflow = "workflow"
	AggregateSaga     = "saga"
)

// Engine runs workflow instances. It is safe for concurrent use.
type Engine struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	queue   *queue
	clock   clock
	watch   watch
}

// New returns an engine. It takes requests while Run does.
func New(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{config: cfg, log: cfg.Log}
	e.metrics = newMetrics(cfg.Metrics, e)
	e.queue = &queue{
		// A transaction outlives the end of Run: it has limits of its own.
		execute: func(batch []*request) { e.execute(context.Background(), batch) },
		full:    e.metrics.refused.Inc,
		room:    cfg.Queue, size: cfg.TransactionSize, most: cfg.Transactions, ended: make(chan struct{}),
	}
	return e
}

// Run takes requests until ctx ends; it returns nil then, after all that was taken has
// its answer. What waits is refused with ErrStopped. It runs once.
func (e *Engine) Run(ctx context.Context) error {
	e.queue.serve(ctx)
	return nil
}
