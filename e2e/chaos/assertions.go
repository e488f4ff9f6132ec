package main

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/internal/verify"
)

// terminalTypes are the events that end an execution.
const terminalTypes = `'millrace.execution.completed.v1', 'millrace.execution.failed.v1', 'millrace.execution.timed_out.v1',
	'millrace.execution.cancelled.v1', 'millrace.execution.rejected.v1', 'millrace.execution.quarantined.v1'`

// assertion is a query that must find nothing.
type assertion struct {
	kind      check.Kind
	what, sql string
}

// assertions ask Millrace's own tables whether they agree, beyond what `millrace
// verify` asserts.
func (s *session) assertions(ctx context.Context) {
	for _, a := range []assertion{
		{check.Other, "event of the outbox failed", `SELECT topic || ' ' || aggregate_id || ' ' || coalesce(last_error, '') FROM outbox_events WHERE status = 'FAILED'`},
		{check.Lost, "history has gaps", `SELECT subject FROM event_log JOIN executions e ON e.id::text = subject WHERE type LIKE 'millrace.execution.%' GROUP BY subject, e.version
			HAVING min(sequence) <> 1 OR max(sequence) <> count(DISTINCT sequence) OR max(sequence) < e.version`},
		{check.Doubled, "state change has two events", `SELECT subject FROM event_log JOIN executions e ON e.id::text = subject WHERE type LIKE 'millrace.execution.%' AND NOT $1::boolean GROUP BY subject
			HAVING count(DISTINCT sequence) <> count(DISTINCT event_id)`},
		{check.Doubled, "execution has not exactly one end", `SELECT subject FROM event_log JOIN executions e ON e.id::text = subject WHERE type LIKE 'millrace.execution.%' AND NOT $1::boolean GROUP BY subject
			HAVING count(DISTINCT event_id) FILTER (WHERE type IN (` + terminalTypes + `)) <> 1`},
		{check.Reordered, "history goes on after its end", `SELECT a.subject FROM event_log a JOIN event_log b USING (subject) JOIN executions e ON e.id::text = a.subject
			WHERE a.type LIKE 'millrace.execution.%' AND b.topic_no = a.topic_no AND a.type IN (` + terminalTypes + `) AND b.sequence > a.sequence AND NOT $1::boolean`},
		{check.Other, "view differs from its execution", `SELECT v.id FROM execution_views v JOIN executions e ON v.id = e.id::text
			WHERE (v.state, v.attempt, v.exit_code, v.reason) IS DISTINCT FROM
				(e.state, e.attempt, (e.result->>'exit_code')::int, nullif(e.result->>'reason', '')) AND NOT $1::boolean`},
		{check.Other, "letter has no known end", `SELECT id || ' ' || status FROM dead_letters WHERE status NOT IN ('OPEN', 'REDRIVEN', 'RESOLVED', 'DISCARDED')`},
		{check.Other, "letter is still open", `SELECT consumer || ' ' || class || ' ' || error FROM dead_letters WHERE status = 'OPEN' AND NOT $1::boolean`},
		{check.Doubled, "output chunks overlap", `SELECT a.execution_id::text FROM execution_outputs a JOIN execution_outputs b USING (execution_id, attempt, stream)
			WHERE a.index < b.index AND a.start_offset + length(a.data) > b.start_offset`},
	} {
		rows, err := s.world.DB.Query(ctx, `SELECT * FROM (`+a.sql+`) AS found LIMIT 20`, args(a.sql, s.torture.Phantoms.Load())...)
		if err != nil {
			s.find(check.Other, "assertions", "%s: %v", a.what, err)
			continue
		}
		var text *string
		for rows.Next() {
			if err := rows.Scan(&text); err == nil && text != nil {
				s.find(a.kind, "assertions", "%s: %s", a.what, *text)
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			s.find(check.Other, "assertions", "%s: %v", a.what, err)
		}
	}
}

// verifyTimeout bounds the assertions of `millrace verify`, after runs of any length.
const verifyTimeout = 10 * time.Minute

// verify asks what users can ask, `millrace verify --settled`. After a restore the
// log knows more than the database, which those assertions would report.
func (s *session) verify(ctx context.Context) {
	if s.torture.Phantoms.Load() {
		return
	}
	report, err := verify.Run(ctx, s.world.DB, verify.Options{Settled: true, Timeout: verifyTimeout})
	if err != nil {
		s.find(check.Other, "verify", "%v", err)
	}
	for _, r := range report.Results {
		if !r.Failed() {
			continue
		}
		s.find(check.Other, "verify", "%s: %s: %v %v", r.Name, r.Status, r.Findings, r.Err)
	}
}

// args gives a query the one argument that it may ask for: whether the database was
// restored to an earlier point, after which the log knows more than it.
func args(sql string, restored bool) []any {
	if !strings.Contains(sql, "$1") {
		return nil
	}
	return []any{restored}
}
