package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
)

const (
	// LeaseName is the lease under which one process sweeps.
	LeaseName = "results"
	// SweepEvery is how often it does.
	SweepEvery = 10 * time.Minute
	// StrayAge is how old a file without a row must be to be removed. Its row is
	// written right after it, so minutes would do where clocks agree.
	StrayAge = time.Hour

	sweepBatch = 1000
)

// Swept is what a sweep has removed.
type Swept struct {
	// Values are those that nothing refers to any more, or whose time is over.
	Values int
	// Strays are those without a row.
	Strays int
}

// Sweep removes the values of executions that ended longer ago than keep, those that
// nothing refers to, and strays. Any number may sweep at the same time.
func (s *Store) Sweep(ctx context.Context, keep time.Duration) (Swept, error) {
	var swept Swept
	for {
		n, err := s.sweepRows(ctx, keep)
		swept.Values += n
		if err != nil {
			return swept, fmt.Errorf("sweep results: %w", err)
		}
		if n < sweepBatch {
			break
		}
	}
	var errs []error
	for _, b := range s.blobs {
		n, err := s.sweepStrays(ctx, b)
		swept.Strays += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return swept, fmt.Errorf("sweep results: %w", err)
	}
	return swept, nil
}

// A value is wanted while its attempt runs and as long as its execution refers to
// it. The value that a row refers to was there before the reference, and one that is
// put later belongs to another id: what is seen to be unwanted stays so.
const sweepSQL = `
	WITH gone AS (
		SELECT r.id FROM execution_results r LEFT JOIN executions e ON e.id = r.execution_id
		WHERE e.id IS NULL
		   OR e.finished_at < clock_timestamp() - $1::interval
		   OR ((e.state = 'RUNNING' AND e.attempt = r.attempt) IS NOT TRUE
		       AND (e.result->'value_ref'->>'id' = r.id::text) IS NOT TRUE)
		LIMIT $2)
	DELETE FROM execution_results WHERE id IN (SELECT id FROM gone) RETURNING id::text, kept_in`

func (s *Store) sweepRows(ctx context.Context, keep time.Duration) (int, error) {
	rows, err := s.pool.Query(ctx, sweepSQL, keep, sweepBatch)
	if err != nil {
		return 0, err
	}
	gone := make(map[string][]string)
	var id, keptIn string
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &keptIn}, func() error {
		gone[keptIn] = append(gone[keptIn], id)
		n++
		return nil
	})
	if err != nil {
		return 0, err
	}
	var errs []error
	for name, ids := range gone {
		if b, ok := s.blobs[name]; ok { // elsewhere it is a stray of those who have it
			errs = append(errs, b.Remove(ctx, ids))
		}
	}
	return n, errors.Join(errs...)
}

func (s *Store) sweepStrays(ctx context.Context, b Blobs) (int, error) {
	old, err := b.Old(ctx, time.Now().Add(-StrayAge))
	if err != nil || len(old) == 0 {
		return 0, err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT o.id FROM unnest($1::text[]) AS o(id)
		WHERE NOT EXISTS (SELECT FROM execution_results r WHERE r.id = o.id::uuid AND r.kept_in = $2)`, old, b.Name())
	if err != nil {
		return 0, err
	}
	strays, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	return len(strays), b.Remove(ctx, strays)
}

// Progress is what else executions leave behind; *store.Store implements it.
type Progress interface {
	PurgeProgress(ctx context.Context, keep time.Duration, max int) (int, error)
}

// KeeperConfig says how long what is kept.
type KeeperConfig struct {
	// Results is how long values are kept after the end of their executions.
	Results time.Duration
	// Progress is how long the progress and the checkpoint are. Defaults to a day.
	Progress time.Duration
}

// Keeper sweeps regularly.
type Keeper struct {
	cfg      KeeperConfig
	store    *Store
	progress Progress
	log      *slog.Logger
}

// NewKeeper returns a keeper over a store.
func NewKeeper(st *Store, progress Progress, cfg KeeperConfig, log *slog.Logger) *Keeper {
	if cfg.Progress == 0 {
		cfg.Progress = 24 * time.Hour
	}
	return &Keeper{cfg: cfg, store: st, progress: progress, log: log}
}

// Run sweeps while it holds the lease, at once and then every SweepEvery. It returns
// nil when ctx ends.
func (k *Keeper) Run(ctx context.Context, leases *lease.Manager) error {
	return leases.Run(ctx, LeaseName, func(ctx context.Context, _ *lease.Held) error {
		ticker := time.NewTicker(SweepEvery)
		defer ticker.Stop()
		for {
			k.sweep(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	})
}

func (k *Keeper) sweep(ctx context.Context) {
	swept, err := k.store.Sweep(ctx, k.cfg.Results)
	purged := 0
	for err == nil {
		var n int
		if n, err = k.progress.PurgeProgress(ctx, k.cfg.Progress, sweepBatch); n < sweepBatch {
			purged += n
			break
		}
		purged += n
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.log.WarnContext(ctx, "results were not all swept, it will be repeated", "error", err, "in", SweepEvery)
	case swept.Values+swept.Strays+purged > 0:
		k.log.InfoContext(ctx, "results and progress of ended executions removed",
			"results", swept.Values, "strays", swept.Strays, "progress", purged)
	}
}
