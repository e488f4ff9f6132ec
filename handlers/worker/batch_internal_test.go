package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lingering is a batcher on a clock that the test moves, whose runs the test sees.
type lingering struct {
	*batcher[int, int]
	at      time.Time
	waits   chan chan time.Time
	batches chan []int
}

func newLingering(t *testing.T, enough func(int) bool) *lingering {
	t.Helper()
	l := &lingering{at: time.Unix(0, 0), waits: make(chan chan time.Time), batches: make(chan []int, 10)}
	l.batcher = newBatcher(4, func(_ context.Context, in []int) ([]int, error) {
		l.batches <- in
		return in, nil
	}).linger(enough)
	l.now = func() time.Time { return l.at }
	l.after = func(time.Duration) <-chan time.Time {
		over := make(chan time.Time, 1)
		l.waits <- over
		return over
	}
	return l
}

func (l *lingering) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.loop(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// call makes a call whose answer nobody waits for.
func (l *lingering) call(n int) { l.calls <- call[int, int]{in: n, reply: make(chan reply[int], 1)} }

func TestBatcherDoesNotDelayALoneCall(t *testing.T) {
	t.Parallel()
	l := newLingering(t, func(int) bool { return false })
	l.start(t)
	out, err := l.do(t.Context(), 7) // it would wait for ever if it asked the clock
	require.NoError(t, err)
	assert.Equal(t, 7, out)
	assert.Equal(t, []int{7}, <-l.batches)
}

func TestBatcherLingersAfterARun(t *testing.T) {
	t.Parallel()
	l := newLingering(t, func(n int) bool { return n >= 3 })
	l.ran = l.at
	l.start(t)
	l.call(1)
	over := <-l.waits
	l.call(2)
	over <- time.Time{}
	first := <-l.batches
	if len(first) == 1 { // the clock was quicker than the second call
		assert.Equal(t, []int{1}, first)
		(<-l.waits) <- time.Time{}
		first = append(first, <-l.batches...)
	}
	assert.Equal(t, []int{1, 2}, first)

	l.call(3)
	<-l.waits
	l.call(4)
	l.call(5) // now there are enough, and nobody waits for the clock
	assert.Equal(t, []int{3, 4, 5}, <-l.batches)
}

func TestBatcherWithoutLingeringNeverWaits(t *testing.T) {
	t.Parallel()
	l := newLingering(t, nil)
	l.ran = l.at
	l.start(t)
	for i := range 5 {
		out, err := l.do(t.Context(), i)
		require.NoError(t, err)
		assert.Equal(t, i, out)
	}
}
