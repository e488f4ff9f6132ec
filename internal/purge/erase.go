package purge

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What is erased, as counted in Purge.Erased and in the metric.
const (
	Executions  = "executions"
	Outputs     = "outputs"
	Events      = "events"
	Views       = "views"
	Outbox      = "outbox_events"
	DeadLetters = "dead_letters"
	Instances   = "instances"
	Tasks       = "tasks"
	Sagas       = "sagas"
	Pods        = "pods"
	// Workflows are instances of the workflow engine with all that belongs to them;
	// Instances are their views, and those of other engines'.
	Workflows = "workflows"
)

// Counts are numbers of rows, by kind.
type Counts map[string]int64

func (c Counts) add(o Counts) {
	for kind, n := range o {
		if n != 0 {
			c[kind] += n
		}
	}
}

// sum is how many rows there are in all.
func (c Counts) sum() (n int64) {
	for _, rows := range c {
		n += rows
	}
	return n
}

// statement erases rows of one kind that belong to the executions $1; an empty kind is
// not counted.
type statement struct{ kind, sql string }

// belongings are everything that belongs to an execution but its row. Results that are
// files go when the keeper of results finds them without their execution.
func belongings() []statement {
	return []statement{
		{"", `DELETE FROM idempotency_keys k USING executions e
			WHERE e.id = ANY($1) AND k.tenant = e.tenant AND k.key = e.request ->> 'idempotency_key' AND k.execution_id = e.id`},
		{Outputs, `DELETE FROM execution_outputs WHERE execution_id = ANY($1)`},
		{"", `DELETE FROM execution_progress WHERE execution_id = ANY($1)`},
		{"", `DELETE FROM execution_pods WHERE execution_id = ANY($1)`},
		{"", `DELETE FROM execution_results WHERE execution_id = ANY($1) AND kept_in = 'postgres'`},
	}
}

// traces are what events leave of an execution or a workflow, and can bring back.
func traces() []statement {
	return []statement{
		{Events, `DELETE FROM event_log WHERE subject = ANY($1::uuid[]::text[])`},
		{Views, `DELETE FROM execution_views WHERE id = ANY($1::uuid[]::text[])`},
		{Pods, `DELETE FROM pod_views WHERE execution_id = ANY($1::uuid[]::text[])`},
		{Instances, `DELETE FROM workflow_instances WHERE id = ANY($1::uuid[]::text[])`},
		{Tasks, `DELETE FROM task_instances WHERE instance_id = ANY($1::uuid[]::text[])`},
		{Sagas, `DELETE FROM saga_views WHERE id = ANY($1::uuid[]::text[])`},
	}
}

// erase erases executions that have ended, whose rows the caller has locked. purge
// says for whom; nil: they were old enough.
func erase(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, purge *uuid.UUID) (Counts, error) {
	if len(ids) == 0 {
		return Counts{}, nil
	}
	if err := remember(ctx, tx, ids, purge); err != nil {
		return nil, err
	}
	all := append(belongings(), traces()...)
	return run(ctx, tx, append(all, statement{Executions, `DELETE FROM executions WHERE id = ANY($1)`}), ids)
}

// remember notes ids that nothing is to come back of.
func remember(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, purge *uuid.UUID) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO purged_executions (id, purge) SELECT id, $2 FROM unnest($1::uuid[]) AS id
		ON CONFLICT (id) DO UPDATE SET purge = coalesce(EXCLUDED.purge, purged_executions.purge)`, ids, purge)
	if err != nil {
		return fmt.Errorf("note what is purged: %w", err)
	}
	return nil
}

// run runs statements on executions and counts what they erase.
func run(ctx context.Context, tx pgx.Tx, statements []statement, ids []uuid.UUID) (Counts, error) {
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, ids)
	}
	results := tx.SendBatch(ctx, batch)
	erased := Counts{}
	for _, s := range statements {
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close() // says the same
			return nil, fmt.Errorf("erase executions: %w", err)
		}
		if s.kind != "" && tag.RowsAffected() > 0 {
			erased[s.kind] += tag.RowsAffected()
		}
	}
	if err := results.Close(); err != nil {
		return nil, fmt.Errorf("erase executions: %w", err)
	}
	return erased, nil
}
