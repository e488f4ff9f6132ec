package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
	"github.com/millrace/millrace/topics"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func request(change func(*topics.Request)) topics.Request {
	req := topics.Request{
		Tenant: "acme", User: "ada", Executor: "process", Spec: json.RawMessage(`{"command":["/bin/echo","hi"]}`),
		Priority: 3, ResourceClass: "default", Labels: map[string]string{"team": "blue"},
		Retry: topics.Retry{MaxAttempts: 2, Backoff: topics.Duration(time.Second)}, Origin: topics.Origin{Kind: "rest"},
	}
	if change != nil {
		change(&req)
	}
	return req
}

// history plays an execution through two attempts and returns its events: the
// first worker is lost, the second attempt fails, the third is told to stop.
func history(t testing.TB, id string) []topics.Envelope {
	t.Helper()
	now := start
	tick := func() time.Time { now = now.Add(time.Second); return now }
	policy := execution.DefaultPolicy()
	e := execution.New(id, request(nil), now)
	must := func(err error) { require.NoError(t, err) }
	run := func(worker string) {
		_, err := e.Schedule(tick(), "c1", topics.ScheduledInTurn, policy)
		must(err)
		must(e.Start(tick(), worker, e.Attempt, time.Minute))
	}
	must(e.Reprioritize(tick(), 4, "ada", "", policy))
	must(e.Queue(tick(), policy))
	must(e.Reprioritize(tick(), 5, "ada", "urgent", policy))
	run("w1")
	e.Output(tick(), topics.ExecutionOutput{ExecutionID: id, Attempt: 1, Stream: "stdout", Data: []byte("x"), Size: 1})
	now = now.Add(time.Hour)
	require.True(t, e.Expire(now, policy))
	now = e.ReadyAt
	run("w2")
	exit := 3
	must(e.Finish(tick(), "w2", e.Attempt, executor.Result{
		Outcome: executor.Failed, Reason: "exit_code", Message: "exit status 3", ExitCode: &exit, Retryable: true,
	}, policy))
	now = e.ReadyAt
	run("w3")
	must(e.RequestCancel(tick(), "ada", "enough"))
	must(e.Finish(tick(), "w3", e.Attempt, executor.Result{
		Outcome: executor.Cancelled, Stdout: executor.StreamSummary{Bytes: 5, KeptBytes: 5},
	}, policy))
	return envelopes(t, e)
}

func envelopes(t testing.TB, e *execution.Execution) []topics.Envelope {
	t.Helper()
	var out []topics.Envelope
	for _, r := range e.TakeEvents() {
		env, err := topics.NewEnvelope(r.Event, topics.WithSequence(r.Sequence), topics.WithTime(r.At))
		require.NoError(t, err)
		out = append(out, env)
	}
	return out
}

func apply(t testing.TB, pool *pgxpool.Pool, events ...topics.Envelope) {
	t.Helper()
	require.NoError(t, merge(t.Context(), pool, projections.Executions(), events))
}

// records makes records of events, as they would lie in a topic.
func records(events ...topics.Envelope) []topics.Record {
	out := make([]topics.Record, len(events))
	for i, env := range events {
		out[i] = env.Record(string(topics.ExecutionEvents), []byte(env.Subject))
		out[i].Offset, out[i].Timestamp = int64(i), env.Time
	}
	return out
}

// merge folds events into one batch and merges it.
func merge(ctx context.Context, tx projections.Execer, p projections.Projection, events []topics.Envelope) error {
	b := p.NewBatch()
	for _, env := range events {
		if err := b.AddEvent(projections.NewEvent(env, topics.Record{})); err != nil {
			return err
		}
	}
	return b.Merge(ctx, tx, nil)
}

func list(t testing.TB, db query.DB) []query.Execution {
	t.Helper()
	page, err := query.NewStore(db, query.Limits{}).Executions().List(t.Context(), query.Scope{}, query.Request{})
	require.NoError(t, err)
	return page.Rows
}

func TestTheViewShowsWhereAnExecutionStands(t *testing.T) {
	t.Parallel()
	pool := database(t)
	events := history(t, "e1")
	states := []execution.State{}
	for _, env := range events {
		apply(t, pool, env)
		states = append(states, *list(t, pool)[0].State)
	}
	assert.Equal(t, []execution.State{
		"REQUESTED", "REQUESTED", "QUEUED", "QUEUED", "SCHEDULED", "RUNNING", "RUNNING", "RUNNING", // output, lease_expired
		"QUEUED", "SCHEDULED", "RUNNING", "QUEUED", "SCHEDULED", "RUNNING", "RUNNING", "CANCELLED",
	}, states)

	v := list(t, pool)[0]
	assert.Equal(t, "echo", *v.Name)
	assert.JSONEq(t, `{"team": "blue"}`, string(v.Labels))
	assert.Equal(t, "rest", *v.OriginKind)
	assert.Equal(t, 5, *v.Priority)
	assert.Equal(t, 3, v.Attempt)
	assert.Equal(t, "w3", *v.Worker)
	assert.Equal(t, "cancelled", *v.Reason)
	assert.Equal(t, "enough", *v.Message)
	assert.Nil(t, v.ExitCode, "the exit code of an earlier attempt is not that of this end")
	assert.Equal(t, int64(5), *v.StdoutBytes)
	assert.Equal(t, int64(len(events)), v.Version)
	assert.Equal(t, events[len(events)-1].Time, *v.FinishedAt)
	assert.Equal(t, start, *v.RequestedAt)
	assert.NotNil(t, v.CancelRequestedAt)
}

func TestAnAttemptThatWaitsAgainShowsWhyAndNothingOfTheLastRun(t *testing.T) {
	t.Parallel()
	pool := database(t)
	events := history(t, "e1")
	failed := slices.IndexFunc(events, func(e topics.Envelope) bool {
		return e.Type == topics.ExecutionRequeued{}.EventType() && e.Sequence > 10
	})
	apply(t, pool, events[:failed+1]...)
	v := list(t, pool)[0]
	assert.Equal(t, execution.Queued, *v.State)
	assert.Equal(t, 3, v.Attempt)
	assert.Equal(t, "exit_code", *v.Reason)
	assert.Equal(t, 3, *v.ExitCode)
	assert.Equal(t, "w2", *v.Worker)
	assert.Nil(t, v.StartedAt)
	assert.Nil(t, v.ScheduledAt)
	assert.Nil(t, v.FinishedAt)
	assert.NotNil(t, v.ReadyAt)
}

func TestAnyOrderAnyBatchingAnyRepetitionGivesTheSameRow(t *testing.T) {
	t.Parallel()
	pool := database(t)
	whole := records(history(t, "e1")...)
	row := projectionstest.Converge(t, pool, projections.Executions(), whole)["execution_views"][0]
	unset := []string{"concurrency_key", "rerun_of", "not_before", "signal", "exit_code", "duration_millis"}
	for column, value := range row {
		if !slices.Contains(unset, column) {
			assert.NotNil(t, value, "the history leaves %s unset, so the property says nothing about it", column)
		}
	}
	projectionstest.Converge(t, pool, projections.Executions(), whole[:5])
}

func TestARowIsListedOnlyOnceItsRequestIsKnown(t *testing.T) {
	t.Parallel()
	pool := database(t)
	events := history(t, "e1")
	apply(t, pool, events[1:]...)
	assert.Empty(t, list(t, pool))
	apply(t, pool, events[0])
	assert.Len(t, list(t, pool), 1)
}

func TestABatchWithSeveralExecutionsIsOneStatement(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var events []topics.Envelope
	for i := range 40 {
		events = append(events, history(t, fmt.Sprintf("e%02d", i))...)
	}
	apply(t, pool, events...)
	views := list(t, pool)
	assert.Len(t, views, 40)
	for _, v := range views {
		assert.Equal(t, execution.Cancelled, *v.State)
	}
}

func TestBadEventsAreMessageFaultsAndHostileTextIsStored(t *testing.T) {
	t.Parallel()
	pool := database(t)
	good := history(t, "e1")[0]
	unversioned, broken, foreign := good, good, good
	unversioned.Sequence = 0
	broken.Data = []byte(`{"execution_id":"e1"}`)
	foreign.Type, foreign.Sequence = "com.example.other", 0
	for _, env := range []topics.Envelope{unversioned, broken} {
		err := merge(t.Context(), pool, projections.Executions(), []topics.Envelope{env})
		require.Error(t, err)
		assert.Equal(t, middleware.MessageFault, middleware.Classifier{}.Classify(t.Context(), err))
	}
	apply(t, pool, foreign)
	assert.Empty(t, list(t, pool))

	e := execution.New("e2", request(func(r *topics.Request) { r.Labels = map[string]string{"name": "a\x00b", "k": "\x00"} }), start)
	require.NoError(t, e.Reject(start, "no_such_pool", "odd \x00 text", 0))
	apply(t, pool, envelopes(t, e)...)
	v := list(t, pool)[0]
	assert.Equal(t, "a\uFFFDb", *v.Name)
	assert.Equal(t, "odd \uFFFD text", *v.Message)
	assert.Equal(t, execution.Rejected, *v.State)
	assert.Equal(t, start, *v.FinishedAt)
}
