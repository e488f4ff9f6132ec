package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func tablePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := openPool(t, nil)
	_, err := pool.Exec(t.Context(), `CREATE TABLE counters (id integer PRIMARY KEY, n integer NOT NULL)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO counters VALUES (1, 0), (2, 0)`)
	require.NoError(t, err)
	return pool
}

func counters(t *testing.T, pool *pgxpool.Pool) (sum int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT sum(n) FROM counters`).Scan(&sum))
	return sum
}

func increment(ctx context.Context, tx pgx.Tx, id int) error {
	_, err := tx.Exec(ctx, `UPDATE counters SET n = n + 1 WHERE id = $1`, id)
	return err
}

func TestInTxCommitsOrRollsBack(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	require.NoError(t, InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		var level string
		require.NoError(t, tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation')`).Scan(&level))
		assert.Equal(t, "read committed", level)
		return increment(ctx, tx, 1)
	}))
	boom := errors.New("boom")
	require.ErrorIs(t, InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, increment(ctx, tx, 1))
		return boom
	}), boom)
	assert.PanicsWithValue(t, "bug", func() {
		_ = InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, increment(ctx, tx, 1))
			panic("bug")
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, increment(ctx, tx, 1))
		cancel()
		return nil
	}), context.Canceled)
	assert.Equal(t, 1, counters(t, pool))
	assert.Zero(t, pool.Stat().AcquiredConns(), "connections come back")
}

func TestInTxRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	var both sync.WaitGroup
	both.Add(2)
	runs := make([]int, 2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			errs[i] = InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
				runs[i]++
				if err := increment(ctx, tx, 1+i); err != nil {
					return err
				}
				if runs[i] == 1 { // make sure that the first runs do deadlock
					both.Done()
					both.Wait()
				}
				return increment(ctx, tx, 2-i)
			})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	// On a busy machine PostgreSQL may end both, or one of them twice.
	assert.GreaterOrEqual(t, runs[0]+runs[1], 3, "one of the two was run again")
	assert.Equal(t, 4, counters(t, pool))
}

func TestInTxDoesNotRepeatForEver(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	runs := 0
	err := InTx(t.Context(), pool, func(context.Context, pgx.Tx) error {
		runs++
		return &pgconn.PgError{Code: "40001"}
	})
	require.Error(t, err)
	assert.Equal(t, TxAttempts, runs)
}

func TestInTxSaysWhenTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	// The session ends in the middle of its own commit.
	_, err := pool.Exec(t.Context(), `
		CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER die AFTER UPDATE ON counters DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die();
		CREATE TABLE once (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	runs := 0
	err = InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		runs++
		return increment(ctx, tx, 1)
	})
	require.ErrorIs(t, err, ErrInDoubt)
	assert.True(t, IsInfrastructure(err))
	assert.Equal(t, 1, runs, "what may have been committed is not run again")

	err = InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO once VALUES (1), (1)`)
		return err
	})
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrInDoubt, "the server answered")
	assert.True(t, IsConstraint(err))
}

// unsendable is a transaction whose connection is closed before the commit.
type unsendable struct{ *pgxpool.Pool }

func (u unsendable) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := u.Pool.BeginTx(ctx, o)
	return closedTx{tx}, err
}

type closedTx struct{ pgx.Tx }

func (c closedTx) Commit(ctx context.Context) error {
	_ = c.Conn().PgConn().Conn().Close()
	return c.Tx.Commit(ctx)
}

func TestInTxKnowsWhenTheCommitWasNotSent(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	err := InTx(t.Context(), unsendable{pool}, func(ctx context.Context, tx pgx.Tx) error { return increment(ctx, tx, 1) })
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrInDoubt)
	assert.True(t, IsInfrastructure(err))
	assert.Zero(t, counters(t, pool))
}

// deaf is a connection that loses what the server answers.
type deaf struct {
	net.Conn
	now *atomic.Bool
}

func (d deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if n > 0 && d.now.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, d.Close())
	}
	return n, err
}

// The driver takes an answer to COMMIT that never came for a connection that had
// been closed before, where trying again would be safe.
func TestInTxDoesNotTrustALostAnswer(t *testing.T) {
	t.Parallel()
	pool := tablePool(t)
	var now atomic.Bool
	config := pool.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return deaf{conn, &now}, err
	}
	breaking, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(breaking.Close)
	err = InTx(t.Context(), breaking, func(ctx context.Context, tx pgx.Tx) error {
		defer now.Store(true)
		return increment(ctx, tx, 1)
	})
	require.ErrorIs(t, err, ErrInDoubt)
	assert.True(t, IsInfrastructure(err))
	assert.Equal(t, 1, counters(t, pool), "it was committed")
}
