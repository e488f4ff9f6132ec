package kafka_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// movingClock goes on when the test says so. No pause takes any of it.
type movingClock struct {
	scriptedClock
	passed atomic.Int64
}

func (c *movingClock) Now() time.Time {
	return c.scriptedClock.Now().Add(time.Duration(c.passed.Load()))
}

// Batches begin small and grow while they are quick. One that is slow makes the next
// ones smaller; one that fails comes again with less in it, and what was left out comes
// next, in order.
func TestBatchesKeepPace(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	values := make([]string, 600)
	for i := range values {
		values[i] = strconv.Itoa(i)
	}
	f.publish("one", values...)
	clock := &movingClock{scriptedClock: scriptedClock{drain: 3 * time.Second}}
	_, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.BatchSize, sc.DrainTimeout, sc.Clock = 128, clock.drain, clock
	})
	next := int64(0)
	for i, step := range []struct {
		size int
		took time.Duration
		fail bool
	}{
		{size: 32},
		{size: 64},
		{size: 128},
		{size: 128, took: 2 * time.Second}, // neither quick nor slow
		{size: 128, took: time.Minute},
		{size: 64, fail: true},
		{size: 32, fail: true},
		{size: 16, took: 6 * time.Second},
		{size: 8, fail: true},
		{size: 4, fail: true},
		{size: 2, fail: true},
		{size: 1, fail: true},
		{size: 1, fail: true},
		{size: 1},
		{size: 2},
		{size: 4, took: 4 * time.Second},
		{size: 4},
		{size: 8},
		{size: 16},
	} {
		msg := receive(t, ch)
		d := delivery.FromMessage(msg)
		require.Len(t, d.Records, step.size, "step %d", i)
		for n, r := range d.Records {
			require.Equal(t, next+int64(n), r.Offset, "step %d", i)
		}
		clock.passed.Add(int64(step.took))
		if step.fail {
			msg.Nack()
			continue
		}
		msg.Ack()
		next += int64(step.size)
	}
	for left := len(values) - int(next); left > 0; {
		msg := receive(t, ch)
		d := delivery.FromMessage(msg)
		assert.Equal(t, int64(len(values)-left), d.First().Offset)
		left -= len(d.Records)
		msg.Ack()
	}
	require.Eventually(t, func() bool { return f.committed(0) == int64(len(values)) }, patience, tick)
}

// A batch that failed and was sought past is gone whole: the part of it that was put
// back is not handed out.
func TestSeekDropsWhatWasPutBack(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	values := make([]string, 40)
	for i := range values {
		values[i] = strconv.Itoa(i)
	}
	f.publish("one", values...)
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.BatchSize, sc.BackoffInitial, sc.BackoffMax = 128, patience, 2*patience
	})
	receive(t, ch).Nack()
	await(t, sub, 0, kafka.StateStalled)
	require.NoError(t, sub.Seek(t.Context(), "one", 0, 36))
	msg := receive(t, ch)
	assert.EqualValues(t, 36, delivery.FromMessage(msg).First().Offset)
	msg.Ack()
}
