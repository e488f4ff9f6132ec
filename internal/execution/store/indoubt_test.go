package store_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// An admitter hears nothing of its commit, which the network still has, and goes on:
// the next round must not take the same capacity again.
func TestCommitThatArrivesLateKeepsItsCapacity(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	b := openBench(t, dsn)
	b.announce(1)
	b.queue(b.submitN(20, user("ann"), func(r *topics.Request) { r.Priority = 3 })...)
	other := b.submitN(1, user("bob"), func(r *topics.Request) { r.Priority = 1 })
	b.queue(other...)
	breaks := &breaker{rng: rand.New(rand.NewPCG(1, 1)), odds: 1, only: late, delay: time.Second}
	brittle := store.New(breaks.open(t, dsn), noWaker{}, execution.DefaultPolicy())
	held, err := lease.NewManager(b.pool, "admitter", time.Hour, nil).Acquire(t.Context(), rideLease)
	require.NoError(t, err)
	round := store.Admission{
		Class: "default", Admitter: "a", Max: 10,
		Fence: func(ctx context.Context, tx pgx.Tx) error { return held.CheckAlone(ctx, tx) },
	}
	_, err = brittle.Admit(t.Context(), round)
	require.ErrorIs(t, err, postgres.ErrInDoubt)
	// The next round finds another one before those that the open transaction has locked.
	_, err = b.Reprioritize(t.Context(), other[0], 5, "ann", "")
	require.NoError(t, err)
	out, err := b.Store.Admit(t.Context(), round)
	require.NoError(t, err)
	breaks.late.Wait()
	require.Eventually(t, func() bool {
		var open int
		err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()`).Scan(&open)
		return err == nil && open == 0
	}, 30*time.Second, 10*time.Millisecond, "the server is done with the late commit")
	var scheduled int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM executions WHERE state = 'SCHEDULED'`).Scan(&scheduled))
	assert.Equal(t, 1, scheduled, "there is one slot; the second round admitted %d", out.Executions)
	require.NoError(t, held.Release(t.Context()))
}
