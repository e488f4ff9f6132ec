package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Cancelled returns those of a worker's attempts that were asked to stop. It only
// reads, so it waits for nobody and is cheap enough to be asked every second.
func (s *Store) Cancelled(ctx context.Context, worker string, refs []Ref) ([]Ref, error) {
	ids, attempts := split(refs)
	rows, err := s.pool.Query(ctx, `
		SELECT e.id::text, e.attempt
		FROM unnest($2::text[]::uuid[], $3::integer[]) AS h(id, attempt) JOIN executions e USING (id, attempt)
		WHERE e.state = 'RUNNING' AND e.worker = $1 AND e.cancel IS NOT NULL`, worker, ids, attempts)
	if err != nil {
		return nil, fmt.Errorf("ask for cancels: %w", err)
	}
	cancelled, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
	if err != nil {
		return nil, fmt.Errorf("ask for cancels: %w", err)
	}
	return cancelled, nil
}
