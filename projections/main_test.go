package projections_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/projections"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// counting counts the rows that statements wrote.
type counting struct {
	projections.Execer
	rows int64
}

func (c *counting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := c.Execer.Exec(ctx, sql, args...)
	c.rows += tag.RowsAffected()
	return tag, err
}
