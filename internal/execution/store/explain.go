package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
)

// The parts of the situation are subqueries of one statement, so all are as of
// one moment. Those that are about waiting look no further than they must.
const situationSQL = `
	WITH e AS (SELECT * FROM executions WHERE id = $1::text::uuid),
	live AS (
		SELECT w.slots, w.executors FROM workers w, e
		WHERE w.resource_class = e.resource_class AND w.expires_at > clock_timestamp()),
	earlier AS (
		SELECT k.id, k.state, k.slots, k.concurrency_seq FROM executions k, e
		WHERE e.state = 'QUEUED' AND k.tenant = e.tenant AND k.concurrency_key = e.concurrency_key
		  AND k.concurrency_seq < e.concurrency_seq AND k.state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING')
		ORDER BY k.concurrency_seq LIMIT $2),
	ahead AS (
		SELECT q.id, q.state, q.slots, q.rank FROM e, admission_lanes l, executions q
		WHERE e.state = 'QUEUED' AND l.resource_class = e.resource_class AND q.lane = l.id AND q.state = 'QUEUED'
		  AND q.waits = 0 AND (q.rank, q.id) < (e.rank, e.id)
		  AND (q.concurrency_key IS NULL OR NOT EXISTS (
			SELECT FROM executions head
			WHERE head.tenant = q.tenant AND head.concurrency_key = q.concurrency_key
			  AND head.concurrency_seq < q.concurrency_seq
			  AND head.state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING')))
		ORDER BY q.rank, q.id LIMIT $2)
	SELECT (SELECT count(*) FROM live), (SELECT coalesce(sum(slots), 0) FROM live), (SELECT coalesce(max(slots), 0) FROM live),
		(SELECT coalesce(array_agg(DISTINCT name ORDER BY name), '{}') FROM live, unnest(executors) AS name),
		(SELECT coalesce(sum(u.slots), 0) FROM executions u, e
		 WHERE u.resource_class = e.resource_class AND u.state IN ('SCHEDULED', 'RUNNING')),
		(SELECT count(*) FROM earlier),
		coalesce((SELECT id::text FROM earlier ORDER BY concurrency_seq LIMIT 1), ''),
		coalesce((SELECT state FROM earlier ORDER BY concurrency_seq LIMIT 1), ''),
		(SELECT count(*) FROM ahead),
		coalesce((SELECT id::text FROM ahead ORDER BY rank, id LIMIT 1), ''),
		coalesce((SELECT slots FROM ahead ORDER BY rank, id LIMIT 1), 0),
		` + columns + `
	FROM e`

// Situation returns an execution with what it waits among, or ErrNotFound.
func (s *Store) Situation(ctx context.Context, id string) (execution.Situation, error) {
	if err := checkID(id); err != nil {
		return execution.Situation{}, err
	}
	rows, err := s.pool.Query(ctx, situationSQL, id, execution.AheadMax)
	if err != nil {
		return execution.Situation{}, fmt.Errorf("read situation: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanSituation)
	if errors.Is(err, pgx.ErrNoRows) {
		return execution.Situation{}, fmt.Errorf("execution %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return execution.Situation{}, fmt.Errorf("read situation: %w", err)
	}
	return found, nil
}

func scanSituation(row pgx.CollectableRow) (execution.Situation, error) {
	var s execution.Situation
	var r stored
	err := row.Scan(append([]any{
		&s.Workers, &s.Slots, &s.Largest, &s.Executors, &s.Used,
		&s.Predecessors, &s.Predecessor.ID, &s.Predecessor.State, &s.Ahead, &s.Next.ID, &s.Next.Slots,
	}, r.targets()...)...)
	if err != nil {
		return execution.Situation{}, err
	}
	l := r.loaded()
	s.Execution, s.Now = l.Execution, l.now
	return s, nil
}
