package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// terminalTypes are the events that end an execution.
const terminalTypes = `'millrace.execution.completed.v1', 'millrace.execution.failed.v1', 'millrace.execution.timed_out.v1',
	'millrace.execution.cancelled.v1', 'millrace.execution.rejected.v1', 'millrace.execution.quarantined.v1'`

// ofExecutions selects, among rows of the event log, those that count among the versions of
// an execution: what is told of its pods, too.
func ofExecutions(rows string) string {
	return "(" + rows + ".type LIKE 'millrace.execution.%' OR " + rows + ".type LIKE 'millrace.pod.%')"
}

// settled waits until the outbox is empty, and log and read model have caught up
// with the write model.
func (in *installation) settled() {
	in.t.Helper()
	behind := []struct{ what, sql string }{
		{"the outbox is drained", `SELECT count(*) FROM outbox_events WHERE status <> 'PUBLISHED'`},
		{"the event log is complete", `SELECT count(*) FROM executions e WHERE e.version <> (SELECT count(DISTINCT event_id)
			FROM event_log l WHERE l.subject = e.id::text AND ` + ofExecutions("l") + `)`},
		{"the views are up to date", `SELECT count(*) FROM executions e LEFT JOIN execution_views v ON v.id = e.id::text
			WHERE v.version IS DISTINCT FROM e.version OR v.state IS DISTINCT FROM e.state`},
	}
	for _, b := range behind {
		last, moved := -1, time.Now()
		await(in.t, 3*time.Minute, b.what, func() bool {
			n := in.count(b.sql)
			if n != last {
				last, moved = n, time.Now()
			}
			if time.Since(moved) > stuckAfter {
				in.diagnose()
				require.Fail(in.t, fmt.Sprintf("nothing moved for %s while waiting until %s: %d left", stuckAfter, b.what, n))
			}
			return n == 0
		})
	}
}

// audit checks what holds for any installation once everything has ended: see the
// package comment.
func (in *installation) audit(programs []*program) {
	t := in.t
	t.Helper()
	in.settled()
	assert.Equal(t, len(programs), in.count(`SELECT count(*) FROM executions`), "an idempotency key led to two executions, or one was lost")
	for _, check := range []struct{ what, sql string }{
		{"executions that have not ended", `SELECT id::text FROM executions WHERE finished_at IS NULL`},
		{"histories with gaps", `SELECT subject FROM event_log l WHERE ` + ofExecutions("l") + ` GROUP BY subject
			HAVING min(sequence) <> 1 OR max(sequence) <> count(DISTINCT sequence) OR count(DISTINCT sequence) <> count(DISTINCT event_id)`},
		{"histories without exactly one terminal event", `SELECT subject FROM event_log WHERE type LIKE 'millrace.execution.%' GROUP BY subject
			HAVING count(DISTINCT event_id) FILTER (WHERE type IN (` + terminalTypes + `)) <> 1`},
		{"histories that go on after their end", `SELECT a.subject FROM event_log a JOIN event_log b USING (subject)
			WHERE ` + ofExecutions("a") + ` AND b.topic_no = a.topic_no AND a.type IN (` + terminalTypes + `) AND b.sequence > a.sequence
				AND b.type NOT LIKE 'millrace.pod.%'`},
		{"histories out of order in the log", `SELECT a.subject FROM event_log a JOIN event_log b USING (subject, topic_no, partition)
			WHERE ` + ofExecutions("a") + ` AND a.sequence < b.sequence AND a."offset" > b."offset" AND NOT EXISTS (
				SELECT FROM event_log c WHERE c.event_id = a.event_id AND c."offset" < b."offset" AND c.partition = b.partition)`},
		{"dead letters", `SELECT consumer || ': ' || error FROM dead_letters`},
		{"views that differ", `SELECT v.id FROM execution_views v JOIN executions e ON v.id = e.id::text
			WHERE (v.attempt, v.exit_code, v.reason) IS DISTINCT FROM
				(e.attempt, (e.result->>'exit_code')::int, nullif(e.result->>'reason', ''))`},
	} {
		assert.Empty(t, in.texts(check.sql), check.what)
	}
}

// results checks the end of each program by way of the API, to the byte.
func (in *installation) results(c *client.Client, programs []*program) {
	t := in.t
	t.Helper()
	for _, p := range programs {
		e, err := c.Get(t.Context(), p.id)
		require.NoError(t, err)
		name := p.kind + " " + p.id
		lost, failed := in.requeues(p.id)
		require.NotNil(t, e.Result, name)
		assert.Equal(t, p.want.state, e.State, "state of %s: %s %s", name, e.Result.Reason, e.Result.Message)
		assert.Equal(t, p.want.reason, e.Result.Reason, "reason of %s", name)
		assert.Equal(t, p.want.limit, e.Result.Limit, "limit of %s", name)
		if e.Attempt > 0 {
			assert.Equal(t, 1+lost+failed, e.Attempt, "attempts of %s: one, and one for each requeue", name)
		}
		// An attempt that was to fail may have been lost with its worker instead.
		assert.LessOrEqual(t, failed, p.want.failures, "failed attempts of %s", name)
		assert.GreaterOrEqual(t, lost+failed, p.want.failures, "failed attempts of %s", name)
		if p.want.state == client.Completed || p.want.state == client.Failed {
			if assert.NotNil(t, e.Result.ExitCode, "exit code of %s", name) {
				assert.Equal(t, p.want.exitCode, *e.Result.ExitCode, "exit code of %s", name)
			}
		}
		if p.cancel != "" && assert.NotNil(t, e.Cancel, name) {
			assert.Equal(t, "no longer needed", e.Cancel.Reason, name)
		}
		in.outputs(c, p, e)
	}
}

func (in *installation) outputs(c *client.Client, p *program, e client.Execution) {
	t := in.t
	t.Helper()
	name := p.kind + " " + p.id
	var stdout, stderr bytes.Buffer
	for stream, into := range map[string]*bytes.Buffer{"stdout": &stdout, "stderr": &stderr} {
		_, err := c.Output(t.Context(), p.id, stream, 0, into)
		if e.StartedAt == nil {
			continue // it may well say that there is no attempt
		}
		require.NoError(t, err, "%s of %s", stream, name)
	}
	if p.want.stdout == nil {
		assert.Contains(t, []string{"", "begun\n"}, stdout.String(), "stdout of %s", name)
		return
	}
	want := p.want.stdout(e.Attempt)
	if !bytes.Equal(want, stdout.Bytes()) {
		t.Errorf("stdout of %s: %d bytes, want %d; it begins %.60q, want %.60q", name, stdout.Len(), len(want), stdout.Bytes(), want)
	}
	assert.Equal(t, p.want.stderr, stderr.String(), "stderr of %s", name)
	if e.Result.Stdout != nil {
		assert.Equal(t, client.Stream{Bytes: int64(len(want)), KeptBytes: int64(len(want))}, *e.Result.Stdout, "summary of %s", name)
	}
}

// requeues returns how many attempts were lost or handed back, and how many failed
// by themselves.
func (in *installation) requeues(id string) (lost, failed int) {
	in.t.Helper()
	causes := in.texts(`SELECT DISTINCT sequence || ' ' || (convert_from(value, 'UTF8')::jsonb->>'cause') FROM event_log
		WHERE type = 'millrace.execution.requeued.v1' AND subject = '` + id + `'`)
	for _, c := range causes {
		if strings.HasSuffix(c, " failed") {
			failed++
		} else {
			lost++
		}
	}
	return lost, failed
}
