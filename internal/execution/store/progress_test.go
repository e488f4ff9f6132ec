package store_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

func (b *bench) tell(ref store.Ref, p *executor.Progress, checkpoint []byte) []store.Beat {
	b.t.Helper()
	beats, err := b.Heartbeat(b.t.Context(), "w", []store.Ref{ref}, time.Hour,
		store.Report{Ref: ref, Progress: p, Checkpoint: checkpoint})
	require.NoError(b.t, err)
	return beats
}

func (b *bench) progress(id string) *store.Progress {
	b.t.Helper()
	p, err := b.Progress(b.t.Context(), id)
	require.NoError(b.t, err)
	return p
}

func (b *bench) checkpoint(id string) []byte {
	b.t.Helper()
	data, err := b.Checkpoint(b.t.Context(), id)
	require.NoError(b.t, err)
	return data
}

func (b *bench) events() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM outbox_events`).Scan(&n))
	return n
}

func TestReportsAreStoredWithTheRenewal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refs := b.running(2)
	ref := refs[0]
	assert.Nil(t, b.progress(ref.ID))
	assert.Nil(t, b.checkpoint(ref.ID))
	before, version := b.events(), b.get(ref.ID).Version

	beats := b.tell(ref, &executor.Progress{Done: 1, Total: 4, Message: "one"}, nil)
	assert.Equal(t, []store.Beat{{Ref: ref, Renewed: true, Stored: true}}, beats)
	p := b.progress(ref.ID)
	assert.Equal(t, executor.Progress{Done: 1, Total: 4, Message: "one"}, p.Progress)
	assert.Equal(t, 1, p.Attempt)
	assert.False(t, p.At.IsZero())
	assert.Zero(t, p.CheckpointAttempt)

	b.tell(ref, nil, []byte{0, 0xff})
	assert.Equal(t, []byte{0, 0xff}, b.checkpoint(ref.ID))
	p = b.progress(ref.ID)
	assert.Equal(t, "one", p.Message, "a checkpoint alone leaves the progress")
	assert.Equal(t, 1, p.CheckpointAttempt)
	assert.Equal(t, 2, p.CheckpointBytes)

	b.tell(ref, &executor.Progress{Done: 2, Total: 4}, nil)
	assert.Equal(t, executor.Progress{Done: 2, Total: 4}, b.progress(ref.ID).Progress, "the whole report counts")
	assert.Equal(t, []byte{0, 0xff}, b.checkpoint(ref.ID), "and the other way round")

	assert.Nil(t, b.progress(refs[1].ID))
	assert.Equal(t, before, b.events(), "no events")
	assert.Equal(t, version, b.get(ref.ID).Version)
}

// The row is locked by somebody else: nothing is renewed, and nothing stored.
func TestReportsWaitForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	tx := b.lock(ref.ID)
	beats := b.tell(ref, &executor.Progress{Done: 1}, []byte("x"))
	assert.Equal(t, []store.Beat{{Ref: ref}}, beats)
	assert.Nil(t, b.progress(ref.ID))
	require.NoError(t, tx.Rollback(t.Context()))
	assert.True(t, b.tell(ref, &executor.Progress{Done: 1}, []byte("x"))[0].Stored)
}

func TestReportsOfStaleWorkersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	b.tell(ref, &executor.Progress{Done: 1}, []byte("first"))

	// Another worker does not hold it.
	_, err := b.Heartbeat(t.Context(), "v", []store.Ref{ref}, time.Hour, store.Report{Ref: ref, Checkpoint: []byte("stolen")})
	require.NoError(t, err)
	assert.Equal(t, "first", string(b.checkpoint(ref.ID)))

	// The lease ends, and a second attempt runs.
	_, err = b.pool.Exec(t.Context(), `UPDATE executions SET lease_expires_at = now() - interval '1 s', due_at = now() - interval '1 s'`)
	require.NoError(t, err)
	n, err := b.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Empty(t, b.tell(ref, nil, []byte("stale, queued")))
	_, err = b.pool.Exec(t.Context(), `UPDATE executions SET ready_at = now()`)
	require.NoError(t, err)
	b.admit(0)
	assert.Empty(t, b.tell(ref, nil, []byte("stale, scheduled")))
	require.Len(t, b.claim(1), 1)
	assert.Empty(t, b.tell(ref, nil, []byte("stale, running")), "though the worker has the same name")
	assert.Equal(t, "first", string(b.checkpoint(ref.ID)), "what the second attempt is given")

	second := store.Ref{ID: ref.ID, Attempt: 2}
	b.tell(second, nil, []byte("second"))
	p := b.progress(ref.ID)
	assert.Equal(t, 2, p.CheckpointAttempt)
	assert.Zero(t, p.Attempt, "the progress of the first attempt is not that of the second")
	assert.Zero(t, p.Done)
	require.ErrorIs(t, b.finish(&execution.Execution{ID: ref.ID, Attempt: 1}, executor.Result{Outcome: executor.Failed}), execution.ErrStaleAttempt)
	assert.Equal(t, "second", string(b.checkpoint(ref.ID)))
}

func TestTheLastReportComesWithTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	id := b.submit(request(func(r *topics.Request) { r.Retry.MaxAttempts, r.Retry.Backoff = 2, topics.Duration(time.Nanosecond) }))[0]
	b.queue(id)
	b.admit(0)
	finish := func(result executor.Result, done float64, checkpoint string) {
		e := b.claim(1)[0]
		outcomes, err := b.Finish(t.Context(), []store.Finish{{
			Ref: store.Ref{ID: id, Attempt: e.Attempt}, Worker: "w", Result: result,
			Progress: &executor.Progress{Done: done, Total: 10}, Checkpoint: []byte(checkpoint),
		}})
		require.NoError(t, err)
		require.NoError(t, outcomes[0])
	}
	finish(executor.Result{Outcome: executor.Failed, Retryable: true}, 5, "half")
	assert.Equal(t, "half", string(b.checkpoint(id)), "for the next attempt")
	assert.Equal(t, executor.Progress{Done: 5, Total: 10}, b.progress(id).Progress)

	b.admit(0)
	finish(executor.Result{Outcome: executor.Completed}, 10, "all")
	p := b.progress(id)
	assert.Equal(t, executor.Progress{Done: 10, Total: 10}, p.Progress)
	assert.Equal(t, 2, p.Attempt)
	assert.Equal(t, "half", string(b.checkpoint(id)), "nobody will ask for another one")
}

func TestProgressIsPurgedAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refs := b.running(3)
	for _, ref := range refs {
		b.tell(ref, &executor.Progress{Done: 1}, bytes.Repeat([]byte("x"), executor.MaxCheckpointBytes))
	}
	require.NoError(t, b.finish(b.get(refs[0].ID), executor.Result{Outcome: executor.Completed}))
	_, err := b.pool.Exec(t.Context(), `DELETE FROM executions WHERE id = $1::text::uuid`, refs[1].ID)
	require.NoError(t, err)

	n, err := b.PurgeProgress(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "that of the one that is gone")
	n, err = b.PurgeProgress(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "and of the one that has ended")
	assert.NotNil(t, b.progress(refs[2].ID), "but not of the one that runs")
}
