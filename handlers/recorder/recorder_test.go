package recorder_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/recorder"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestEveryRecordIsRecordedOnceWhateverItIs(t *testing.T) {
	t.Parallel()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	h := pipelinetest.New(t, recorder.New(prometheus.NewRegistry()), pipelinetest.WithTx(tx))

	queued, err := topics.NewEnvelope(topics.ExecutionQueued{
		ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Priority: 3}, topics.WithSequence(2))
	require.NoError(t, err)
	foreign := topics.Record{Topic: "execution_events", Key: []byte("e1"), Value: []byte("\x00garbage"),
		Headers: []topics.Header{{Key: "x", Value: []byte{0xff}}, {Key: "x", Value: nil}}}
	outcomes := h.FeedRecord(queued.Record("execution_events", []byte("e1")), foreign)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done, pipelinetest.Done}, outcomes)
	assert.Empty(t, h.DeadLetters(), "what nobody can decode is recorded, not filed away")

	// Another owner that does not know of the position gets the same records again.
	_, err = h.Redeliver()
	require.NoError(t, err)
	var count int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM event_log`).Scan(&count))
	assert.Equal(t, 2, count)

	entries, _, err := eventlog.BySubject(t.Context(), tx, "e1", eventlog.Cursor{}, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	env, err := topics.DecodeRecord(entries[0].Record)
	require.NoError(t, err)
	assert.Equal(t, queued.ID, env.ID)
}

func TestDecisionsAreCounted(t *testing.T) {
	t.Parallel()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	reg := prometheus.NewPedanticRegistry()
	h := pipelinetest.New(t, recorder.New(reg), pipelinetest.WithTx(tx))
	var records []topics.Record
	for i, ev := range []topics.Event{
		topics.ExecutionQueued{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Priority: 3, Reason: topics.QueuedReady},
		topics.ExecutionScheduled{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Reason: topics.ScheduledAged},
		topics.ExecutionStarted{ExecutionID: "e1", Attempt: 1, Worker: "w", Executor: "process"},
		topics.ExecutionScheduled{ExecutionID: "e2", Attempt: 1, ResourceClass: "default", Reason: topics.ScheduledAged},
		topics.ExecutionScheduled{ExecutionID: "e3", Attempt: 1, ResourceClass: "default", Reason: "a_later_version_knows"},
	} {
		env, err := topics.NewEnvelope(ev, topics.WithSequence(int64(i+1)))
		require.NoError(t, err)
		records = append(records, env.Record("execution_events", []byte(ev.EventKey())))
	}
	h.FeedRecord(records...)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_decisions_total Decisions about executions that were recorded, by what was decided and why.
# TYPE millrace_decisions_total counter
millrace_decisions_total{decision="queued",reason="ready"} 1
millrace_decisions_total{decision="scheduled",reason="aged"} 2
millrace_decisions_total{decision="scheduled",reason="other"} 1
`), "millrace_decisions_total"))
}

// A stage is observed with the record that tells of it, once.
func TestStagesAreMeasuredOnce(t *testing.T) {
	t.Parallel()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	reg := prometheus.NewPedanticRegistry()
	h := pipelinetest.New(t, recorder.New(reg), pipelinetest.WithTx(tx))
	ev := topics.ExecutionScheduled{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", PendingMillis: 31_000, Reason: topics.ScheduledAged}
	env, err := topics.NewEnvelope(ev, topics.WithSequence(3))
	require.NoError(t, err)
	h.FeedRecord(env.Record("execution_events", []byte("e1")))
	_, err = h.Redeliver()
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_service_level_breaches_total Executions that took longer than their service level allows.
# TYPE millrace_service_level_breaches_total counter
millrace_service_level_breaches_total{level="log"} 0
millrace_service_level_breaches_total{level="task"} 1
`), "millrace_service_level_breaches_total"))
}

func TestTopicsAreRecordedByConsumersOfTheirOwn(t *testing.T) {
	t.Parallel()
	recorded := []topics.Topic{topics.ExecutionEvents, topics.FlowLifecycle, "Billing.Orders_1", "käse"}
	var names []string
	for _, c := range recorder.Consumers(prometheus.NewRegistry(), recorded) {
		require.NoError(t, c.Validate())
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"recorder", "recorder.flow-lifecycle-out", "recorder.billing.orders_1.8521c6ad", "recorder.k-se.28f37578"}, names,
		"they are consumer groups: another name reads the topic again")
}

func TestTheLogSaysInWhichTopicARecordLay(t *testing.T) {
	t.Parallel()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	for _, c := range recorder.Consumers(prometheus.NewRegistry(), []topics.Topic{topics.ExecutionEvents, topics.FlowLifecycle}) {
		h := pipelinetest.New(t, c, pipelinetest.WithTx(tx))
		h.FeedRecord(topics.Record{Key: []byte("k"), Value: []byte(c.Topic)})
		_, err := h.Redeliver()
		require.NoError(t, err)
	}
	page, err := eventlog.Scan(t.Context(), tx, eventlog.Filter{Topics: []string{"flow-lifecycle-out"}}, eventlog.Place{}, 10)
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	assert.Equal(t, "flow-lifecycle-out", page.Entries[0].Record.Topic)
	assert.Equal(t, "flow-lifecycle-out", string(page.Entries[0].Record.Value))
}
