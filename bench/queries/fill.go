package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// statuses of the instances by their number: 94 in a hundred COMPLETED, 3 RUNNING, 2
// FAULTED, 1 CANCELLED.
const terminal = `CASE WHEN n % 100 < 94 THEN 'COMPLETED' WHEN n % 100 < 96 THEN 'FAULTED' WHEN n % 100 = 96 THEN 'CANCELLED' END`

// fill makes n instances, one per second, with three tasks each.
func fill(ctx context.Context, pool *pgxpool.Pool, n int) error {
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO workflow_instances (id, namespace, name, version, active_status, terminal_status, terminal_mark, start, "end",
		  last_update, input, output, error_type, error_title, error_detail, error_status, last_event_time, history_from)
		SELECT id, 'org.acme', name, version, 'RUNNING', status, CASE WHEN status IS NOT NULL THEN '00000000-0000-0000-0000-000000000001'::uuid END,
		  start, ended, coalesce(ended, start),
		  jsonb_build_object('orderId', 'ORD-' || n, 'customer', jsonb_build_object('id', 'c-' || n %% 100000, 'country', (ARRAY['DE','FR','US'])[n %% 3 + 1]),
		    'total', n %% 1000, 'items', jsonb_build_array(jsonb_build_object('sku', 'sku-' || n %% 5000, 'quantity', 2))),
		  CASE status WHEN 'COMPLETED' THEN jsonb_build_object('result', 'R-' || n, 'accepted', true) END,
		  CASE status WHEN 'FAULTED' THEN 'https://example.org/errors/timeout' END, CASE status WHEN 'FAULTED' THEN 'Payment timed out' END,
		  CASE status WHEN 'FAULTED' THEN 'the bank did not answer for order ' || n END, CASE status WHEN 'FAULTED' THEN 504 END, coalesce(ended, start), start
		FROM (SELECT n, '01KSGKY66DMS0KPP' || lpad(n::text, 10, '0') AS id, 'workflow-' || n %% 50 AS name, '1.' || n %% 3 AS version, %s AS status,
		  timestamptz '2026-11-01 00:00:00Z' + n * interval '1 s' AS start,
		  CASE WHEN n %% 100 < 97 THEN timestamptz '2026-11-01 00:00:00Z' + n * interval '1 s' + (1 + hashint4(n) & 65535) * interval '1 ms' END AS ended
		  FROM generate_series(1, %d) AS n) AS made`, terminal, n),
		fmt.Sprintf(`INSERT INTO task_instances (instance_id, task_position, task_execution_id, task_name, active_status, terminal_status, terminal_mark,
		  start, "end", last_update, input, output, last_event_time, history_from)
		SELECT '01KSGKY66DMS0KPP' || lpad(n::text, 10, '0'), 'do/' || m || '/task', 't-' || n || '-' || m, 'task-' || m, 'RUNNING',
		  %s, CASE WHEN n %% 100 < 97 THEN '00000000-0000-0000-0000-000000000001'::uuid END,
		  timestamptz '2026-11-01 00:00:00Z' + n * interval '1 s' + m * interval '10 ms',
		  CASE WHEN n %% 100 < 97 THEN timestamptz '2026-11-01 00:00:00Z' + n * interval '1 s' + m * interval '10 ms' + (1 + hashint4(n + m) & 8191) * interval '1 ms' END,
		  NULL, jsonb_build_object('orderId', 'ORD-' || n, 'step', m), NULL, NULL, NULL
		FROM generate_series(1, %d) AS n, generate_series(0, 2) AS m`, terminal, n),
		`VACUUM (ANALYZE) workflow_instances`,
		`VACUUM (ANALYZE) task_instances`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}
