package purge

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// theirWorkflowsSQL finds the workflows of a user in a page of all, and where the page
// ends. What began since the purge did belongs to it when it came of something that does:
// as a child, the next one of a chain, or an execution. Grandchildren come with the round
// after that in which their parent was erased.
const theirWorkflowsSQL = `
	WITH page AS MATERIALIZED (
		SELECT id, user_id, tenant, started_at, ended_at, ARRAY[parent_instance_id, previous_instance_id, execution_id] AS origins
		FROM wf_instances WHERE id > $1 ORDER BY id LIMIT $2)
	SELECT p.id, p.ended_at IS NOT NULL, false FROM page p
	WHERE p.user_id = $3 AND ($4 = '' OR p.tenant = $4) AND (p.started_at <= $5
		OR EXISTS (SELECT FROM wf_instances o WHERE o.id = ANY(p.origins) AND o.started_at <= $5)
		OR EXISTS (SELECT FROM purged_executions x WHERE x.id = ANY(p.origins) AND x.purge = $6))
	UNION ALL SELECT max(id::text)::uuid, false, true FROM page
	ORDER BY 3, 1`

// eraseWorkflows erases the instances of workflows that the user has started, of a page
// of all. Those that have not ended wait. There is no index by user, as with executions:
// each start would pay for it.
func (s *Store) eraseWorkflows(ctx context.Context, j *job) error {
	rows, err := j.tx.Query(ctx, theirWorkflowsSQL, j.place(), scanRows, j.user, j.tenant, j.begun, j.id)
	if err != nil {
		return err
	}
	var due, open []uuid.UUID
	var id *uuid.UUID
	var ended, end bool
	j.cursor = ""
	_, err = pgx.ForEachRow(rows, []any{&id, &ended, &end}, func() error {
		switch {
		case j.pageEnds(due, id, end):
		case ended:
			due = append(due, *id)
		default:
			open = append(open, *id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	j.wait(WorkflowsNotEnded, len(open))
	if j.cancel && len(open) > 0 {
		if err := s.cfg.Workflows.Cancel(ctx, j.tx, open); err != nil {
			return err
		}
	}
	for chunk := range chunks(due, chunkRows) {
		gone, err := s.cfg.Workflows.Erase(ctx, j.tx, chunk, 0)
		if err != nil {
			return err
		}
		j.wait(WorkflowsNotEnded, len(chunk)-len(gone))
		if len(gone) == 0 {
			continue
		}
		if err := remember(ctx, j.tx, gone, &j.id); err != nil {
			return err
		}
		counts, err := run(ctx, j.tx, traces(), gone)
		if err != nil {
			return err
		}
		j.erased.add(counts)
		j.erased.add(Counts{Workflows: int64(len(gone))})
	}
	return nil
}

// wait counts what cannot be erased yet.
func (j *job) wait(kind string, n int) {
	if n > 0 {
		j.waiting[kind] += int64(n)
	}
}
