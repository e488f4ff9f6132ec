package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// running makes n running executions and returns their first attempts.
func (b *bench) running(n int) []store.Ref {
	b.t.Helper()
	b.announce(n)
	refs := make([]store.Ref, n)
	for i := range refs {
		id := b.submit(request())[0]
		b.queue(id)
		refs[i] = store.Ref{ID: id, Attempt: 1}
	}
	b.admit(0)
	require.Len(b.t, b.claim(n), n)
	return refs
}

// lock holds the row of an execution, as any change of it does, until the
// transaction that it returns has ended.
func (b *bench) lock(id string) pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(b.t.Context()) })
	_, err = tx.Exec(b.t.Context(), `SELECT FROM executions WHERE id = $1::text::uuid FOR UPDATE`, id)
	require.NoError(b.t, err)
	return tx
}

func (b *bench) heartbeat(refs ...store.Ref) map[string]store.Beat {
	b.t.Helper()
	beats, err := b.Heartbeat(b.t.Context(), "w", refs, time.Hour)
	require.NoError(b.t, err)
	byID := make(map[string]store.Beat, len(beats))
	for _, beat := range beats {
		byID[beat.ID] = beat
	}
	require.Len(b.t, byID, len(beats), "one beat each")
	return byID
}

func (b *bench) leased(id string) time.Duration { return time.Until(b.get(id).LeaseExpiresAt) }

// A heartbeat that waited for a locked row would hang here for ever: the lock is
// released by this test alone.
func TestHeartbeatWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refs := b.running(3)
	held := b.lock(refs[1].ID)

	beats := b.heartbeat(refs...)
	assert.Equal(t, map[string]store.Beat{
		refs[0].ID: {Ref: refs[0], Renewed: true},
		refs[1].ID: {Ref: refs[1]},
		refs[2].ID: {Ref: refs[2], Renewed: true},
	}, beats)
	assert.Greater(t, b.leased(refs[0].ID), 30*time.Minute)
	assert.Less(t, b.leased(refs[1].ID), 2*time.Minute, "the lease of the claim")

	require.NoError(t, held.Rollback(t.Context()))
	assert.True(t, b.heartbeat(refs[1])[refs[1].ID].Renewed)
	assert.Greater(t, b.leased(refs[1].ID), 30*time.Minute)
}

func TestCancelIsDeliveredPastALock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	_, err := b.Cancel(t.Context(), ref.ID, "ann", "")
	require.NoError(t, err)
	b.lock(ref.ID)
	assert.Equal(t, store.Beat{Ref: ref, Cancel: true}, b.heartbeat(ref)[ref.ID])
}

// While a cancel is under way it has not been said; the heartbeat after it has.
func TestCancelUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	held := b.lock(ref.ID)
	_, err := held.Exec(t.Context(), `UPDATE executions SET cancel = '{"by":"ann","at":"2026-01-01T00:00:00Z"}' WHERE id = $1::text::uuid`, ref.ID)
	require.NoError(t, err)
	assert.Equal(t, store.Beat{Ref: ref}, b.heartbeat(ref)[ref.ID])
	require.NoError(t, held.Commit(t.Context()))
	assert.Equal(t, store.Beat{Ref: ref, Cancel: true, Renewed: true}, b.heartbeat(ref)[ref.ID])
}

// An attempt that another transaction is taking away is reported as held, with
// its old lease, and as lost by the next heartbeat.
func TestLeaseIsLostUnderALock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	held := b.lock(ref.ID)
	_, err := held.Exec(t.Context(), `UPDATE executions SET state = 'QUEUED', lease_expires_at = NULL WHERE id = $1::text::uuid`, ref.ID)
	require.NoError(t, err)
	assert.Equal(t, store.Beat{Ref: ref}, b.heartbeat(ref)[ref.ID])
	require.NoError(t, held.Commit(t.Context()))
	assert.Empty(t, b.heartbeat(ref))
	assert.Equal(t, execution.Queued, b.get(ref.ID).State)
}

func TestAppendBringsTheCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.running(1)[0]
	_, err := b.Cancel(t.Context(), ref.ID, "ann", "")
	require.NoError(t, err)
	beat, err := b.AppendOutput(t.Context(), "w", ref,
		[]store.OutputChunk{{Ref: ref, Stream: executor.Stdout, Data: []byte("x")}}, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, store.Beat{Ref: ref, Cancel: true, Renewed: true}, beat)
}
