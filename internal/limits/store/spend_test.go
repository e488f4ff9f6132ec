package store_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/limits"
)

// daily fills so slowly that a test sees no token come.
func daily(burst int) limits.Definition {
	return limits.Definition{Name: "trigger:webhook", Per: limits.PerKey, Burst: burst, Rate: limits.Rate{Tokens: 1, Per: 24 * time.Hour}}
}

func TestSpendGivesWhatThereIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	spend := func(key string, n int) (int, time.Duration) {
		taken, wait, err := b.Spend(t.Context(), daily(10), key, n)
		require.NoError(t, err)
		return taken, wait
	}
	taken, wait := spend("a", 7)
	assert.Equal(t, 7, taken)
	assert.Zero(t, wait)
	taken, wait = spend("a", 7)
	assert.Equal(t, 3, taken)
	assert.InDelta(t, 24*time.Hour, wait, float64(time.Hour))
	taken, wait = spend("a", 1)
	assert.Zero(t, taken)
	assert.InDelta(t, 24*time.Hour, wait, float64(time.Hour))
	taken, _ = spend("b", 1)
	assert.Equal(t, 1, taken, "each key has a bucket")
	taken, wait = spend("b", 0)
	assert.Zero(t, taken)
	assert.Zero(t, wait)
}

func TestSpendIsExactOverAllProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 10 {
				got, _, err := b.Spend(t.Context(), daily(100), "k", n%4)
				assert.NoError(t, err)
				taken.Add(int64(got))
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 100, taken.Load(), "104 were asked for")
}

func TestSpendSurvivesAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.Spend(t.Context(), daily(2), "k", 2)
	require.NoError(t, err)
	b.exec(`UPDATE limit_buckets SET tat_nanos = tat_nanos + 10 * 24 * 3600 * 1000000000::bigint`)
	taken, wait, err := b.Spend(t.Context(), daily(2), "k", 2)
	require.NoError(t, err)
	assert.Equal(t, 1, taken, "one is let through, and the bucket is empty after it")
	assert.InDelta(t, 24*time.Hour, wait, float64(time.Hour))
}

func TestSpendTakesABucketAwayFromTheSweep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.Spend(t.Context(), daily(2), "k", 1)
	require.NoError(t, err)
	b.exec(`DELETE FROM limit_buckets`)
	taken, _, err := b.Spend(t.Context(), daily(2), "k", 2)
	require.NoError(t, err)
	assert.Equal(t, 2, taken, "a bucket that is not there is full")
}
