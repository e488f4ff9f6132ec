package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lastOfFirstRelease is the newest migration that every program has to know: the
// binaries of before look into millrace_migrations alone.
const lastOfFirstRelease = 20261121126000

func TestCompatibleMigrationsAreHiddenFromOlderBinaries(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	_, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	var newest int64
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT max(version_id) FROM millrace_migrations`).Scan(&newest))
	assert.EqualValues(t, lastOfFirstRelease, newest,
		"programs of the version before do not start any more, and do not go on being ready: see CONTRIBUTING.md, \"A migration\"")
	var compatible int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM millrace_migrations_compatible`).Scan(&compatible))
	assert.Positive(t, compatible)

	known, err := embedded()
	require.NoError(t, err)
	for _, m := range known {
		if m.Needs != 0 {
			assert.NotEmpty(t, known.name(m.Needs), "%s needs a migration that there is not", m.Name)
			assert.Less(t, m.Needs, m.Version, m.Name)
		}
	}
}

func TestCheckCurrentGoesOnWithWhatItNeedNotKnow(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	_, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO millrace_migrations_compatible (version_id, needs) VALUES (29990101000000, $1)`, lastOfFirstRelease)
	require.NoError(t, err)
	require.NoError(t, CheckCurrent(t.Context(), pool))
	status, err := MigrationStatus(t.Context(), pool)
	require.NoError(t, err)
	last := status[len(status)-1]
	assert.True(t, last.Newer)
	assert.EqualValues(t, 29990101000000, last.Version)
	again, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	assert.Empty(t, again)

	_, err = pool.Exec(t.Context(), `INSERT INTO millrace_migrations_compatible (version_id, needs) VALUES (29990202000000, 29990101000000)`)
	require.NoError(t, err)
	var fault *SchemaError
	require.ErrorAs(t, CheckCurrent(t.Context(), pool), &fault)
	assert.Equal(t, []int64{29990202000000}, fault.Unknown, "it needs one that this binary does not know")
	assert.ErrorContains(t, fault, "newer than this binary")
}

// A database of a binary that had one table for all.
func TestMigrateKnowsWhatTheFirstTableHas(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	_, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO millrace_migrations (version_id, is_applied) SELECT version_id, true FROM millrace_migrations_compatible;
		DROP TABLE millrace_migrations_compatible`)
	require.NoError(t, err)
	require.NoError(t, CheckCurrent(t.Context(), pool))
	again, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	assert.Empty(t, again)
	require.NoError(t, CheckCurrent(t.Context(), pool))
	require.NoError(t, MigrateDown(t.Context(), pool, 0))
}

// indexed is a partitioned table that gets an index while others write to it.
type indexed struct {
	pool  *pgxpool.Pool
	index partitionedIndex
}

func newIndexed(t *testing.T) indexed {
	t.Helper()
	pool := openPool(t, nil)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE things (n integer NOT NULL, kind text NOT NULL) PARTITION BY RANGE (n);
		CREATE TABLE things_1 PARTITION OF things FOR VALUES FROM (0) TO (10);
		CREATE TABLE things_2 PARTITION OF things FOR VALUES FROM (10) TO (20);
		INSERT INTO things SELECT n, 'a' FROM generate_series(0, 19) n`)
	require.NoError(t, err)
	return indexed{pool, partitionedIndex{table: "things", name: "things_kind", of: `(n) WHERE kind = 'b'`}}
}

func (x indexed) create(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		db := stdlib.OpenDBFromPool(x.pool)
		err := x.index.create(ctx, db)
		_ = db.Close()
		done <- err
	}()
	return done
}

// waiting waits until a statement that begins so waits for a lock.
func (x indexed) waiting(t *testing.T, statement string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := x.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1 || '%'`, statement).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, 10*time.Millisecond, "%s waits for a lock", statement)
}

// whole checks that the table, its partitions and those to come have the index.
func (x indexed) whole(t *testing.T) {
	t.Helper()
	_, err := x.pool.Exec(t.Context(), `CREATE TABLE things_3 PARTITION OF things FOR VALUES FROM (20) TO (30)`)
	require.NoError(t, err)
	var valid, attached int
	require.NoError(t, x.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE indisvalid), count(*) FILTER (WHERE indexrelid IN (SELECT inhrelid FROM pg_inherits))
		FROM pg_index WHERE indrelid IN ('things'::regclass, 'things_1'::regclass, 'things_2'::regclass, 'things_3'::regclass)`).Scan(&valid, &attached))
	assert.Equal(t, 4, valid)
	assert.Equal(t, 3, attached)
}

func TestPartitionedIndexLetsWritersThrough(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]struct{ by, waits string }{
		"while the table is held":     {`INSERT INTO things VALUES (1, 'b')`, "CREATE INDEX IF NOT EXISTS"},
		"while a partition is in use": {`INSERT INTO things_1 VALUES (1, 'b')`, "CREATE INDEX CONCURRENTLY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndexed(t)
			tx, err := x.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), held.by)
			require.NoError(t, err)
			done := x.create(t.Context())
			x.waiting(t, held.waits)
			_, err = x.pool.Exec(t.Context(), `INSERT INTO things VALUES (2, 'b')`)
			require.NoError(t, err, "somebody else writes meanwhile")
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-done)
			x.whole(t)
			require.NoError(t, <-x.create(t.Context()), "again")
		})
	}
}

func TestPartitionedIndexGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	x := newIndexed(t)
	tx, err := x.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO things_2 VALUES (11, 'b')`)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	done := x.create(ctx)
	x.waiting(t, "CREATE INDEX CONCURRENTLY")
	interrupt()
	require.Error(t, <-done)
	require.NoError(t, tx.Commit(t.Context()))
	require.Eventually(t, func() bool { // the server may still be at it
		var n int
		err := x.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'`).Scan(&n)
		return err == nil && n == 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, <-x.create(t.Context()))
	x.whole(t)
}
