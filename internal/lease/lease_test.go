package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

const (
	longTTL  = 20 * time.Second
	shortTTL = 600 * time.Millisecond
)

func check(ctx context.Context, pool *pgxpool.Pool, h *Held) error {
	return postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error { return h.Check(ctx, tx) })
}

func TestAcquireReleaseAndToken(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	a, b := NewManager(pool, "a", longTTL, nil), NewManager(pool, "b", longTTL, nil)
	first, err := a.Acquire(t.Context(), "x")
	require.NoError(t, err)
	assert.EqualValues(t, 1, first.Token())
	assert.Greater(t, first.Remaining(), longTTL/2)
	require.NoError(t, check(t.Context(), pool, first))

	_, err = b.Acquire(t.Context(), "x")
	require.ErrorIs(t, err, ErrHeld)
	_, err = a.Acquire(t.Context(), "x")
	require.ErrorIs(t, err, ErrHeld, "two holders in one process are two holders")

	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, first.Release(t.Context()))
	require.ErrorIs(t, context.Cause(first.Context()), ErrReleased)
	assert.LessOrEqual(t, first.Remaining(), time.Duration(0))
	require.ErrorIs(t, check(t.Context(), pool, first), ErrLost)

	second, err := b.Acquire(t.Context(), "x")
	require.NoError(t, err)
	assert.EqualValues(t, 2, second.Token())
	require.NoError(t, first.Release(t.Context()), "a late release does not touch the next holder's lease")
	require.NoError(t, check(t.Context(), pool, second))
	require.NoError(t, second.Release(t.Context()))
}

func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	a, b := NewManager(pool, "a", shortTTL, nil), NewManager(pool, "b", shortTTL, nil)
	h, err := a.Acquire(t.Context(), "x")
	require.NoError(t, err)
	var start, now time.Time
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&start))
	for now.Sub(start) < 3*shortTTL {
		_, err := b.Acquire(t.Context(), "x")
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, h.Context().Err())
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	}
	require.NoError(t, h.Release(t.Context()))
}

func TestPausedHolderLosesTheLease(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	g := newGate()
	defer g.open()
	zombies, pool := openTraced(t, dsn, g), openDSN(t, dsn)
	a, b := NewManager(zombies, "a", shortTTL, nil), NewManager(pool, "b", shortTTL, nil)
	h, err := a.Acquire(t.Context(), "x")
	require.NoError(t, err)
	g.close()

	taken := make(chan *Held)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- b.Run(ctx, "x", func(ctx context.Context, h *Held) error {
			taken <- h
			<-ctx.Done()
			return nil
		})
	}()
	next := wait(t, taken)
	// At the moment of the takeover the old holder knew already.
	require.ErrorIs(t, context.Cause(h.Context()), ErrLost)
	assert.LessOrEqual(t, h.Remaining(), time.Duration(0))
	assert.Greater(t, next.Token(), h.Token())
	require.ErrorIs(t, check(t.Context(), pool, h), ErrLost)
	g.open()
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, check(t.Context(), pool, next), "the zombie's late renewal and release do nothing")
	cancel()
	require.NoError(t, wait(t, done))
}

func TestDatabaseClockDecides(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	a, b := NewManager(pool, "a", longTTL, nil), NewManager(pool, "b", longTTL, nil)
	h, err := a.Acquire(t.Context(), "x")
	require.NoError(t, err)
	// The server's clock jumps ahead, which is the same as the end lying behind.
	_, err = pool.Exec(t.Context(), `UPDATE leases SET expires_at = clock_timestamp() - interval '1 microsecond'`)
	require.NoError(t, err)
	assert.Positive(t, h.Remaining(), "the holder cannot know yet")
	require.ErrorIs(t, check(t.Context(), pool, h), ErrLost, "expired, though nobody has taken it over")
	next, err := b.Acquire(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, a.renew([]*Held{h}))
	require.ErrorIs(t, context.Cause(h.Context()), ErrLost, "the next renewal tells")
	require.NoError(t, check(t.Context(), pool, next))
	require.NoError(t, next.Release(t.Context()))
}

func TestSlowRenewalDoesNotStretchTrust(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	g := newGate()
	m := NewManager(openTraced(t, dsn, g), "a", longTTL, nil)
	h, err := m.Acquire(t.Context(), "x")
	require.NoError(t, err)
	g.close()
	before := time.Now()
	done := make(chan error)
	go func() { done <- m.renew([]*Held{h}) }()
	wait(t, g.held)
	asked := time.Now()
	g.open()
	require.NoError(t, wait(t, done))
	limit := asked.Add(m.ttl - m.margin)
	h.mu.Lock()
	trusted := h.trusted
	h.mu.Unlock()
	assert.False(t, trusted.After(limit), "anchored before the statement was sent")
	assert.False(t, trusted.Before(before.Add(m.ttl-m.margin)))
	require.NoError(t, h.Release(t.Context()))
}

func TestCheckKeepsATakeoverWaiting(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	a, b := NewManager(pool, "a", longTTL, nil), NewManager(pool, "b", longTTL, nil)
	h, err := a.Acquire(t.Context(), "x")
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Check(t.Context(), tx))

	// A renewal passes the check ...
	require.NoError(t, a.renew([]*Held{h}))
	_, err = pool.Exec(t.Context(), `UPDATE leases SET expires_at = clock_timestamp()`)
	require.NoError(t, err)
	// ... a takeover does not.
	taken := make(chan *Held, 1)
	go func() {
		next, err := b.Acquire(context.WithoutCancel(t.Context()), "x")
		assert.NoError(t, err)
		taken <- next
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%taken AS%'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, 20*time.Second, time.Millisecond)
	assert.Empty(t, taken)
	require.NoError(t, tx.Commit(t.Context()))
	next := wait(t, taken)

	// And once it has begun, a check waits for it and sees that it was late.
	require.ErrorIs(t, check(t.Context(), pool, h), ErrLost)
	require.NoError(t, next.Release(t.Context()))
	h.end(ErrLost)
}

func TestLockedRowDoesNotHoldUpOtherRenewals(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	m := NewManager(pool, "a", longTTL, nil)
	x, err := m.Acquire(t.Context(), "x")
	require.NoError(t, err)
	y, err := m.Acquire(t.Context(), "y")
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM leases WHERE name = 'x' FOR UPDATE`)
	require.NoError(t, err)
	oldX, oldY := x.trusted, y.trusted
	require.NoError(t, m.renew([]*Held{x, y}))
	assert.NoError(t, x.Context().Err(), "neither renewed nor lost")
	assert.Equal(t, oldX, x.trusted)
	assert.True(t, y.trusted.After(oldY))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, x.Release(t.Context()))
	require.NoError(t, y.Release(t.Context()))
}

// TestOneHolderAtATime lets managers fight for a lease, with renewals that hang at
// random times, and checks that effects under the lease never interleave.
func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool := openDSN(t, dsn)
	_, err := pool.Exec(t.Context(), `CREATE TABLE effects (n bigserial, token bigint)`)
	require.NoError(t, err)
	const ttl = 150 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var effects, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		g := newGate()
		own := openTraced(t, dsn, g)
		m := NewManager(own, "m", ttl, nil)
		wg.Go(func() {
			assert.NoError(t, m.Run(ctx, "x", func(lctx context.Context, h *Held) error {
				for n := 0; ; n++ {
					if n == 20+10*i {
						g.close() // from now on a zombie, which goes on regardless of its context
					}
					err := postgres.InTx(ctx, own, func(ctx context.Context, tx pgx.Tx) error {
						if err := h.Check(ctx, tx); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, `INSERT INTO effects (token) VALUES ($1)`, h.Token())
						return err
					})
					if errors.Is(err, ErrLost) {
						refused.Add(1)
					}
					if err != nil {
						g.open()
						return err
					}
					effects.Add(1)
				}
			}))
			g.open()
		})
	}
	require.Eventually(t, func() bool { return refused.Load() >= 5 && effects.Load() >= 100 }, time.Minute, 5*time.Millisecond)
	cancel()
	wg.Wait()
	var total, backwards, tokens int
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*), count(*) FILTER (WHERE token < before), count(DISTINCT token)
		FROM (SELECT token, lag(token) OVER (ORDER BY n) AS before FROM effects) x`).Scan(&total, &backwards, &tokens))
	assert.EqualValues(t, effects.Load(), total)
	assert.Zero(t, backwards, "an effect of an earlier holder came after one of a later holder")
	assert.Greater(t, tokens, 2)
}

func TestRunHandsOver(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	signals := postgres.NewSignals(nil, nil)
	type started struct {
		member int
		held   *Held
	}
	running := make(chan started)
	var wg sync.WaitGroup
	stop := make([]context.CancelFunc, 2)
	for i := range stop {
		ctx, cancel := context.WithCancel(t.Context())
		stop[i] = cancel
		m := NewManager(pool, "m", time.Hour, nil, WithSignals(signals)) // only a release can hand over
		wg.Go(func() {
			assert.NoError(t, m.Run(ctx, "x", func(ctx context.Context, h *Held) error {
				running <- started{i, h}
				<-ctx.Done()
				return ctx.Err()
			}))
		})
	}
	first := wait(t, running)
	stop[first.member]()
	second := wait(t, running)
	assert.NotEqual(t, first.member, second.member)
	assert.Equal(t, first.held.Token()+1, second.held.Token())
	stop[second.member]()
	wg.Wait()
}

func TestRunRetriesAndEnds(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	m := NewManager(pool, "m", longTTL, nil)
	runs := 0
	require.NoError(t, m.Run(t.Context(), "x", func(context.Context, *Held) error {
		if runs++; runs == 1 {
			return errors.New("boom")
		}
		return nil
	}))
	assert.Equal(t, 2, runs)
	assert.PanicsWithValue(t, "bug", func() {
		_ = m.Run(t.Context(), "x", func(context.Context, *Held) error { panic("bug") })
	})
	h, err := m.Acquire(t.Context(), "x")
	require.NoError(t, err, "a panic gives the lease back")
	require.NoError(t, h.Release(t.Context()))
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	m := NewManager(pool, "m", longTTL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	h, err := m.Acquire(ctx, "x")
	require.NoError(t, err)
	cancel()
	<-h.Context().Done()
	require.NoError(t, h.Release(t.Context()), "it can still be given back")
	again, err := NewManager(pool, "n", longTTL, nil).Acquire(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}

// A transaction that builds on the one before it waits for its end; one that only
// asks whether the lease is held does not.
func TestCheckAloneWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	h, err := NewManager(pool, "a", longTTL, nil).Acquire(t.Context(), "x")
	require.NoError(t, err)
	first, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.CheckAlone(t.Context(), first))
	require.NoError(t, check(t.Context(), pool, h))

	second := make(chan error, 1)
	go func() {
		second <- postgres.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error { return h.CheckAlone(ctx, tx) })
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()`).Scan(&waiting)
		return err == nil && waiting == 1
	}, 30*time.Second, 5*time.Millisecond)
	require.Empty(t, second)
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, <-second)

	require.NoError(t, h.Release(t.Context()))
	require.ErrorIs(t, postgres.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error { return h.CheckAlone(ctx, tx) }), ErrLost)
}
