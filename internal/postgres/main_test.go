package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// openPool returns a pool on a database of the test, with or without our schema.
func openPool(t testing.TB, migrate testenv.Migrate) *pgxpool.Pool {
	t.Helper()
	return openDSN(t, testenv.Database(t, migrate))
}

func openDSN(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := Open(t.Context(), Config{DSN: secret.New(dsn)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
