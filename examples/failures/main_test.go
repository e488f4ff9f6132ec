package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func failed(id, reason string) topics.ExecutionFailed {
	return topics.ExecutionFailed{
		ExecutionID: id, Attempt: 1, Failure: topics.Failure{Reason: reason}, FinishedAt: time.Unix(1, 0).UTC(),
	}
}

func TestAFailureIsCountedOnce(t *testing.T) {
	t.Parallel()
	h := pipelinetest.New(t, failures())

	h.Feed(failed("e-1", "exit_code"))
	require.Len(t, h.Statements(), 1)
	assert.Equal(t, []any{"exit_code"}, h.Statements()[0].Args)

	// The broker delivers it again, because our ack was lost.
	again, err := h.Redeliver()
	require.NoError(t, err)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Duplicate}, again)
	assert.Len(t, h.Statements(), 1)
}

func TestOtherEventsArePassedOver(t *testing.T) {
	t.Parallel()
	h := pipelinetest.New(t, failures())
	outcomes := h.Feed(topics.ExecutionCancelRequested{ExecutionID: "e-1", Attempt: 1, By: "somebody"})
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Unknown}, outcomes)
	assert.Empty(t, h.Statements())
}

func TestCountsAddUpInPostgreSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, testenv.Database(t, nil))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(ctx, schema)
	require.NoError(t, err)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)

	h := pipelinetest.New(t, failures(), pipelinetest.WithTx(tx))
	h.Feed(failed("e-1", "exit_code"), failed("e-2", "signal"), failed("e-3", "exit_code"))
	_, err = h.Redeliver()
	require.NoError(t, err)

	var count int
	require.NoError(t, tx.QueryRow(ctx, `SELECT executions FROM example_failures WHERE reason = 'exit_code'`).Scan(&count))
	assert.Equal(t, 2, count)
}
