package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
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
	lanes   []*lane
	turn    atomic.Uint32
	clock   clock
	watch   watch

	// gate keeps requests from being added to a lane that has stopped.
	gate sync.RWMutex
	open bool
}

// New returns an engine. It takes requests while Run does.
func New(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{config: cfg, log: cfg.Log, open: true}
	for range cfg.Lanes {
		e.lanes = append(e.lanes, &lane{engine: e, queue: make(chan *request, cfg.Queue)})
	}
	e.metrics = newMetrics(cfg.Metrics, e)
	return e
}

// Run takes requests until ctx ends; it returns nil then, after all that was taken has
// its answer. What waits is refused with ErrStopped. It runs once.
func (e *Engine) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		e.gate.Lock()
		e.open = false
		e.gate.Unlock()
	})
	defer stop()
	var lanes sync.WaitGroup
	for _, l := range e.lanes {
		lanes.Go(func() { l.run(ctx) })
	}
	lanes.Wait()
	e.gate.Lock()
	defer e.gate.Unlock()
	e.open = false
	for _, l := range e.lanes {
		l.refuse()
	}
	return nil
}
