package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/trigger"
)

const (
	maxBatchDefault        = 500
	maxRequestBytesDefault = 1 << 20
	// maxBatchBytes is about how much one transaction brings in.
	maxBatchBytes = 4 << 20
)

// Executions stores executions; *store.Store.
type Executions interface {
	SubmitGuarded(ctx context.Context, requests []store.Identified, g store.Guard) error
}

// Workflows starts instances; *engine.Engine.
type Workflows interface {
	StartInOrder(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error)
}

// Config is what an Ingest works with.
type Config struct {
	// Executions is required.
	Executions Executions
	// Workflows is nil where this process runs no engine; targets that are workflows wait
	// then for a process that does.
	Workflows Workflows
	// MaxBatch is how many messages share a transaction at most. Default: 500.
	MaxBatch int
	// MaxRequestBytes bounds a message, and what it is mapped to. Default: 1 MiB.
	MaxRequestBytes int
	// Log and Registerer default to none.
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Ingest makes the targets of messages. It is safe for concurrent use.
type Ingest struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
}

var _ Creator = (*Ingest)(nil)

// New returns an Ingest.
func New(cfg Config) *Ingest {
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = maxBatchDefault
	}
	if cfg.MaxRequestBytes <= 0 {
		cfg.MaxRequestBytes = maxRequestBytesDefault
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Ingest{cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registerer)}
}

// Create implements Creator.
func (g *Ingest) Create(ctx context.Context, t *trigger.Compiled, messages []Message) ([]Outcome, error) {
	outcomes := make([]Outcome, 0, len(messages))
	for len(outcomes) < len(messages) {
		began := time.Now()
		done, err := g.part(ctx, t, messages[len(outcomes):])
		g.metrics.note(t, messages[len(outcomes):], done, err, time.Since(began))
		if blocked, ok := errors.AsType[*BlockedError](err); ok {
			blocked.Index += len(outcomes)
		}
		outcomes = append(outcomes, done...)
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// part makes the targets of as many messages as one transaction takes, at least one.
func (g *Ingest) part(ctx context.Context, t *trigger.Compiled, messages []Message) ([]Outcome, error) {
	items, err := g.prepare(ctx, t, messages)
	if err != nil {
		err = mappingFault(ctx, len(items), err)
	}
	if len(items) == 0 {
		return nil, err
	}
	create := g.executions
	if t.Kind() == trigger.KindInstance {
		create = g.workflows
	}
	outcomes, createErr := create(ctx, t, items)
	if createErr != nil {
		return outcomes, createErr
	}
	return outcomes, err
}

// mappingFault is a mapping that could not be done, by no fault of the message.
func mappingFault(ctx context.Context, index int, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	return &BlockedError{Index: index, Err: err, Cause: trigger.Cause{
		Code: "mapping_unfinished", Message: "the mapping of the message did not come to an end: " + err.Error(),
		Hint: "It is tried again. If it stays so, make the expressions of the target cheaper.",
	}}
}
