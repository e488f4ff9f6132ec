package parking_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// insert puts lanes of two consumers into the database: billing with two that
// move and audit with one that is stalled.
const insert = `
INSERT INTO parked_lanes (consumer, consumer_group, topic_id, topic, partition, key, key_hash, reached, tries)
SELECT c, 'g-' || c, $1, 'marks', p, 'k', sha256('k'), 1, tries
FROM (VALUES ('billing', 0, 0), ('billing', 1, 0), ('audit', 0, 3)) AS v (c, p, tries);`

const insertEvents = `
INSERT INTO parked_events (lane, "offset", header_keys, header_values, parked_at)
SELECT l.id, n, '{}', '{}', now() - n * interval '1 hour' FROM parked_lanes l, generate_series(2, 2 + l.partition) AS n
WHERE l.consumer = 'billing'`

func setup(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), insert, uuid.New())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), insertEvents)
	require.NoError(t, err)
	return pool
}

func TestGauge(t *testing.T) {
	t.Parallel()
	pool, reg := setup(t), prometheus.NewRegistry()
	g := parking.NewGauge(pool, slog.New(slog.DiscardHandler), reg)
	require.NoError(t, g.Count(t.Context()))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_parked_events Events that wait behind a dead letter with their key, as of the last count.
# TYPE millrace_parked_events gauge
millrace_parked_events{consumer="audit"} 0
millrace_parked_events{consumer="billing"} 3
# HELP millrace_parked_lanes Keys that wait behind a dead letter, as of the last count.
# TYPE millrace_parked_lanes gauge
millrace_parked_lanes{consumer="audit",state="STALLED"} 1
millrace_parked_lanes{consumer="billing",state="DRAINING"} 2
`), "millrace_parked_events", "millrace_parked_lanes"))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "millrace_parked_oldest_age_seconds" {
			assert.InDelta(t, 3*3600, f.GetMetric()[1].GetGauge().GetValue(), 1800, "the oldest of both lanes")
		}
	}

	// What is gone is not shown any more.
	_, err = pool.Exec(t.Context(), `DELETE FROM parked_events`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `DELETE FROM parked_lanes`)
	require.NoError(t, err)
	require.NoError(t, g.Count(t.Context()))
	n, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestLanesAreListedPageByPage(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	first, err := parking.List(t.Context(), pool, parking.Filter{Limit: 2})
	require.NoError(t, err)
	require.Len(t, first, 2)
	rest, err := parking.List(t.Context(), pool, parking.Filter{After: first[1].ID})
	require.NoError(t, err)
	require.Len(t, rest, 1)
	assert.Equal(t, parking.Stalled, rest[0].State)
	assert.Equal(t, "audit", rest[0].Consumer)
	assert.Nil(t, rest[0].OldestAt)
	assert.Equal(t, parking.Draining, first[1].State)
	assert.EqualValues(t, 2, first[1].Parked)
	of, err := parking.List(t.Context(), pool, parking.Filter{Consumer: "billing"})
	require.NoError(t, err)
	assert.Len(t, of, 2)
	none, err := parking.List(t.Context(), pool, parking.Filter{Heads: []uuid.UUID{uuid.New()}})
	require.NoError(t, err)
	assert.Empty(t, none)
}

// A lane in which something waits cannot be removed, whoever tries.
func TestALaneWithEventsStays(t *testing.T) {
	t.Parallel()
	pool := setup(t)
	_, err := pool.Exec(t.Context(), `DELETE FROM parked_lanes WHERE consumer = 'billing'`)
	require.ErrorContains(t, err, "parked_events")
}
