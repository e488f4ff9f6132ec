package verify

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/execution"
)

// Pieces that the assertions about histories are made of.
const (
	// A run can be about the executions that were requested since a time (Options.Since):
	// ids begin with the time at which they were made. Settings of the transaction say it,
	// so that the SQL stays the same, and about all of them where they are not set. The
	// times of events let partitions be left out, with an hour for clocks.
	sinceID   = `coalesce(nullif(current_setting('millrace.verify_since_id', true), ''), '00000000-0000-0000-0000-000000000000')`
	sinceTime = `(coalesce(nullif(current_setting('millrace.verify_since', true), ''), '0001-01-02 00:00:00+00')::timestamptz - interval '1 hour')`

	// unpurged is SQL that leaves out what is told of executions that are purged: it
	// goes when the keeper of purges gets to it (internal/purge).
	unpurged = `NOT EXISTS (SELECT FROM purged_executions gone WHERE gone.id::text = `

	// written are the events of executions in the outbox, without the copies of a
	// republish. The event's sequence is a header; the headers are one value (see
	// EncodeHeaders in internal/outbox), in which it is found by length and name.
	written = `written AS (
	SELECT o.aggregate_id AS id, o.event_type AS type, o.id::text AS event_id, o.seq, o.status,
		CASE WHEN h.at > 0 THEN convert_from(substring(o.headers FROM h.at + 19 FOR get_byte(o.headers, h.at + 17)), 'UTF8')::bigint END AS sequence
	FROM outbox_events o, LATERAL (SELECT position('\x0000000b63655f73657175656e6365'::bytea IN o.headers) AS at) AS h
	WHERE o.aggregate_type = 'execution' AND o.event_type LIKE 'millrace.execution.%'
		AND o.event_type <> 'millrace.execution.task.v1' AND o.republished_from IS NULL
		AND o.aggregate_id COLLATE "C" >= ` + sinceID + ` AND o.created_at >= ` + sinceTime + `
		AND ` + unpurged + `o.aggregate_id))`

	// logged are the same events in the log, each once.
	logged = `logged AS (
	SELECT subject AS id, type AS type, event_id AS event_id, sequence, min(time) AS time
	FROM event_log
	WHERE subject IS NOT NULL AND type LIKE 'millrace.execution.%' AND type <> 'millrace.execution.task.v1'
		AND subject >= ` + sinceID + ` AND time >= ` + sinceTime + ` AND ` + unpurged + `subject)
	GROUP BY subject, type, event_id, sequence)`

	// phantoms are logged events that the database does not know: it was restored to
	// a point before they were written.
	phantoms = `phantoms AS MATERIALIZED (
	SELECT l.* FROM logged l LEFT JOIN executions e ON e.id::text = l.id
	WHERE e.id IS NULL OR l.sequence > e.version
	UNION
	SELECT l.* FROM logged l JOIN written w ON w.id = l.id AND w.sequence = l.sequence AND w.event_id <> l.event_id
	WHERE NOT EXISTS (SELECT FROM written x WHERE x.event_id = l.event_id))`

	// known are all events of executions that are left, wherever they are.
	known = `known AS MATERIALIZED (
	SELECT id, type, event_id, sequence FROM written
	UNION
	SELECT l.id, l.type, l.event_id, l.sequence FROM logged l
	WHERE NOT EXISTS (SELECT FROM phantoms p WHERE p.event_id = l.event_id AND p.id = l.id))`

	// oldest is the time of the oldest event that is left: what was requested before
	// may have lost its beginning to retention.
	oldest = `oldest AS (
	SELECT least((SELECT min(created_at) FROM outbox_events), (SELECT min(time) FROM event_log)) AS at)`

	// skipped are executions of which somebody took an event out of the way.
	skipped = `skipped AS (
	SELECT DISTINCT aggregate_id AS id FROM outbox_actions WHERE action = 'skip' AND aggregate_type = 'execution')`

	histories = "WITH " + written + ", " + logged + ", " + phantoms + ", " + known
)

// table renders rows of constants as VALUES.
func table(rows ...[]string) string {
	lines := make([]string, len(rows))
	for i, row := range rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = "'" + cell + "'"
		}
		lines[i] = "(" + strings.Join(cells, ", ") + ")"
	}
	return "(VALUES " + strings.Join(lines, ", ") + ")"
}

// steps is the state machine as tables: to which state an event type leads, and in
// which states it may happen. It is made from the code's own table.
func steps() string {
	var to, legal, ends [][]string
	seen := map[string]bool{}
	for _, t := range execution.Transitions() {
		legal = append(legal, []string{string(t.From), t.Event})
		if seen[t.Event] {
			continue
		}
		seen[t.Event] = true
		to = append(to, []string{t.Event, string(t.To)})
		if t.To.Terminal() {
			ends = append(ends, []string{t.Event})
		}
	}
	return fmt.Sprintf("steps(type, state) AS %s, legal(state, type) AS %s, ends(type) AS %s", table(to...), table(legal...), table(ends...))
}

// terminal lists the terminal states for IN.
func terminal() string {
	var names []string
	for _, s := range execution.States() {
		if s.Terminal() {
			names = append(names, "'"+string(s)+"'")
		}
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// ofHistories are the assertions about events of executions.
func ofHistories() []Check {
	return []Check{
		{
			Name:     "events-complete",
			Sentence: "Every change of an execution has its event in the outbox or in the event log.",
			Kind:     Fault,
			SQL: histories + ", " + oldest + `
SELECT e.id::text, format('version %s, %s events from %s to %s', e.version, coalesce(k.n, 0), k.first, k.last)
FROM executions e CROSS JOIN oldest LEFT JOIN (
	SELECT id, count(DISTINCT sequence) AS n, min(sequence) AS first, max(sequence) AS last FROM known GROUP BY id
) AS k ON k.id = e.id::text
WHERE e.id >= ` + sinceID + `::uuid AND coalesce(k.n, 0) <> e.version
	AND NOT (e.requested_at < oldest.at AND (k.n IS NULL OR k.last = e.version AND k.n = k.last - k.first + 1))`,
		},
		{
			Name:     "events-once",
			Sentence: "No change of an execution has two events, and no event was written twice.",
			Kind:     Fault,
			SQL: "WITH " + written + `
SELECT id, format('event %s was written as %s', sequence, string_agg(format('%s (seq %s)', event_id, seq), ', ' ORDER BY seq))
FROM written GROUP BY id, sequence HAVING count(*) > 1
UNION ALL
SELECT min(id), format('event %s was written %s times', event_id, count(*)) FROM written GROUP BY event_id HAVING count(*) > 1`,
		},
		{
			Name:     "events-founded",
			Sentence: "Every event of an execution in the outbox tells of a change that the execution has made.",
			Kind:     Fault,
			SQL: "WITH " + written + `
SELECT w.id, format('%s with sequence %s (seq %s): %s', w.type, w.sequence, w.seq,
	CASE WHEN e.id IS NULL THEN 'there is no such execution' ELSE 'its version is ' || e.version END)
FROM written w LEFT JOIN executions e ON e.id::text = w.id
WHERE e.id IS NULL OR w.sequence IS NULL OR w.sequence > e.version`,
		},
		{
			// What a stage passes on to the next task topic is the same task.
			Name:     "tasks-issued",
			Sentence: "Every admission has put exactly one task into the outbox.",
			Kind:     Fault,
			SQL: `
SELECT aggregate_id, format('%s admissions, %s tasks', admissions, tasks) FROM (
	SELECT aggregate_id, count(*) FILTER (WHERE event_type = 'millrace.execution.scheduled.v1') AS admissions,
		count(DISTINCT id) FILTER (WHERE event_type = 'millrace.execution.task.v1') AS tasks
	FROM outbox_events WHERE aggregate_type = 'execution' AND republished_from IS NULL
		AND aggregate_id COLLATE "C" >= ` + sinceID + ` AND created_at >= ` + sinceTime + ` GROUP BY aggregate_id) AS a
WHERE admissions <> tasks AND ` + unpurged + `a.aggregate_id)`,
		},
		{
			Name:     "transitions-legal",
			Sentence: "Every execution went from state to state as the state machine allows.",
			Kind:     Fault,
			SQL: histories + ", " + steps() + `
SELECT id, format('%s at %s, in state %s', type, sequence, coalesce(nullif(before, ''), 'nothing')) FROM (
	SELECT k.id, k.type, k.sequence,
		CASE WHEN k.sequence = 1 THEN '' ELSE lag(s.state) OVER (PARTITION BY k.id ORDER BY k.sequence) END AS before
	FROM known k JOIN steps s USING (type)) AS step
WHERE before IS NOT NULL AND NOT EXISTS (SELECT FROM legal l WHERE l.state = before AND l.type = step.type)`,
		},
		{
			Name:     "ends-final",
			Sentence: "Nothing happens to an execution after its end.",
			Kind:     Fault,
			SQL: histories + ", " + steps() + `
SELECT k.id, format('%s at %s, after the end at %s', k.type, k.sequence, e.sequence)
FROM known k JOIN (SELECT id, min(sequence) AS sequence FROM known JOIN ends USING (type) GROUP BY id) AS e USING (id)
WHERE k.sequence > e.sequence`,
		},
		{
			Name:     "states-told",
			Sentence: "Every execution is in the state that its last event says.",
			Kind:     Fault,
			SQL: histories + ", " + steps() + `
SELECT e.id::text, format('is %s, the last event says %s', e.state, k.state)
FROM executions e JOIN (
	SELECT DISTINCT ON (k.id) k.id, s.state FROM known k JOIN steps s USING (type) ORDER BY k.id, k.sequence DESC
) AS k ON k.id = e.id::text
WHERE k.state <> e.state`,
		},
		{
			Name:     "outbox-order",
			Sentence: "The outbox holds the events of an execution in the order in which they happened.",
			Kind:     Fault,
			SQL: "WITH " + written + `
SELECT id, format('event %s (seq %s) is behind event %s', sequence, seq, before) FROM (
	SELECT id, seq, sequence, lag(sequence) OVER (PARTITION BY id ORDER BY seq) AS before FROM written) AS w
WHERE before >= sequence`,
		},
		{
			Name:     "log-order",
			Sentence: "The broker has the events of an execution in the order in which they happened.",
			Kind:     Fault,
			SQL: "WITH " + written + ", " + logged + ", " + phantoms + `
SELECT subject, format('event %s of partition %s came at offset %s, behind event %s', sequence, partition, first, before) FROM (
	SELECT f.*, lag(sequence) OVER (PARTITION BY topic_no, partition, subject ORDER BY first) AS before
	FROM (
		SELECT topic_no, partition, subject, event_id, sequence, min("offset") AS first FROM event_log
		WHERE subject IS NOT NULL AND type LIKE 'millrace.execution.%' AND type <> 'millrace.execution.task.v1'
			AND subject >= ` + sinceID + ` AND time >= ` + sinceTime + `
		GROUP BY topic_no, partition, subject, event_id, sequence
	) AS f
	WHERE NOT EXISTS (SELECT FROM phantoms p WHERE p.id = f.subject AND p.event_id = f.event_id)) AS o
WHERE before > sequence`,
		},
		{
			Name:     "log-complete",
			Sentence: "The event log skips no event of an execution.",
			Kind:     Fault,
			SQL: "WITH " + written + ", " + logged + ", " + phantoms + ", " + skipped + `
SELECT l.id, format('%s events from %s to %s', count(DISTINCT l.sequence), min(l.sequence), max(l.sequence))
FROM logged l
WHERE NOT EXISTS (SELECT FROM phantoms p WHERE p.id = l.id AND p.event_id = l.event_id)
	AND NOT EXISTS (SELECT FROM skipped s WHERE s.id = l.id)
GROUP BY l.id HAVING count(DISTINCT l.sequence) <> max(l.sequence) - min(l.sequence) + 1`,
		},
		{
			Name:     "output-whole",
			Sentence: "The output of every attempt is there without gap or overlap, and each piece has its event.",
			Kind:     Fault,
			SQL: histories + `
SELECT execution_id::text, format('attempt %s, %s: piece %s begins at %s, want piece %s at %s', attempt, stream, index, start_offset, n, at) FROM (
	SELECT *, row_number() OVER w - 1 AS n,
		coalesce(sum(octet_length(data)) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS at
	FROM execution_outputs WHERE execution_id >= ` + sinceID + `::uuid WINDOW w AS (PARTITION BY execution_id, attempt, stream ORDER BY index)) AS o
WHERE index <> n OR start_offset <> at
UNION ALL
SELECT k.id, format('%s pieces, %s events of output', coalesce(o.n, 0), k.n)
FROM (
	SELECT id, count(*) FILTER (WHERE type = 'millrace.execution.output.v1') AS n FROM known GROUP BY id HAVING min(sequence) = 1
) AS k LEFT JOIN (SELECT execution_id::text AS id, count(*) AS n FROM execution_outputs WHERE execution_id >= ` + sinceID + `::uuid GROUP BY 1) AS o USING (id)
WHERE coalesce(o.n, 0) <> k.n`,
		},
		{
			Name:     "phantom-events",
			Sentence: "The broker had no event that the database does not know; after a restore to an earlier point it does.",
			Kind:     Notice,
			SQL: "WITH " + written + ", " + logged + ", " + phantoms + `
SELECT id, format('%s at %s, of %s', type, sequence, time) FROM phantoms`,
		},
		{
			Name:     "records-once",
			Sentence: "Every event lies in the log as often as it was to be published; after a crash of a relay some lie there again.",
			Kind:     Notice,
			SQL: `
WITH wanted AS (
	SELECT id::text AS event_id, count(*) AS n FROM outbox_events WHERE aggregate_type = 'execution' AND created_at >= ` + sinceTime + ` GROUP BY 1)
SELECT l.event_id, format('%s of %s lies in the log %s times, was written %s times', min(l.type), min(l.subject), count(*), coalesce(min(w.n), 1))
FROM event_log l LEFT JOIN wanted w ON w.event_id = l.event_id
WHERE l.event_id IS NOT NULL AND l.subject >= ` + sinceID + ` AND l.time >= ` + sinceTime + `
GROUP BY l.topic_no, l.source, l.event_id HAVING count(*) > coalesce(min(w.n), 1)`,
		},
		{
			Name:     "log-caught-up",
			Sentence: "Every event of an execution is in the event log.",
			Kind:     Fault, Settled: true,
			SQL: "WITH " + written + `
SELECT id, format('%s at %s is %s and not in the log', type, sequence, status) FROM written w
WHERE status <> 'SKIPPED' AND NOT EXISTS (
	SELECT FROM event_log l WHERE l.subject = w.id AND l.sequence = w.sequence AND l.event_id = w.event_id)`,
		},
	}
}
