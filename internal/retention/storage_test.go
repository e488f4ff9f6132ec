package retention

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
)

func TestDaysUntilFull(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var g growth
	_, ok := g.daysUntilFull(100)
	assert.False(t, ok)
	g.add(measurement{start, 1000})
	g.add(measurement{start.Add(growthMin - 1), 9000})
	_, ok = g.daysUntilFull(100)
	assert.False(t, ok, "too short a time")
	g.add(measurement{start.Add(2 * time.Hour), 1200})
	left, ok := g.daysUntilFull(2400)
	assert.True(t, ok)
	assert.InDelta(t, 1, left, 1e-9, "100 bytes an hour")
	g.add(measurement{start.Add(3 * time.Hour), 900})
	left, ok = g.daysUntilFull(2400)
	assert.True(t, ok)
	assert.True(t, math.IsInf(left, 1))
}

func TestGrowthForgetsWhatIsLongAgo(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var g growth
	for n := range 40 * 24 {
		g.add(measurement{start.Add(time.Duration(n) * time.Hour), int64(n * n)})
	}
	assert.Len(t, g.past, 7*24+1)
	first, last := g.past[0], g.past[len(g.past)-1]
	assert.Equal(t, growthMax, last.at.Sub(first.at))
}

func TestRooms(t *testing.T) {
	t.Parallel()
	free, ok := Limit(100)(30)
	assert.True(t, ok)
	assert.EqualValues(t, 70, free)
	free, _ = Limit(100)(130)
	assert.Zero(t, free)
	free, ok = Disk(t.TempDir())(0)
	assert.True(t, ok)
	assert.Positive(t, free)
	_, ok = Disk("/nowhere/at/all")(0)
	assert.False(t, ok)
}

func TestRunKeepsWhileItHoldsTheLease(t *testing.T) {
	t.Parallel()
	cfg := thirty()
	cfg.Room = Limit(1 << 50)
	b := setup(t, cfg)
	_, table := b.oldDay(40)
	b.exec(`DROP TABLE ` + dayTable(b.today().Add(3*day)))
	b.run()
	require.Eventually(t, func() bool {
		count, err := testutil.GatherAndCount(b.reg, "millrace_storage_free_bytes")
		return err == nil && count == 1
	}, time.Minute, 10*time.Millisecond)
	status := b.status()
	assert.Equal(t, Ahead, status.AheadDays())
	assert.NotContains(t, tables(status), table)
	assert.InDelta(t, Ahead, testutil.ToFloat64(b.keeper.metrics.ahead), 0)
	assert.InDelta(t, 0, testutil.ToFloat64(b.keeper.metrics.strays), 0)
	assert.Positive(t, testutil.ToFloat64(b.keeper.metrics.bytes))
	count, err := testutil.GatherAndCount(b.reg, "millrace_storage_days_until_full")
	require.NoError(t, err)
	assert.Zero(t, count, "nothing is said before growth was seen")
}

func tables(s Status) (names []string) {
	for _, d := range s.Days {
		names = append(names, d.Table)
	}
	return names
}

// run runs the keeper until the test ends.
func (b *testBundle) run() {
	leases := lease.NewManager(b.pool, "test", 0, nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(b.t, b.keeper.Run(ctx, leases))
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}
