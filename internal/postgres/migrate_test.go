package postgres

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
)

func TestMigrateConcurrentlyAppliesEachMigrationOnce(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, nil)
	const processes = 4
	applied := make([][]Applied, processes)
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		pool := openDSN(t, dsn)
		wg.Go(func() { applied[i], errs[i] = Migrate(t.Context(), pool) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	known, err := embedded()
	require.NoError(t, err)
	var versions []int64
	for _, a := range slices.Concat(applied...) {
		versions = append(versions, a.Version)
		assert.NotEmpty(t, a.Name)
	}
	slices.Sort(versions)
	want := make([]int64, len(known))
	for i, m := range known {
		want[i] = m.Version
	}
	assert.Equal(t, want, versions)
}

func TestCheckCurrent(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)

	var fault *SchemaError
	require.ErrorAs(t, CheckCurrent(t.Context(), pool), &fault)
	assert.Contains(t, fault.Pending, "20261121000000_outbox.sql")
	assert.Empty(t, fault.Unknown)
	assert.ErrorContains(t, fault, "millrace migrate up")
	var tables int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables))
	assert.Zero(t, tables, "a check writes nothing")

	_, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	require.NoError(t, CheckCurrent(t.Context(), pool))
	again, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	assert.Empty(t, again)

	_, err = pool.Exec(t.Context(), `INSERT INTO millrace_migrations (version_id, is_applied) VALUES (29990101000000, true)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `DELETE FROM millrace_migrations WHERE version_id = 20261121000100`)
	require.NoError(t, err)
	require.ErrorAs(t, CheckCurrent(t.Context(), pool), &fault)
	assert.Equal(t, []int64{29990101000000}, fault.Unknown)
	assert.Equal(t, []string{"20261121000100_leases.sql"}, fault.Pending)
	assert.ErrorContains(t, fault, "newer than this binary (29990101000000)")
}

func TestMigrateDownAndUpAgain(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	_, err := Migrate(t.Context(), pool)
	require.NoError(t, err)
	require.NoError(t, MigrateDown(t.Context(), pool, 0))
	var left []string
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT coalesce(array_agg(relname::text), '{}') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = 'public' AND relkind IN ('r', 'S', 'v', 'm', 'p') AND relname NOT LIKE 'millrace_migrations%'`).Scan(&left))
	assert.Empty(t, left, "every migration takes back what it made")
	_, err = Migrate(t.Context(), pool)
	require.NoError(t, err)
	status, err := MigrationStatus(t.Context(), pool)
	require.NoError(t, err)
	for _, m := range status {
		assert.False(t, m.Applied.IsZero(), m.Name)
	}
}
