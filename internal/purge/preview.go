package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// previewTimeout bounds a preview, which counts in whole tables.
const previewTimeout = 30 * time.Second

// Preview counts what a purge would erase now, and what would keep it waiting. It
// changes nothing.
func (s *Store) Preview(ctx context.Context, r Request) (erased, waiting Counts, err error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, previewTimeout)
	defer cancel()
	var ended, open, flows, openFlows, events, output, outbox, unpublished, letters int64
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			WITH mine AS MATERIALIZED (
				SELECT id, id::text AS name, finished_at IS NOT NULL AS ended FROM executions
				WHERE user_name = $1 AND ($2 = '' OR tenant = $2)),
			flows AS MATERIALIZED (
				SELECT id, id::text AS name, ended_at IS NOT NULL AS ended FROM wf_instances
				WHERE user_id = $1 AND ($2 = '' OR tenant = $2)),
			gone AS MATERIALIZED (SELECT id, name FROM mine WHERE ended UNION ALL SELECT id, name FROM flows WHERE ended)
			SELECT (SELECT count(*) FROM mine WHERE ended), (SELECT count(*) FROM mine WHERE NOT ended),
				(SELECT count(*) FROM flows WHERE ended), (SELECT count(*) FROM flows WHERE NOT ended),
				(SELECT count(*) FROM event_log WHERE subject IN (SELECT name FROM gone) OR $2 = '' AND subject = $1),
				(SELECT count(*) FROM execution_outputs WHERE execution_id IN (SELECT id FROM gone)),
				o.closed, o.open,
				(SELECT count(*) FROM dead_letters WHERE status <> 'DELETED'
					AND (key IN (SELECT convert_to(name, 'UTF8') FROM gone) OR $2 = '' AND key = convert_to($1, 'UTF8')))
			FROM (SELECT count(*) FILTER (WHERE status IN ('PUBLISHED', 'SKIPPED')) AS closed,
					count(*) FILTER (WHERE status NOT IN ('PUBLISHED', 'SKIPPED')) AS open
				FROM outbox_events WHERE aggregate_id IN (SELECT name FROM gone) OR $2 = '' AND aggregate_id = $1) AS o`, r.User, r.Tenant).
			Scan(&ended, &open, &flows, &openFlows, &events, &output, &outbox, &unpublished, &letters)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preview a purge: %w", err)
	}
	erased = Counts{Executions: ended, Workflows: flows, Events: events, Outputs: output, Outbox: outbox, DeadLetters: letters}
	return erased, Counts{NotEnded: open, WorkflowsNotEnded: openFlows, Unpublished: unpublished}, nil
}
