package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
)

const (
	// freshFor is for how long executions that were purged are looked after each time;
	// consumers that were behind have caught up by then.
	freshFor = 24 * time.Hour
	// againEvery is how often the others are.
	againEvery = 24 * time.Hour
	// againRows is how many purged executions are looked for at once.
	againRows = 1000
)

// eraseAgain erases what has come in about executions that are purged, and forgets
// those of which nothing can come in any more.
func (s *Store) eraseAgain(ctx context.Context, held *lease.Held, erased Counts) error {
	within := freshFor
	all := time.Since(s.allErasedAgain) >= againEvery
	if all {
		within = 100 * 365 * 24 * time.Hour
	}
	type place struct {
		ID uuid.UUID
		At time.Time
	}
	var cursor place
	for {
		seen := 0
		var counts Counts
		err := s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `
				SELECT id, purged_at FROM purged_executions
				WHERE (purged_at, id) > ($1, $2) AND purged_at > clock_timestamp() - $3::interval
				ORDER BY purged_at, id LIMIT $4`, cursor.At, cursor.ID, within, againRows)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
			if err != nil {
				return err
			}
			if seen = len(found); seen == 0 {
				return nil
			}
			ids := make([]uuid.UUID, seen)
			for i, f := range found {
				ids[i] = f.ID
			}
			counts, err = run(ctx, tx, traces(), ids)
			cursor = found[seen-1]
			return err
		})
		if err != nil {
			return fmt.Errorf("erase what has come in about purged executions: %w", err)
		}
		s.note(erased, counts)
		if seen < againRows {
			break
		}
	}
	if all {
		s.allErasedAgain = time.Now()
	}
	return s.forget(ctx, held)
}

// forget drops what is known of executions that no topic can tell of any more.
func (s *Store) forget(ctx context.Context, held *lease.Held) error {
	if s.cfg.Retention.Remember == 0 {
		return nil
	}
	for {
		var n int64
		err := s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `
				DELETE FROM purged_executions WHERE id IN (
					SELECT id FROM purged_executions p WHERE purged_at < clock_timestamp() - $1::interval
						AND NOT EXISTS (SELECT FROM purges WHERE purges.id = p.purge AND state IN ('RUNNING', 'WAITING'))
					ORDER BY purged_at LIMIT $2)`, s.cfg.Retention.Remember, pageRows)
			n = tag.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("forget purged executions: %w", err)
		}
		if n < pageRows {
			return nil
		}
	}
}
