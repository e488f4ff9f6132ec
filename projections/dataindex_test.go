package projections_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
	"github.com/millrace/millrace/topics"
)

// copies feeds the history of one instance many times, each time as that of another
// instance, in an order and with repetitions of its own, all of them mixed into batches,
// and asserts that their rows are the same in all but the name. The id of the instance is
// written $ in the events.
func copies(t require.TestingT, tb testing.TB, pool *pgxpool.Pool, prefix string, history []topics.Record, n int, random *rand.Rand) {
	queues := make([][]topics.Record, n)
	for c := range queues {
		id := fmt.Sprintf("%s-%d", prefix, c)
		for _, i := range random.Perm(len(history)) {
			r := history[i]
			r.Value = []byte(strings.ReplaceAll(string(r.Value), "$", id))
			for range 1 + random.IntN(2)*random.IntN(2) { // now and then twice
				queues[c] = append(queues[c], r)
			}
		}
		random.Shuffle(len(queues[c]), func(i, j int) { queues[c][i], queues[c][j] = queues[c][j], queues[c][i] })
	}
	p := projections.DataIndex(nil)
	for left := n; left > 0; {
		b := p.NewBatch()
		for size := 1 + random.IntN(400); size > 0 && left > 0; size-- {
			c := random.IntN(n)
			for len(queues[c]) == 0 {
				c = (c + 1) % n
			}
			require.NoError(t, b.Add(queues[c][0]))
			if queues[c] = queues[c][1:]; len(queues[c]) == 0 {
				left--
			}
		}
		require.NoError(t, b.Merge(tb.Context(), pool, nil))
	}
	for _, query := range []string{
		`SELECT to_jsonb(w) - 'id' - 'created_at' - 'updated_at', count(*) FROM workflow_instances w WHERE id LIKE $1 GROUP BY 1`,
		`SELECT to_jsonb(w) - 'instance_id' - 'created_at' - 'updated_at', count(*) FROM task_instances w WHERE instance_id LIKE $1 GROUP BY 1`,
	} {
		rows, err := pool.Query(tb.Context(), query, prefix+"-%")
		require.NoError(t, err)
		type group struct {
			Row   string
			Count int
		}
		groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[group])
		require.NoError(t, err)
		for _, g := range groups {
			require.Equal(t, n, g.Count, "not all copies have this row: %s", g.Row)
		}
	}
}

// Case G2 of the reliability catalogue: events of tasks before their workflow's, in a
// thousand orders.
func TestTasksBeforeTheirWorkflow(t *testing.T) {
	t.Parallel()
	pool := database(t)
	history := flow(t,
		flowEvent{kind: "workflow.created", at: "00:00", data: `{"instanceId":"$","workflowName":"n"}`},
		flowEvent{kind: "workflow.started", at: "00:01", data: `{"instanceId":"$","workflowName":"n","workflowNamespace":"ns","workflowVersion":"1","input":{"a":1}}`},
		flowEvent{kind: "task.started", at: "00:02", data: `{"instanceId":"$","taskPosition":"do/0/a"}`},
		flowEvent{kind: "task.completed", at: "00:03", data: `{"instanceId":"$","taskPosition":"do/0/a","output":1}`},
		flowEvent{kind: "task.started", at: "00:04", data: `{"instanceId":"$","taskPosition":"do/1/b"}`},
		flowEvent{kind: "task.faulted", at: "00:05", data: `{"instanceId":"$","taskPosition":"do/1/b","error":{"title":"no"}}`},
		flowEvent{kind: "workflow.faulted", at: "00:06", data: `{"instanceId":"$","error":{"title":"no"}}`},
	)
	const prefix = "g2"
	copies(t, t, pool, prefix, history, 1000, rand.New(rand.NewPCG(1, 2)))
	var workflows, tasks int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM workflow_instances WHERE status = 'FAULTED' AND name = 'n' AND start IS NOT NULL`).Scan(&workflows))
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM task_instances`).Scan(&tasks))
	assert.Equal(t, []int{1000, 2000}, []int{workflows, tasks})
}

// Whatever an engine lives through, with loops whose turns nothing tells apart, retries,
// suspensions, faults, equal times and clocks that are wrong, the rows do not depend on
// the order in which it arrives, nor on repetitions.
func TestAnyHistoryConverges(t *testing.T) {
	t.Parallel()
	pool := database(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		history := drawHistory(rt)
		copies(rt, t, pool, fmt.Sprintf("run%d", run), history, 12, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)))
	})
}

// drawHistory draws what an engine tells of one instance.
func drawHistory(rt *rapid.T) []topics.Record {
	var history []topics.Record
	now := time.Date(2026, 5, 25, 10, 0, 0, 0, time.UTC)
	tell := func(kind, data string) {
		now = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(rt, "pause")) * time.Second)
		// Some events claim another time, up to ten minutes away, or come late.
		claimed := now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, -10, -1, 1, 7, 10}).Draw(rt, "skew")) * time.Minute)
		history = append(history, topics.Record{
			Topic: string(topics.FlowLifecycle), Timestamp: now.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "late")) * time.Second),
			Value: fmt.Appendf(nil, `{"specversion":"1.0","id":"%d","source":"s","type":"io.serverlessworkflow.%s","time":%q,"data":%s}`,
				len(history), kind, claimed.Format(time.RFC3339Nano), data),
		})
	}
	workflow := func(change string) {
		n := len(history)
		tell("workflow."+change, rapid.SampledFrom([]string{
			`{"instanceId":"$"}`,
			fmt.Sprintf(`{"instanceId":"$","workflowName":"n%d","input":%d,"startTime":%d,"endTime":%d,"output":[%d],"status":"SUSPENDED","error":{"title":"e%d"}}`, n, n, n, n, n, n),
			fmt.Sprintf(`{"name":"$","definition":{"namespace":"ns%d"},"startedAt":%d,"status":"failed","error":{"detail":"d%d","status":%d}}`, n, n, n, n),
		}).Draw(rt, "shape"))
	}
	task := func(change, position string, attempt int) {
		n := len(history)
		tell("task."+change, rapid.SampledFrom([]string{
			fmt.Sprintf(`{"workflow":"$","task":%q,"completedAt":%d,"status":"pending"}`, position, n),
			fmt.Sprintf(`{"instanceId":"$","taskPosition":%q,"attempt":%d,"taskExecutionId":"x%d","input":%d,"output":%d,"status":"RUNNING","error":{"type":"t%d"}}`, position, attempt, n, n, n, n),
		}).Draw(rt, "shape"))
	}
	changes := rapid.SampledFrom([]string{"created", "started", "suspended", "resumed", "completed", "faulted", "cancelled", "retried", "status-changed"})
	workflow("started")
	for range rapid.IntRange(1, 10).Draw(rt, "steps") {
		switch rapid.IntRange(0, 2).Draw(rt, "who") {
		case 0:
			workflow(changes.Draw(rt, "change"))
		case 1: // a turn of a loop
			task("started", "do/0/loop", 0)
			task("completed", "do/0/loop", 0)
		default:
			task(changes.Draw(rt, "change"), rapid.SampledFrom([]string{"do/1/a", "/do/1/a", "do/2/b"}).Draw(rt, "position"), rapid.IntRange(0, 1).Draw(rt, "attempt"))
		}
	}
	// A change of status without a status is refused, in whatever order it comes.
	return slices.DeleteFunc(history, func(r topics.Record) bool { return projections.DataIndex(nil).NewBatch().Add(r) != nil })
}

// The same for histories of Millrace's own engine, whose versions count and not its
// clock.
func TestOurOwnEventsAreOrderedByVersion(t *testing.T) {
	t.Parallel()
	numbered := func(sequence int64, at string, e topics.Event) topics.Record {
		env, err := topics.NewEnvelope(e, topics.WithSequence(sequence), topics.WithTime(clock(t, at)), topics.WithID(fmt.Sprint(sequence)))
		require.NoError(t, err)
		r := env.Record(string(topics.FlowLifecycle), []byte(env.Subject))
		r.Timestamp = clock(t, at)
		return r
	}
	rows := projectionstest.Converge(t, database(t), projections.DataIndex(nil), []topics.Record{
		numbered(1, "30:00", topics.WorkflowStarted{InstanceID: "w", WorkflowName: "first"}),
		numbered(2, "20:00", topics.TaskFaulted{InstanceID: "w", TaskPosition: "p", Error: &topics.LifecycleError{Title: "e"}}),
		numbered(3, "10:00", topics.TaskRetried{InstanceID: "w", TaskPosition: "p"}),
		numbered(4, "05:00", topics.WorkflowFaulted{InstanceID: "w", WorkflowName: "second"}),
		numbered(5, "00:00", topics.WorkflowCompleted{InstanceID: "w"}),
	})
	shows(t, rows["workflow_instances"][0], map[string]any{"name": "first", "status": "COMPLETED", "last_event_time": "30:00", "end": "00:00"})
	shows(t, rows["task_instances"][0], map[string]any{"status": "RUNNING", "end": nil, "error_title": nil})
}

// The longest keys and names there may be fit into every index, also such as cannot be
// compressed.
func TestTheLongestNamesFitIntoTheIndexes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + random.IntN(26))
		}
		return string(b)
	}
	id, name := noise(1024), func() string { return noise(5000) }
	workflows, tasks := indexed(t, database(t),
		flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"` + id + `","workflowName":"` + name() + `","workflowNamespace":"` + name() + `","workflowVersion":"` + name() + `"}`},
		flowEvent{kind: "task.faulted", at: "00:00", data: `{"instanceId":"` + id + `","taskPosition":"` + noise(1024) + `","taskName":"` + name() + `","taskExecutionId":"` + name() +
			`","error":{"type":"` + name() + `","title":"` + name() + `","instance":"` + name() + `"}}`},
	)
	assert.Len(t, workflows, 1)
	assert.Len(t, tasks, 1)
}

// A reopening takes back what the end said, and only that.
func TestAReopeningClearsTheEnd(t *testing.T) {
	t.Parallel()
	pool := database(t)
	faulted := flowEvent{kind: "workflow.faulted", at: "01:00", data: `{"instanceId":"w","input":1,"output":2,"error":{"type":"t","title":"ti","detail":"d","status":500,"instance":"i"}}`}
	retried := flowEvent{kind: "workflow.retried", at: "02:00", data: `{"instanceId":"w"}`}
	workflows, _ := indexed(t, pool, faulted, retried)
	shows(t, workflows[0], map[string]any{
		"status": "RUNNING", "input": 1.0, "end": nil, "output": nil, "last_update": "02:00",
		"error_type": nil, "error_title": nil, "error_detail": nil, "error_status": nil, "error_instance": nil,
	})
	workflows, _ = indexed(t, pool, faulted, retried, flowEvent{kind: "workflow.completed", at: "03:00", data: `{"instanceId":"w","output":3}`})
	shows(t, workflows[0], map[string]any{"status": "COMPLETED", "end": "03:00", "output": 3.0, "error_title": nil})
}

// An event of the future is kept and flagged, and the present overtakes it.
func TestEventsOfTheFuture(t *testing.T) {
	t.Parallel()
	far := flowEvent{kind: "workflow.suspended", at: "50:00", late: -40 * time.Minute, data: `{"instanceId":"w","lastUpdateTime":"2099-01-01T00:00:00Z"}`}
	workflows, _ := indexed(t, database(t),
		flowEvent{kind: "workflow.started", at: "09:00", data: `{"instanceId":"w"}`}, far,
		flowEvent{kind: "workflow.completed", at: "16:00", data: `{"instanceId":"w"}`},
		flowEvent{kind: "task.started", at: "09:30", data: `{"instanceId":"w","taskPosition":"p"}`},
	)
	shows(t, workflows[0], map[string]any{"status": "COMPLETED", "last_event_time": "16:00", "last_update": "16:00", "events_future": true})
}

// Values that PostgreSQL cannot hold cost neither the event nor the batch.
func TestValuesThatPostgreSQLCannotHold(t *testing.T) {
	t.Parallel()
	pool := database(t)
	long := strings.Repeat("ö", 5000)
	deep := strings.Repeat(`[`, 2000) + strings.Repeat(`]`, 2000)
	wide := `{"a\u0000":"\ud800","n":[1e999999,-0,1E-20000,` + strings.Repeat("9", 140_000) + `],"ok":1.50}`
	reg := prometheus.NewRegistry()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	h := pipelinetest.New(t, projections.DataIndex(projections.NewDataIndexMetrics(reg)).Consumer(), pipelinetest.WithTx(tx))
	h.FeedRecord(flow(t,
		flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w","workflowName":"a\u0000b","workflowNamespace":"` + long + `","input":` + wide + `}`},
		flowEvent{kind: "workflow.faulted", at: "01:00", data: `{"instanceId":"w","output":` + deep + `,"error":{"detail":"\u0000` + long + `","title":"\ud800` + long + `"}}`},
		flowEvent{kind: "workflow.started", at: "02:00", data: `{"instanceId":"next"}`},
		flowEvent{kind: "workflow.correlation-started", at: "02:00", data: `{"name":"w"}`},
		flowEvent{kind: "workflow.started", at: "03:00", data: `{"no":"instance"}`}, // is not counted, nor the others twice
	)...)
	require.Len(t, h.DeadLetters(), 1)
	var name, namespace, input, output, title, detail string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT name, namespace, input::text, output #>> '{}', error_title, error_detail FROM workflow_instances WHERE id = 'w'`).
		Scan(&name, &namespace, &input, &output, &title, &detail))
	assert.Equal(t, "a\uFFFDb", name)
	assert.Equal(t, long[:254], namespace, "short enough for an index")
	assert.Contains(t, input, `"n": ["1e999999", 0, "1E-20000", "9999`)
	assert.Contains(t, input, "\"a\uFFFD\": \"\uFFFD\"")
	assert.Contains(t, input, `"ok": 1.50`)
	assert.Equal(t, deep, output, "what is nested too deep is kept as a text")
	assert.Equal(t, "\uFFFD"+long, detail, "whole")
	assert.Len(t, title, 1023)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_data_index_altered_total Lifecycle events with an input or output that PostgreSQL could not store as it was.
# TYPE millrace_data_index_altered_total counter
millrace_data_index_altered_total 2
# HELP millrace_data_index_events_total Lifecycle events that the data index read, by the shape of their data.
# TYPE millrace_data_index_events_total counter
millrace_data_index_events_total{shape="flat"} 3
# HELP millrace_data_index_future_total Lifecycle events that claimed to come from the future.
# TYPE millrace_data_index_future_total counter
millrace_data_index_future_total 0
# HELP millrace_data_index_skipped_total Events of the lifecycle topic that tell of no change of a workflow or task, by reason.
# TYPE millrace_data_index_skipped_total counter
millrace_data_index_skipped_total{reason="other_type"} 0
millrace_data_index_skipped_total{reason="unknown_change"} 1
`)))
}
