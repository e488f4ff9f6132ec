package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

const (
	// pageRows is how many rows a chunk looks at, chunkRows how many executions it
	// erases: each has some dozen events.
	pageRows  = 2000
	chunkRows = 200
)

// Retire erases what ended longer ago than the retention says, and what has come in
// since about executions that are purged. held fences it.
func (s *Store) Retire(ctx context.Context, held *lease.Held) (Counts, error) {
	erased := Counts{}
	var errs []error
	for _, part := range []func(context.Context, *lease.Held, Counts) error{
		s.retireExecutions, s.retireInstances, s.retireSagas, s.retireOrphans, s.eraseAgain,
	} {
		errs = append(errs, part(ctx, held, erased))
	}
	return erased, errors.Join(errs...)
}

// fenced runs fn in a transaction under the lease.
func (s *Store) fenced(ctx context.Context, held *lease.Held, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := s.betweenChunks(); err != nil {
		return err
	}
	return postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// Ids begin with the time at which they were made, so the oldest executions come
// first, and a page without one that was requested before the deadline is behind the
// last that can be due.
const (
	duePageSQL = `
		SELECT id, coalesce(finished_at < clock_timestamp() - $2::interval, false), requested_at < clock_timestamp() - $2::interval
		FROM executions WHERE id > $1 ORDER BY id LIMIT $3`
	lockDueSQL = `
		SELECT id FROM executions WHERE id = ANY($1) AND finished_at < clock_timestamp() - $2::interval FOR UPDATE SKIP LOCKED`
)

func (s *Store) retireExecutions(ctx context.Context, held *lease.Held, erased Counts) error {
	keep := s.cfg.Retention.Executions
	if keep == 0 {
		return nil
	}
	var cursor uuid.UUID
	for {
		due, last, more, err := s.duePage(ctx, cursor, keep)
		if err != nil {
			return fmt.Errorf("look for executions that are old enough: %w", err)
		}
		for chunk := range chunks(due, chunkRows) {
			err := s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, lockDueSQL, chunk, keep)
				if err != nil {
					return err
				}
				ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
				if err != nil {
					return err
				}
				counts, err := erase(ctx, tx, ids, nil)
				if err == nil {
					s.note(erased, counts)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("purge executions: %w", err)
			}
		}
		if !more {
			return nil
		}
		cursor = last
	}
}

func (s *Store) duePage(ctx context.Context, cursor uuid.UUID, keep time.Duration) (due []uuid.UUID, last uuid.UUID, more bool, err error) {
	rows, err := s.cfg.Pool.Query(ctx, duePageSQL, cursor, keep, pageRows)
	if err != nil {
		return nil, last, false, err
	}
	n, anyOld := 0, false
	var isDue, old bool
	_, err = pgx.ForEachRow(rows, []any{&last, &isDue, &old}, func() error {
		n++
		anyOld = anyOld || old
		if isDue {
			due = append(due, last)
		}
		return nil
	})
	return due, last, anyOld && n == pageRows, err
}

// chunks cuts a list into pieces of at most size.
func chunks(ids []uuid.UUID, size int) func(yield func([]uuid.UUID) bool) {
	return func(yield func([]uuid.UUID) bool) {
		for len(ids) > 0 {
			n := min(size, len(ids))
			if !yield(ids[:n]) {
				return
			}
			ids = ids[n:]
		}
	}
}

// A rule erases the rows of a read model for which it holds, a page of its keys at a
// time.
type rule struct {
	table, kind string
	// due holds for the rows t that are to go; $2 is how long they stay.
	due string
	// with erases what belongs to rows whose keys are in the table gone.
	with, withKind string
}

// walk applies a rule to a whole table.
func (s *Store) walk(ctx context.Context, held *lease.Held, r rule, keep time.Duration, erased Counts) error {
	with := `SELECT 0 AS n WHERE false`
	if r.with != "" {
		with = r.with
	}
	sql := fmt.Sprintf(`
		WITH page AS (SELECT id FROM %[1]s WHERE id > $1 ORDER BY id LIMIT %[2]d),
		due AS (SELECT t.id FROM %[1]s t JOIN page USING (id) WHERE %[3]s FOR UPDATE OF t SKIP LOCKED),
		gone AS (DELETE FROM %[1]s WHERE id IN (SELECT id FROM due) RETURNING id),
		rest AS (%[4]s)
		SELECT coalesce((SELECT max(id) FROM page), ''), (SELECT count(*) FROM page), (SELECT count(*) FROM gone), (SELECT count(*) FROM rest)`,
		r.table, pageRows, r.due, with)
	cursor := ""
	for {
		var seen int
		var counts Counts
		err := s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
			var gone, rest int64
			if err := tx.QueryRow(ctx, sql, cursor, keep).Scan(&cursor, &seen, &gone, &rest); err != nil {
				return err
			}
			counts = Counts{r.kind: gone}
			if r.withKind != "" {
				counts[r.withKind] += rest
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("purge %s: %w", r.table, err)
		}
		s.note(erased, counts)
		if seen < pageRows {
			return nil
		}
	}
}

func (s *Store) retireInstances(ctx context.Context, held *lease.Held, erased Counts) error {
	if s.cfg.Retention.Instances == 0 {
		return nil
	}
	return s.walk(ctx, held, rule{
		table: "workflow_instances", kind: Instances,
		due: `t.terminal_status IS NOT NULL AND t.status = t.terminal_status
			AND coalesce(t."end", t.last_event_time, t.updated_at) < clock_timestamp() - $2::interval`,
		with:     `DELETE FROM task_instances WHERE instance_id IN (SELECT id FROM due) RETURNING 1`,
		withKind: Tasks,
	}, s.cfg.Retention.Instances, erased)
}

func (s *Store) retireSagas(ctx context.Context, held *lease.Held, erased Counts) error {
	if s.cfg.Retention.Instances == 0 {
		return nil
	}
	return s.walk(ctx, held, rule{
		table: "saga_views", kind: Sagas, due: `t.finished_time < clock_timestamp() - $2::interval`,
	}, s.cfg.Retention.Instances, erased)
}

// retireOrphans erases views that have no execution: of pods that others have made,
// and of executions that the database has lost in a restore.
func (s *Store) retireOrphans(ctx context.Context, held *lease.Held, erased Counts) error {
	keep := s.cfg.Retention.Executions
	if keep == 0 {
		return nil
	}
	const orphan = ` AND NOT EXISTS (SELECT FROM executions e WHERE e.id::text = `
	return errors.Join(
		s.walk(ctx, held, rule{
			table: "execution_views", kind: Views, due: `t.finished_at < clock_timestamp() - $2::interval` + orphan + `t.id)`,
		}, keep, erased),
		s.walk(ctx, held, rule{
			table: "pod_views", kind: Pods,
			due: `coalesce(t.deleted_time, t.finished_time) < clock_timestamp() - $2::interval` + orphan + `t.execution_id)`,
		}, keep, erased))
}
