package coordinator_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// overtaken is an admission whose first round is held up until somebody else has the
// lease, as it happens to a process that is stopped and goes on.
type overtaken struct {
	*store.Store
	overtake func()
	rounds   chan error
}

func (o *overtaken) Admit(ctx context.Context, a store.Admission) (store.Admitted, error) {
	o.overtake()
	out, err := o.Store.Admit(context.WithoutCancel(ctx), a)
	select {
	case o.rounds <- err:
	default:
	}
	return out, err
}

// An admitter that was overtaken within a round decides nothing any more, and its
// rounds wait for each other.
func TestAnAdmitterThatWasOvertakenAdmitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(5)
	requested := b.submit()
	b.feed(coordinator.Limits{}, requested)
	o := &overtaken{Store: b.store, rounds: make(chan error, 1), overtake: func() {
		_, err := b.pool.Exec(t.Context(), `UPDATE leases SET token = token + 1, owner = 'another', expires_at = clock_timestamp() + interval '1 hour'
			WHERE name = $1`, store.AdmitterLease("default"))
		assert.NoError(t, err)
	}}
	a := coordinator.NewAdmitter(coordinator.AdmitterConfig{ID: "a"}, o, lease.NewManager(b.pool, "a", time.Hour, quiet()), b.signals,
		quiet(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case err := <-o.rounds:
		require.ErrorIs(t, err, lease.ErrLost)
	case <-time.After(time.Minute):
		require.FailNow(t, "no round was begun")
	}
	cancel()
	require.NoError(t, <-done)
	e, err := b.store.Get(t.Context(), requested.ExecutionID)
	require.NoError(t, err)
	assert.Equal(t, "QUEUED", string(e.State))
}

// alone is an admission that looks at what the fence leaves locked.
type alone struct {
	*store.Store
	pool postgres.Beginner
	held chan int
}

func (o *alone) Admit(ctx context.Context, a store.Admission) (store.Admitted, error) {
	err := postgres.InTx(ctx, o.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := a.Fence(ctx, tx); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND mode = 'ExclusiveLock'`).Scan(&n); err != nil {
			return err
		}
		select {
		case o.held <- n:
		default:
		}
		return nil
	})
	return store.Admitted{}, err
}

// A round waits for the one before it, also where the answer to its commit got lost.
func TestRoundsOfAnAdmitterWaitForEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(5)
	o := &alone{Store: b.store, pool: b.pool, held: make(chan int, 1)}
	a := coordinator.NewAdmitter(coordinator.AdmitterConfig{ID: "a"}, o, lease.NewManager(b.pool, "a", time.Hour, quiet()), b.signals,
		quiet(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case n := <-o.held:
		assert.Equal(t, 1, n)
	case <-time.After(time.Minute):
		require.FailNow(t, "no round was begun")
	}
	cancel()
	require.NoError(t, <-done)
}
