package retention

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// testBundle is a migrated database and a keeper of it.
type testBundle struct {
	t      *testing.T
	dsn    string
	pool   *pgxpool.Pool
	keeper *Keeper
	reg    *prometheus.Registry
}

// thirty are the defaults of the outbox, and an inbox that goes with them.
func thirty() Config { return Config{Outbox: 30 * day, Inbox: 120 * day} }

func setup(t *testing.T, cfg Config) *testBundle {
	t.Helper()
	return setupOn(t, testenv.Database(t, postgres.MigrateDSN), cfg)
}

func setupOn(t *testing.T, dsn string, cfg Config) *testBundle {
	t.Helper()
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	reg := prometheus.NewRegistry()
	return &testBundle{t: t, dsn: dsn, pool: pool, keeper: New(pool, cfg, nil, reg), reg: reg}
}

func (b *testBundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func (b *testBundle) status() Status {
	b.t.Helper()
	s, err := Inspect(b.t.Context(), b.pool)
	require.NoError(b.t, err)
	return s
}

func (b *testBundle) today() time.Time { return b.status().Today() }

func (b *testBundle) keep() Report {
	b.t.Helper()
	report, err := b.keeper.Keep(b.t.Context())
	require.NoError(b.t, err)
	return report
}

// execer is a pool or a transaction.
type execer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// insert writes rows of a day into the outbox, and returns the seq of the last.
func (b *testBundle) insert(db execer, date time.Time, status string, n int) (seq int64) {
	b.t.Helper()
	require.NoError(b.t, db.QueryRow(b.t.Context(), `
		WITH rows AS (
			INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, headers, status, attempts, created_at)
			SELECT gen_random_uuid(), 0, 'test', 'a', 'test.v1', 'topic', '\x01', $1, CASE $1 WHEN 'FAILED' THEN 5 ELSE 0 END, $2
			FROM generate_series(1, $3) RETURNING seq)
		SELECT max(seq) FROM rows`, status, date.Add(time.Hour), n).Scan(&seq))
	return seq
}

// oldDay makes the partition of a day that was so many days ago.
func (b *testBundle) oldDay(ago int) (date time.Time, table string) {
	b.t.Helper()
	date = b.today().Add(-time.Duration(ago) * day)
	// The first partition holds all that is before it.
	for _, d := range b.status().Days {
		if d.Oldest {
			b.exec(fmt.Sprintf(`
				ALTER TABLE outbox_events DETACH PARTITION %[1]s;
				ALTER TABLE outbox_events ATTACH PARTITION %[1]s FOR VALUES FROM ('%[2]s 00:00:00+00') TO ('%[3]s 00:00:00+00')`,
				d.Table, d.Date.Format(time.DateOnly), d.Date.Add(day).Format(time.DateOnly)))
		}
	}
	table, err := b.keeper.makeDay(b.t.Context(), making{date: date})
	require.NoError(b.t, err)
	return date, table
}

// tableOf is the partition in which a row of the outbox is; empty: there is none.
func (b *testBundle) tableOf(seq int64) string {
	b.t.Helper()
	var table string
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(),
		`SELECT coalesce(max(tableoid::regclass::text), '') FROM outbox_events WHERE seq = $1`, seq).Scan(&table))
	return table
}
