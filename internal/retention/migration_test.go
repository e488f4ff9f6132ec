package retention

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

// beforePartitions is the last schema without partitions.
const beforePartitions = 20261121050000

// TestMigrationKeepsWhatIsThere takes tables with rows in all states to partitions
// and back.
func TestMigrationKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testenv.Database(t, nil), thirty())
	_, err := postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
	require.NoError(t, postgres.MigrateDown(t.Context(), b.pool, beforePartitions))
	b.exec(`INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers,
			status, attempts, next_attempt_at, last_error, created_at, published_at, republished_from)
		SELECT gen_random_uuid(), n % 16, 'test', 'agg-' || n, 'test.v1', 'topic', CASE WHEN n % 3 > 0 THEN '\x00ff'::bytea END, CASE WHEN n % 5 > 0 THEN '\x0001'::bytea END, '\x01',
			(ARRAY['PENDING', 'PUBLISHED', 'FAILED', 'SKIPPED'])[1 + n % 4], n % 3, CASE WHEN n % 7 = 0 THEN now() END, CASE WHEN n % 2 = 0 THEN 'no' END,
			clock_timestamp() - make_interval(days => n), CASE WHEN n % 4 = 1 THEN now() END, CASE WHEN n % 11 = 0 THEN n END
		FROM generate_series(0, 99) AS n`)
	// A clock that was ahead.
	b.exec(`UPDATE outbox_events SET created_at = now() + interval '2 days' WHERE seq = (SELECT max(seq) FROM outbox_events)`)
	b.exec(`INSERT INTO processed_events (consumer, source, event_id, session) SELECT 'c', 's', 'e' || n, '' FROM generate_series(1, 50) AS n`)
	events, processed, shape := b.dump(), b.processed(), b.shape()

	_, err = postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
	assert.Equal(t, events, b.dump())
	assert.Equal(t, processed, b.processed())
	assert.Equal(t, Ahead+2, b.status().AheadDays())
	assert.Empty(t, b.keep().Dropped)
	next := b.insert(b.pool, time.Now(), "PENDING", 1)
	assert.EqualValues(t, 101, next, "the sequence goes on")
	operator := outbox.NewOperator(b.pool, nil)
	backlog, err := operator.Backlog(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 26, backlog.Pending)
	require.NoError(t, operator.Skip(t.Context(), 3, outbox.Author{Name: "op", Reason: "test"}), "a FAILED row of the old table")
	republished, err := operator.Republish(t.Context(), outbox.Selection{AggregateID: "agg-1"}, false, outbox.Author{Name: "op"})
	require.NoError(t, err)
	assert.EqualValues(t, 1, republished.Events)
	b.exec(`DELETE FROM outbox_events WHERE seq > 100`)
	b.exec(`UPDATE outbox_events SET status = 'FAILED' WHERE seq = 3`)

	// More than one partition to go back from.
	b.age(24 * 365)
	assert.Equal(t, []string{"processed_events_2"}, b.keep().Made)
	b.exec(`INSERT INTO processed_events (consumer, source, event_id, session, generation) VALUES ('c', 's', 'e1', '', 2), ('c', 's', 'e51', '', 2)`)
	late := b.insert(b.pool, b.today().Add(6*day), "PENDING", 1)
	stray := b.insert(b.pool, b.today().Add(60*day), "PUBLISHED", 1)
	require.NoError(t, postgres.MigrateDown(t.Context(), b.pool, beforePartitions))
	assert.Equal(t, shape, b.shape(), "indexes, constraints, defaults")
	assert.Len(t, b.dump(), 102)
	assert.Len(t, b.processed(), 51)
	b.exec(`DELETE FROM outbox_events WHERE seq IN ($1, $2)`, late, stray)
	assert.ElementsMatch(t, without(events, 3), without(b.dump(), 3))
	assert.Equal(t, stray+1, b.insert(b.pool, time.Now(), "PENDING", 1))
	_, err = postgres.Migrate(t.Context(), b.pool)
	require.NoError(t, err)
	assert.Len(t, b.dump(), 101)
}

// without leaves out the row that the test has changed.
func without(rows []string, at int) []string {
	return append(append([]string(nil), rows[:at-1]...), rows[at:]...)
}

func (b *testBundle) column(sql string) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), sql)
	require.NoError(b.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return all
}

func (b *testBundle) processed() []string {
	b.t.Helper()
	return b.column(`SELECT concat_ws('/', consumer, source, event_id, session, processed_at) FROM processed_events ORDER BY 1`)
}

// shape is how the two tables are made.
func (b *testBundle) shape() []string {
	b.t.Helper()
	return b.column(`
		SELECT indexdef FROM pg_indexes WHERE tablename IN ('outbox_events', 'processed_events')
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('outbox_events'::regclass, 'processed_events'::regclass)
		UNION ALL SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable, column_default, collation_name)
			FROM information_schema.columns WHERE table_name IN ('outbox_events', 'processed_events')
		UNION ALL SELECT relname || ' ' || relkind::text || ' ' || coalesce(array_to_string(reloptions, ','), '') FROM pg_class
			WHERE relnamespace = current_schema()::regnamespace AND (relname LIKE 'outbox\_events%' OR relname LIKE 'processed\_%')
		UNION ALL SELECT 'owned by ' || d.refobjid::regclass::text FROM pg_depend d WHERE d.objid = 'outbox_events_seq'::regclass AND d.deptype = 'a'
		ORDER BY 1`)
}
