package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var p pace
	step := func(d time.Duration, n int, crowded bool) (float64, bool) {
		now = now.Add(d)
		return p.round(now, n, crowded)
	}
	// run has rounds every second for so long and returns the last pace there was.
	run := func(seconds, n int) (last float64) {
		for range seconds {
			if rate, fresh := step(time.Second, n, true); fresh {
				last = rate
			}
		}
		return last
	}
	_, fresh := step(0, 100, true)
	assert.False(t, fresh, "what came before the spell does not count")
	assert.InDelta(t, 4, run(5, 4), 1e-9)
	assert.InDelta(t, 8, run(600, 8), 0.01, "it follows")

	step(time.Second, 1000, false)
	_, fresh = step(time.Minute, 1000, true)
	assert.False(t, fresh, "a queue that was empty says nothing")
	assert.InDelta(t, 8, run(5, 8), 0.01)

	for range 30 {
		_, fresh = step(time.Second, 0, true)
		assert.False(t, fresh, "nothing is not known to be slow yet")
	}
	rate, fresh := step(30*time.Second, 1, true)
	assert.True(t, fresh)
	assert.Less(t, rate, 8.0)
	assert.Positive(t, rate)

	var slow pace
	for i := range 10 {
		rate, fresh = slow.round(now.Add(time.Duration(i)*time.Minute), 1, true)
	}
	assert.True(t, fresh)
	assert.InDelta(t, 1.0/60, rate, 1e-9)
}
