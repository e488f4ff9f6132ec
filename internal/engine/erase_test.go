package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// traces counts the rows of each table in which one of some texts occurs, but for tables
// that others remove from: the outbox, the event log, and what is made of events.
func (w *world) traces(texts ...string) map[string]int {
	w.t.Helper()
	found := map[string]int{}
	for _, table := range w.texts(`SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('outbox_events', 'event_log')`) {
		if n := w.queryInt(fmt.Sprintf(`SELECT count(*) FROM %s AS t WHERE t::text ~ $1`, table), strings.Join(texts, "|")); n > 0 {
			found[table] = n
		}
	}
	return found
}

// Nothing of an instance that is removed is left in any table, whatever it had.
func TestNothingIsLeftOfWhatIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *engine.Config) { c.Retention = 24 * time.Hour })
	w.define(oneStep)
	w.define(`{"id": "all", "name": "x", "timeout": "PT1H", "steps": [
		{"id": "fork", "name": "Fork", "type": "PARALLEL_GATEWAY", "parallelNextSteps": ["a", "b", "c", "d"], "joinStep": "join"},
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "timeout": "PT1H", "nextStep": "join"},
		{"id": "b", "name": "B", "type": "USER_TASK", "nextStep": "join"},
		{"id": "c", "name": "C", "type": "WAIT", "correlationKey": "${order}", "nextStep": "join"},
		{"id": "d", "name": "D", "type": "SUBWORKFLOW", "workflowId": "one", "nextStep": "join"},
		{"id": "join", "name": "Join", "type": "JOIN_GATEWAY", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	w.define(`{"id": "first", "name": "x", "autoStartNextWorkflow": true, "nextWorkflowId": "none", "steps": [{"id": "end", "name": "End", "type": "END"}]}`)
	full, open, chained := w.start("all", `{"order": "o1"}`), w.start("all", `{"order": "o2"}`), w.start("first", `{}`)
	finish := func(i engine.Instance, order string) {
		w.completeOf(i, "a")
		require.NoError(t, w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: i.ID, StepID: "b"}))
		_, err := w.Correlate(t.Context(), engine.CorrelateRequest{Signal: "c", Key: order, Variables: json.RawMessage(`{"secret": 1}`)})
		require.NoError(t, err)
	}
	finish(full, "o1")
	child := w.queryID(`SELECT id FROM wf_instances WHERE parent_instance_id = $1`, full.ID)
	for _, j := range w.claim("work", 10) {
		if j.InstanceID == child {
			w.complete(j, `{}`)
		}
	}
	w.ends(full.ID, workflow.Completed)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO saga_participations (participant, command_id, saga_id, outcome, issue) VALUES ('p', gen_random_uuid(), $1, 'done', 1)`, full.ID)
	require.NoError(t, err)
	// The child of one that goes on has ended, and stays.
	waits := w.queryID(`SELECT id FROM wf_instances WHERE parent_instance_id = $1`, open.ID)
	_, err = w.pool.Exec(t.Context(), `UPDATE wf_instances SET started_at = now() - interval '3 days', ended_at = CASE WHEN id = $1 THEN NULL ELSE now() - interval '2 days' END`, open.ID)
	require.NoError(t, err)

	ids := []string{full.ID.String(), child.String(), chained.ID.String(), "secret"}
	for n := 1; n <= 8; n++ {
		ids = append(ids, jobs.ID(full.ID, n).String(), jobs.ID(child, n).String())
	}
	before := w.traces(ids...)
	for _, table := range []string{"wf_instances", "wf_journal", "jobs", "wf_user_tasks", "wf_timers", "wf_signals", "saga_participations"} {
		assert.Positive(t, before[table], table)
	}
	n, err := w.RemoveEnded(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Empty(t, w.traces(ids...))
	w.get(open.ID)
	w.get(waits)
	assert.NotEmpty(t, w.traces(jobs.ID(waits, 1).String()))
}

// completeOf completes the job of a step of an instance.
func (w *world) completeOf(i engine.Instance, jobType string) {
	w.t.Helper()
	for _, j := range w.claim(jobType, 10) {
		if j.InstanceID == i.ID {
			w.complete(j, `{}`)
		}
	}
}

// queryID runs a query for one id.
func (w *world) queryID(sql string, args ...any) (id uuid.UUID) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&id))
	return id
}
