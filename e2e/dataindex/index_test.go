package dataindex_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/projections"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// What the SDK published makes the rows that the SDK itself would have told of,
// whichever way its events come.
func TestTheIndexAgreesWithTheSDK(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, encoding := range dataindex.Encodings() {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			r := dataindex.Recorded(encoding)
			apply(t, pool, len(r.Records), r.Records)
			agrees(t, pool, r)
		})
	}
	for seed := range uint64(10) {
		t.Run("disturbed", func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			r := dataindex.Copies("seed"+string(rune('a'+seed)), 1)
			apply(t, pool, 1+random.IntN(300), dataindex.Disturb(random, r.Records))
			agrees(t, pool, r)
		})
	}
}

// apply merges records in batches of a size.
func apply(t *testing.T, pool *pgxpool.Pool, size int, records []dataindex.Record) {
	t.Helper()
	index := projections.DataIndex(nil)
	for chunk := range slices.Chunk(records, size) {
		batch := index.NewBatch()
		for _, r := range chunk {
			require.NoError(t, batch.Add(r.Of("flow-lifecycle-out")), r.Value)
		}
		require.NoError(t, batch.Merge(t.Context(), pool, nil))
	}
}

func agrees(t *testing.T, pool *pgxpool.Pool, r dataindex.Recording) {
	t.Helper()
	indexed, err := dataindex.Indexed(t.Context(), pool, r.IDs())
	require.NoError(t, err)
	assert.Empty(t, r.Differences(indexed))
}
