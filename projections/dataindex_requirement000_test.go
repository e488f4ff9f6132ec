package projections_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
	"github.com/millrace/millrace/topics"
)

// Requirement 000, section by section. Its sections Event Format and Timestamp Handling
// are tested where they are implemented, in internal/lifecycle; Overview, and Error
// Handling with brokers and all, in package app. Where it says what must not happen in
// one order of arrival, Converge asserts it for all of them.

// flowEvent is a lifecycle event as an engine sends it.
type flowEvent struct {
	// What is between "io.serverlessworkflow." and ".v1".
	kind string
	// When it happened, in minutes and seconds after ten, such as "05:30".
	at   string
	data string
	// Defaults to one of kind and at; set it where two events have these in common.
	id string
	// How long after it happened the broker took it.
	late time.Duration
}

func clock(t testing.TB, at string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, "2026-05-25T10:"+at+"Z")
	require.NoError(t, err)
	return parsed
}

func (f flowEvent) record(t testing.TB) topics.Record {
	t.Helper()
	id := f.id
	if id == "" {
		id = f.kind + "@" + f.at
	}
	at := clock(t, f.at)
	return topics.Record{
		Topic: string(topics.FlowLifecycle), Key: []byte("k"), Timestamp: at.Add(f.late),
		Value: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"engine","type":"io.serverlessworkflow.%s.v1","time":%q,"data":%s}`,
			id, f.kind, at.Format(time.RFC3339Nano), f.data),
	}
}

func flow(t testing.TB, events ...flowEvent) []topics.Record {
	t.Helper()
	records := make([]topics.Record, len(events))
	for i, e := range events {
		records[i] = e.record(t)
		records[i].Offset = int64(i)
	}
	return records
}

// indexed returns the rows that a history comes to, in any order: workflows and tasks.
func indexed(t *testing.T, pool *pgxpool.Pool, events ...flowEvent) (workflows, tasks []map[string]any) {
	t.Helper()
	rows := projectionstest.Converge(t, pool, projections.DataIndex(nil), flow(t, events...))
	return rows["workflow_instances"], rows["task_instances"]
}

// shows asserts some columns of a row; times are written as clock reads them.
func shows(t *testing.T, row map[string]any, want map[string]any) {
	t.Helper()
	for column, value := range want {
		got := row[column]
		if text, ok := got.(string); ok {
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				got = strings.TrimPrefix(at.UTC().Format("15:04:05.999999"), "10:")
			}
		}
		assert.Equal(t, value, got, column)
	}
}

// Components: what each type does to a workflow.
func TestRequirement000_Components_WorkflowEventProcessor(t *testing.T) {
	t.Parallel()
	pool := database(t)
	started := flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w","workflowName":"n","workflowNamespace":"ns","workflowVersion":"1","startTime":"2026-05-25T10:00:00Z","input":{"a":1}}`}
	for kind, c := range map[string]struct {
		data string
		want map[string]any
	}{
		"started":   {`{"instanceId":"w"}`, map[string]any{"status": "RUNNING", "end": nil}},
		"completed": {`{"instanceId":"w","endTime":"2026-05-25T10:05:00Z","output":{"b":2}}`, map[string]any{"status": "COMPLETED", "end": "05:00", "output": map[string]any{"b": 2.0}}},
		"faulted": {`{"instanceId":"w","endTime":"2026-05-25T10:05:00Z","error":{"type":"t","title":"ti","detail":"d","status":500,"instance":"i"}}`,
			map[string]any{"status": "FAULTED", "end": "05:00", "error_type": "t", "error_title": "ti", "error_detail": "d", "error_status": 500.0, "error_instance": "i"}},
		"suspended": {`{"instanceId":"w"}`, map[string]any{"status": "SUSPENDED", "end": nil}},
		"cancelled": {`{"instanceId":"w","endTime":"2026-05-25T10:05:00Z"}`, map[string]any{"status": "CANCELLED", "end": "05:00"}},
	} {
		workflows, tasks := indexed(t, pool, started, flowEvent{kind: "workflow." + kind, at: "05:00", data: c.data})
		require.Len(t, workflows, 1)
		assert.Empty(t, tasks)
		shows(t, workflows[0], c.want)
		shows(t, workflows[0], map[string]any{
			"id": "w", "name": "n", "namespace": "ns", "version": "1", "start": "00:00", "input": map[string]any{"a": 1.0}, "last_event_time": "05:00",
		})
	}
}

// Components: what each type does to a task.
func TestRequirement000_Components_TaskExecutionProcessor(t *testing.T) {
	t.Parallel()
	pool := database(t)
	started := flowEvent{kind: "task.started", at: "00:00", data: `{"instanceId":"w","taskExecutionId":"x","taskName":"n","taskPosition":"do/0/n","startTime":"2026-05-25T10:00:00Z","input":[1]}`}
	for kind, c := range map[string]struct {
		data string
		want map[string]any
	}{
		"started":   {`{"instanceId":"w","taskPosition":"do/0/n"}`, map[string]any{"status": "RUNNING", "end": nil}},
		"completed": {`{"instanceId":"w","taskPosition":"do/0/n","endTime":"2026-05-25T10:05:00Z","output":"b"}`, map[string]any{"status": "COMPLETED", "end": "05:00", "output": "b"}},
		"faulted": {`{"instanceId":"w","taskPosition":"do/0/n","endTime":"2026-05-25T10:05:00Z","error":{"type":"t","status":404}}`,
			map[string]any{"status": "FAULTED", "end": "05:00", "error_type": "t", "error_status": 404.0, "error_title": nil}},
		"suspended": {`{"instanceId":"w","taskPosition":"do/0/n"}`, map[string]any{"status": "SUSPENDED", "end": nil}},
		"cancelled": {`{"instanceId":"w","taskPosition":"do/0/n","endTime":"2026-05-25T10:05:00Z"}`, map[string]any{"status": "CANCELLED", "end": "05:00"}},
	} {
		_, tasks := indexed(t, pool, started, flowEvent{kind: "task." + kind, at: "05:00", data: c.data})
		require.Len(t, tasks, 1)
		shows(t, tasks[0], c.want)
		shows(t, tasks[0], map[string]any{
			"instance_id": "w", "task_position": "do/0/n", "task_execution_id": "x", "task_name": "n", "start": "00:00", "input": []any{1.0}, "last_event_time": "05:00",
		})
	}
}

// Components, Persistence Layer: a task is its instance and position, although the id of
// the execution is another one in every event; turns of a loop and attempts are kept
// apart where the engine tells them (decision 10).
func TestRequirement000_Components_PersistenceLayer_Key(t *testing.T) {
	t.Parallel()
	pool := database(t)
	task := func(kind, at, id, more string) flowEvent {
		return flowEvent{kind: "task." + kind, at: at, data: `{"instanceId":"w","taskPosition":"do/0/n","taskExecutionId":"` + id + `"` + more + `}`}
	}
	_, tasks := indexed(t, pool, task("started", "00:00", "x1", ""), task("suspended", "01:00", "x2", ""), task("completed", "02:00", "x3", ""))
	require.Len(t, tasks, 1)
	shows(t, tasks[0], map[string]any{"task_execution_id": "x1", "status": "COMPLETED", "iteration": 0.0, "attempt": 0.0})

	_, tasks = indexed(t, pool, task("started", "00:00", "x1", ""), task("faulted", "01:00", "x1", `,"attempt":0`),
		task("started", "02:00", "x2", `,"attempt":1`), task("completed", "03:00", "x2", `,"attempt":1`), task("started", "04:00", "x3", `,"iteration":1`))
	require.Len(t, tasks, 3)
	for i, want := range []map[string]any{
		{"attempt": 0.0, "iteration": 0.0, "status": "FAULTED"}, {"attempt": 1.0, "iteration": 0.0, "status": "COMPLETED"}, {"attempt": 0.0, "iteration": 1.0, "status": "RUNNING"},
	} {
		at := slices.IndexFunc(tasks, func(row map[string]any) bool {
			return row["attempt"] == want["attempt"] && row["iteration"] == want["iteration"]
		})
		require.GreaterOrEqual(t, at, 0, i)
		shows(t, tasks[at], want)
	}
}

// Idempotency, Immutable Fields: what the earliest event says stays, by time and not by
// arrival (decision 24).
func TestRequirement000_Idempotency_ImmutableFields(t *testing.T) {
	t.Parallel()
	pool := database(t)
	workflows, tasks := indexed(t, pool,
		flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w","workflowName":"n1","workflowNamespace":"ns1","workflowVersion":"1","startTime":"2026-05-25T10:00:00Z","input":1}`},
		flowEvent{kind: "workflow.started", at: "01:00", data: `{"instanceId":"w","workflowName":"n2","workflowNamespace":"ns2","workflowVersion":"2","startTime":"2026-05-25T10:01:00Z","input":2}`},
		flowEvent{kind: "workflow.completed", at: "02:00", data: `{"instanceId":"w","workflowName":"n3","startTime":"2026-05-25T09:00:00Z","input":3}`},
		flowEvent{kind: "task.started", at: "00:30", data: `{"instanceId":"w","taskPosition":"p","taskName":"a","taskExecutionId":"x","startTime":"2026-05-25T10:00:30Z","input":"i"}`},
		flowEvent{kind: "task.completed", at: "01:30", data: `{"instanceId":"w","taskPosition":"/p","taskName":"b","taskExecutionId":"y","startTime":"2026-05-25T10:01:30Z","input":"j"}`},
	)
	require.Len(t, workflows, 1)
	shows(t, workflows[0], map[string]any{"name": "n1", "namespace": "ns1", "version": "1", "start": "00:00", "input": 1.0})
	require.Len(t, tasks, 1)
	shows(t, tasks[0], map[string]any{"task_name": "a", "task_execution_id": "x", "task_position": "p", "start": "00:30", "input": "i"})
}

// Idempotency, Terminal Fields: its example. A value is replaced by a newer one only,
// and a null is always filled (decision 9).
func TestRequirement000_Idempotency_TerminalFields(t *testing.T) {
	t.Parallel()
	pool := database(t)
	workflows, _ := indexed(t, pool,
		flowEvent{kind: "workflow.completed", at: "05:00", data: `{"instanceId":"w","endTime":"2026-05-25T10:05:00Z","lastUpdateTime":"2026-05-25T10:05:00Z"}`},
		flowEvent{kind: "workflow.completed", at: "01:00", data: `{"instanceId":"w","endTime":"2026-05-25T10:01:00Z","lastUpdateTime":"2026-05-25T10:01:00Z","output":{"from":"10:01"}}`},
	)
	shows(t, workflows[0], map[string]any{"end": "05:00", "last_update": "05:00", "output": map[string]any{"from": "10:01"}})

	_, tasks := indexed(t, pool,
		flowEvent{kind: "task.faulted", at: "05:00", data: `{"instanceId":"w","taskPosition":"p","endTime":"2026-05-25T10:05:00Z","error":{"title":"second","status":502}}`},
		flowEvent{kind: "task.faulted", at: "01:00", data: `{"instanceId":"w","taskPosition":"p","endTime":"2026-05-25T10:01:00Z","output":1,"error":{"title":"first","detail":"only here","status":500}}`},
	)
	shows(t, tasks[0], map[string]any{"end": "05:00", "error_title": "second", "error_status": 502.0, "error_detail": "only here", "output": 1.0})
}

// Idempotency, Status Field: its example, and the precedence that it names.
func TestRequirement000_Idempotency_StatusField(t *testing.T) {
	t.Parallel()
	pool := database(t)
	example := []flowEvent{
		{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w"}`},
		{kind: "workflow.completed", at: "05:00", data: `{"instanceId":"w","endTime":"2026-05-25T10:05:00Z"}`},
		{kind: "workflow.completed", at: "01:00", data: `{"instanceId":"w","endTime":"2026-05-25T10:01:00Z"}`},
	}
	for i, want := range []map[string]any{
		{"status": "RUNNING", "last_event_time": "00:00"},
		{"status": "COMPLETED", "end": "05:00", "last_event_time": "05:00"},
		{"status": "COMPLETED", "end": "05:00", "last_event_time": "05:00"},
	} {
		workflows, _ := indexed(t, pool, example[:i+1]...)
		shows(t, workflows[0], want)
	}
	for name, c := range map[string]struct {
		kinds []string // one minute apart
		want  string
	}{
		"an end beats what is newer but none":      {[]string{"completed", "started"}, "COMPLETED"},
		"also a suspension":                        {[]string{"cancelled", "suspended"}, "CANCELLED"},
		"running beats a newer creation":           {[]string{"started", "created"}, "RUNNING"},
		"creation alone":                           {[]string{"created"}, "CREATED"},
		"the newer of two ends":                    {[]string{"faulted", "completed"}, "COMPLETED"},
		"and the other way round":                  {[]string{"completed", "faulted"}, "FAULTED"},
		"the newer of what is under way":           {[]string{"started", "suspended", "started"}, "RUNNING"},
		"only an explicit event reopens":           {[]string{"faulted", "retried"}, "RUNNING"},
		"resumed does too":                         {[]string{"cancelled", "resumed", "suspended"}, "SUSPENDED"},
		"and what was reopened can end":            {[]string{"faulted", "retried", "completed"}, "COMPLETED"},
		"an end after a resumption stays":          {[]string{"suspended", "resumed", "completed"}, "COMPLETED"},
		"reopened twice and no end since":          {[]string{"faulted", "retried", "faulted", "retried"}, "RUNNING"},
		"creation says nothing about the reopened": {[]string{"faulted", "retried", "created"}, "RUNNING"},
	} {
		var workflowEvents, taskEvents []flowEvent
		for i, kind := range c.kinds {
			at := fmt.Sprintf("%02d:00", i)
			workflowEvents = append(workflowEvents, flowEvent{kind: "workflow." + kind, at: at, data: `{"instanceId":"w"}`})
			taskEvents = append(taskEvents, flowEvent{kind: "task." + kind, at: at, data: `{"instanceId":"w","taskPosition":"p"}`})
		}
		workflows, _ := indexed(t, pool, workflowEvents...)
		shows(t, workflows[0], map[string]any{"status": c.want})
		_, tasks := indexed(t, pool, taskEvents...)
		shows(t, tasks[0], map[string]any{"status": c.want})
		assert.False(t, t.Failed(), name)
	}
}

// Out-of-Order Event Handling: its example, with the two tasks that its result has. The
// placeholder has no event time of its own, or an older workflow.started could not set
// the status (decision 8).
func TestRequirement000_OutOfOrderEventHandling(t *testing.T) {
	t.Parallel()
	pool := database(t)
	queue := []flowEvent{
		{kind: "task.started", at: "01:00", data: `{"instanceId":"wf-1","taskPosition":"do/0/a"}`},
		{kind: "task.completed", at: "02:00", data: `{"instanceId":"wf-1","taskPosition":"do/1/b"}`},
		{kind: "workflow.started", at: "00:00", data: `{"instanceId":"wf-1","workflowNamespace":"ns","workflowName":"n","workflowVersion":"1"}`},
	}
	workflows, tasks := indexed(t, pool, queue[:2]...)
	require.Len(t, workflows, 1, "a placeholder")
	shows(t, workflows[0], map[string]any{"id": "wf-1", "name": nil, "status": nil, "last_event_time": nil, "start": nil, "last_update": nil})
	assert.Len(t, tasks, 2)

	workflows, tasks = indexed(t, pool, queue...)
	require.Len(t, workflows, 1)
	shows(t, workflows[0], map[string]any{"id": "wf-1", "namespace": "ns", "name": "n", "version": "1", "status": "RUNNING", "last_event_time": "00:00"})
	assert.Len(t, tasks, 2)
}

// feed runs the consumer of the data index in a transaction of the test's own.
func feed(t *testing.T, pool *pgxpool.Pool, p projections.Projection, options ...pipelinetest.Option) *pipelinetest.Harness {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	return pipelinetest.New(t, p.Consumer(), append(options, pipelinetest.WithTx(tx))...)
}

// Error Handling: what cannot be processed goes to the dead-letter topic with its cause,
// and the next record is processed at once, however many there are.
func TestRequirement000_ErrorHandling_FailedEventProcessing(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := projections.DataIndex(nil).Consumer().WithDefaults()
	assert.Equal(t, topics.Topic("data-index-events-dlq"), c.Delivery.DeadLetterTopic)
	assert.Equal(t, topics.Topic("flow-lifecycle-out"), c.Topic)

	h := feed(t, pool, projections.DataIndex(nil))
	good := flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w"}`}.record(t)
	causes := map[string]string{
		`{"specversion":"1.0","id":"1","source":"s","time":"2026-05-25T10:00:00Z","data":{"instanceId":"w"}}`:                       "decode event: missing_attribute: type: is missing or empty",
		`{"specversion":"1.0","id":"1","source":"s","type":"io.serverlessworkflow.workflow.started","data":{"instanceId":"w"}}`:     "decode event: missing_attribute: time: is missing",
		`{"specversion":"1.0","id":"1","source":"s","type":"io.serverlessworkflow.workflow.started","time":"2026-05-25T10:00:00Z"}`: "decode event: missing_data: data: is missing",
		`no event`: "decode event: not_a_cloudevent: no header of CloudEvents and no JSON object as value",
	}
	var feeding []topics.Record
	var want []string
	for value, cause := range causes {
		for range 30 { // more than the breaker of other consumers would bear
			feeding = append(feeding, topics.Record{Topic: "flow-lifecycle-out", Value: []byte(value)})
			want = append(want, cause)
		}
	}
	outcomes := h.FeedRecord(append(feeding, good)...)
	for i := range feeding {
		require.Equal(t, pipelinetest.DeadLettered, outcomes[i])
	}
	assert.Equal(t, pipelinetest.Done, outcomes[len(feeding)])
	letters := h.DeadLetters()
	require.Len(t, letters, len(want))
	for i, l := range letters {
		assert.Contains(t, l.Reason, want[i])
		assert.Equal(t, middleware.MessageFault, l.Class)
	}
}

// Error Handling: a network that is gone is no fault of a record (decision 1).
func TestRequirement000_ErrorHandling_InfrastructureStalls(t *testing.T) {
	t.Parallel()
	pool := database(t)
	gone := errors.New("the database is gone")
	h := feed(t, pool, projections.DataIndex(nil), pipelinetest.WithClassifier(middleware.Classifier{
		Infrastructure: []func(error) bool{func(err error) bool { return errors.Is(err, gone) }},
	}))
	h.FailCommit(gone, false)
	_, err := h.TryRecord(flowEvent{kind: "workflow.started", at: "00:00", data: `{"instanceId":"w"}`}.record(t))
	require.ErrorIs(t, err, gone)
	assert.Empty(t, h.DeadLetters())
	outcomes, err := h.Redeliver()
	require.NoError(t, err)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, outcomes)
}

// Monitoring & Recovery: a dead letter that stock tools copy back to the topic is
// processed, whether they keep its headers or lose them (decision 23).
func TestRequirement000_MonitoringAndRecovery_CopiedBack(t *testing.T) {
	t.Parallel()
	pool := database(t)
	old := projections.DataIndex(nil)
	old.Apply = func(*projections.Batch, projections.Event) error { return errors.New("not known in this version") }
	broken := feed(t, pool, old)
	record := flowEvent{kind: "workflow.completed", at: "00:00", data: `{"instanceId":"w"}`}.record(t)
	// A redrive of Millrace's own failed before, and a replay told it once more.
	record.Headers = []topics.Header{
		{Key: topics.HeaderContentType, Value: []byte(topics.ContentTypeStructured)},
		{Key: middleware.HeaderTarget, Value: []byte(projections.DataIndexName)},
		{Key: middleware.HeaderReplayCount, Value: []byte("99")},
		{Key: middleware.HeaderRedriveOf, Value: []byte("letter-1")},
		{Key: middleware.HeaderReplaySession, Value: []byte("session-1")},
	}
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, broken.FeedRecord(record))
	letter := broken.DeadLetters()[0].Record("data-index-events-dlq")
	assert.Equal(t, record.Value, letter.Value, "the value is that of the record")

	binary, err := topics.NewEnvelope(topics.WorkflowCompleted{InstanceID: "w"}, topics.WithTime(clock(t, "01:00")), topics.WithSequence(3))
	require.NoError(t, err)
	require.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, broken.FeedRecord(binary.Record("flow-lifecycle-out", []byte("w"))))

	for name, copied := range map[string]topics.Record{
		"headers kept":           {Topic: "flow-lifecycle-out", Key: letter.Key, Value: letter.Value, Headers: letter.Headers},
		"headers and key lost":   {Topic: "flow-lifecycle-out", Value: letter.Value},
		"binary, headers kept":   broken.DeadLetters()[1].Record("data-index-events-dlq"),
		"a duplicate after that": {Topic: "flow-lifecycle-out", Value: letter.Value},
	} {
		t.Run(name, func(t *testing.T) { // its transaction ends with it
			h := feed(t, pool, projections.DataIndex(nil))
			assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, h.FeedRecord(copied))
			assert.Empty(t, h.DeadLetters())
		})
	}
}
