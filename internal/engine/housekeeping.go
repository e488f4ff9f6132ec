package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

const (
	// housekeepingLease is held by the one process that cleans up.
	housekeepingLease = "workflow-housekeeping"
	// signalSweep is how often signals are looked after, retentionSweep how often instances
	// are looked for whose time is over, and retentionBatch how many are looked at at once.
	signalSweep    = 5 * time.Second
	retentionSweep = 10 * time.Minute
	retentionBatch = 500
)

// RunHousekeeping looks after signals that are kept, counts the instances that need
// attention and those whose follower is owed, and removes those that ended longer ago than
// Config.Retention, until ctx ends. Of the processes that run it one does it at a time. The
// engine of its process must run.
func (e *Engine) RunHousekeeping(ctx context.Context, leases Leases) error {
	return leases.Run(ctx, housekeepingLease, func(ctx context.Context, _ *lease.Held) error {
		ticker := time.NewTicker(signalSweep)
		defer ticker.Stop()
		defer e.metrics.attention.Reset()
		defer e.metrics.owed.Reset()
		var retained time.Time
		for {
			if err := e.countAttention(ctx); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "instances that need attention cannot be counted", "error", err)
			}
			if err := e.countOwed(ctx); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "workflows that are to follow others cannot be counted", "error", err)
			}
			if err := e.sweepSignals(ctx); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "signals cannot be looked after", "error", err)
			}
			if e.config.Retention > 0 && time.Since(retained) > retentionSweep {
				retained = time.Now()
				if _, err := e.RemoveEnded(ctx); err != nil && ctx.Err() == nil {
					e.log.WarnContext(ctx, "instances cannot be removed after their retention", "error", err)
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	})
}

// countAttention counts the instances that wait for the decision of a person.
func (e *Engine) countAttention(ctx context.Context) error {
	counts := map[string]int{KindSaga: 0, KindWorkflow: 0}
	rows, err := e.config.Pool.Query(ctx, `SELECT kind, count(*) FROM wf_instances WHERE trouble = 'NEEDS_ATTENTION' GROUP BY kind`)
	if err != nil {
		return err
	}
	var kind string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error { counts[kind] = n; return nil }); err != nil {
		return err
	}
	for kind, n := range counts {
		e.metrics.attention.WithLabelValues(kind).Set(float64(n))
	}
	return nil
}

// countOwed counts the instances that have completed and whose follower could not be
// started yet (chain). Each has one timer of that kind.
func (e *Engine) countOwed(ctx context.Context) error {
	var n int
	err := e.config.Pool.QueryRow(ctx, `SELECT count(*) FROM wf_timers WHERE kind = 'next'`).Scan(&n)
	if err == nil {
		e.metrics.owed.WithLabelValues().Set(float64(n))
	}
	return err
}

// RemoveEnded removes the instances that ended longer ago than Config.Retention, with
// all that belongs to them, and returns how many. It does so in small transactions; what
// it has not come to when it is interrupted is removed the next time.
func (e *Engine) RemoveEnded(ctx context.Context) (removed int, err error) {
	var at time.Time
	var last uuid.UUID
	for {
		over, seen, err := e.pageOfEnded(ctx, &at, &last)
		if err != nil {
			return removed, err
		}
		n, err := e.remove(ctx, over)
		removed += n
		if err != nil || seen < retentionBatch {
			return removed, err
		}
	}
}

// pageOfEnded looks at the next instances in the order of their start. There is no index
// on the time of the end: it would cost every instance that ends.
func (e *Engine) pageOfEnded(ctx context.Context, at *time.Time, last *uuid.UUID) (over []uuid.UUID, seen int, err error) {
	rows, err := e.config.Pool.Query(ctx, `
		SELECT id, started_at, coalesce(ended_at < clock_timestamp() - $3::interval, false)
		FROM wf_instances WHERE (started_at, id) > ($1, $2) AND started_at < clock_timestamp() - $3::interval
		ORDER BY started_at, id LIMIT $4`, *at, *last, e.config.Retention, retentionBatch)
	if err != nil {
		return nil, 0, fmt.Errorf("look for instances whose retention is over: %w", err)
	}
	var isOver bool
	_, err = pgx.ForEachRow(rows, []any{last, at, &isOver}, func() error {
		seen++
		if isOver {
			over = append(over, *last)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for instances whose retention is over: %w", err)
	}
	return over, seen, nil
}

// remove removes instances with all that belongs to them. One that goes on after all (a
// failed one can be retried) is left.
func (e *Engine) remove(ctx context.Context, over []uuid.UUID) (removed int, err error) {
	if len(over) == 0 {
		return 0, nil
	}
	err = postgres.InTx(ctx, e.config.Pool, func(ctx context.Context, tx pgx.Tx) error {
		gone, err := Erase(ctx, tx, over, e.config.Retention)
		removed = len(gone)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("remove instances whose retention is over: %w", err)
	}
	e.metrics.purged.Add(float64(removed))
	return removed, nil
}
