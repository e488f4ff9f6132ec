package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/jobs"
)

// eraseSQL removes instances that ended long enough ago. What others have locked, and the
// children of an instance that goes on, are left. The number of their activities tells
// the ids of their jobs.
const eraseSQL = `
	WITH due AS MATERIALIZED (
		SELECT i.id FROM wf_instances i
		WHERE i.id = ANY($1::uuid[]) AND i.ended_at <= clock_timestamp() - $2::interval
			AND NOT EXISTS (SELECT FROM wf_instances p WHERE p.id = i.parent_instance_id AND p.ended_at IS NULL)
		ORDER BY i.id FOR UPDATE OF i SKIP LOCKED
	)
	DELETE FROM wf_instances i USING due WHERE i.id = due.id
	RETURNING i.id, coalesce((i.state->>'last_activity')::integer, 0)`

// Erase removes those of some instances that ended at least so long ago, with their
// journal, jobs, user tasks, timers, waits and participations, within a transaction of the
// caller's. It returns which they were. What the relay and the read models have of them
// has retentions of its own. A signal that one has taken is remembered, without what it
// said.
func Erase(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, since time.Duration) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, eraseSQL, ids, since)
	if err != nil {
		return nil, fmt.Errorf("erase instances: %w", err)
	}
	var gone, theirs []uuid.UUID
	var id uuid.UUID
	var activities int
	_, err = pgx.ForEachRow(rows, []any{&id, &activities}, func() error {
		gone = append(gone, id)
		for n := 1; n <= activities; n++ {
			theirs = append(theirs, jobs.ID(id, n))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("erase instances: %w", err)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	b.Queue(`DELETE FROM jobs WHERE id = ANY($1::uuid[])`, theirs)
	for _, table := range []string{"wf_journal", "wf_user_tasks", "wf_timers", "wf_waits"} {
		b.Queue(`DELETE FROM `+table+` WHERE instance_id = ANY($1::uuid[])`, gone)
	}
	b.Queue(`DELETE FROM saga_participations WHERE saga_id = ANY($1::uuid[])`, gone)
	b.Queue(`UPDATE wf_signals SET instances = '{}', variables = NULL, actor = '' WHERE instances && $1::uuid[]`, gone)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("erase what belongs to instances: %w", err)
	}
	return gone, nil
}

// The index of a timerCancel says why nobody waits for the instance any more.
const (
	cancelOrphan = iota
	cancelPurged
)

// AskCancel has instances cancelled, for a purge, within a transaction of the caller's. It
// locks none of them: whoever fires timers does it, soon. What they have done is not
// undone. Children end with what stands above them.
func AskCancel(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO wf_timers (instance_id, step, kind, index, due_at)
		SELECT i.id, 0, $2, $3, clock_timestamp() FROM wf_instances i
		WHERE i.id = ANY($1::uuid[]) AND i.ended_at IS NULL
			AND NOT EXISTS (SELECT FROM wf_instances p WHERE p.id = i.parent_instance_id AND p.ended_at IS NULL)
		ORDER BY i.id
		ON CONFLICT DO NOTHING`, ids, string(timerCancel), cancelPurged)
	if err != nil {
		return fmt.Errorf("have instances cancelled: %w", err)
	}
	return nil
}
