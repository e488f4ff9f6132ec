package rest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

func TestGetShowsWhatARunningExecutionTells(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	e := decode[Execution](t, b.do("POST", "/v1/executions", echo))
	progress := func(p *store.Progress) Execution {
		b.store.mu.Lock()
		b.store.progress = map[string]*store.Progress{e.ID: p}
		b.store.mu.Unlock()
		w := b.do("GET", "/v1/executions/"+e.ID, "")
		require.Equal(t, 200, w.Code, w.Body.String())
		return decode[Execution](t, w)
	}
	told := &store.Progress{Attempt: 1, Progress: executor.Progress{Done: 3, Total: 12, Message: "files"}, At: at, CheckpointAttempt: 1, CheckpointBytes: 30, CheckpointAt: at}
	assert.Nil(t, progress(told).Progress, "it has not been queued yet: nobody is asked")

	require.NoError(t, b.store.executions[e.ID].Queue(at, execution.DefaultPolicy()))
	assert.Nil(t, progress(nil).Progress)
	got := progress(told)
	assert.Equal(t, &Progress{Attempt: 1, Done: 3, Total: 12, Fraction: new(0.25), Message: "files", At: at}, got.Progress)
	assert.Equal(t, &Checkpoint{Attempt: 1, Bytes: 30, At: at}, got.Checkpoint)
	assert.Nil(t, progress(&store.Progress{Attempt: 1, Progress: executor.Progress{Done: 3}, At: at}).Progress.Fraction)
	assert.Nil(t, progress(&store.Progress{CheckpointAttempt: 1, CheckpointAt: at}).Progress)
}
