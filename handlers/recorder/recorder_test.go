package recorder_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
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
	h := pipelinetest.New(t, recorder.New(), pipelinetest.WithTx(tx))

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
