package kafkatest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// changes counts what an observer is told.
type changes struct {
	mu     sync.Mutex
	paused []bool
}

func (c *changes) PartitionChanged(st kafka.PartitionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = append(c.paused, st.Paused)
}

func (c *changes) last() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.paused) > 0 && c.paused[len(c.paused)-1]
}

// testPause: what is in flight ends, nothing else is handed out, neither here nor
// after a rebalance, the lag grows, a seek takes effect, and all goes on afterwards.
func testPause(t *testing.T, b *bench) {
	b.create(1)
	b.publish(3, "k")
	seen := &changes{}
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.Observer = seen })
	ch := b.subscribe(sub)
	first := receive(t, ch)
	sub.Pause()
	sub.Pause() // the same
	assert.True(t, seen.last())
	first.Ack()
	require.Eventually(t, func() bool { return sub.Status()[0].Position == 1 }, patience, tick)
	b.publish(2, "k")
	require.Eventually(t, func() bool {
		require.NoError(t, sub.RefreshEnds(b.ctx()))
		st := sub.Status()[0]
		return st.Paused && st.State == kafka.StateRunning && st.Lag == 4
	}, patience, tick, "the lag of what is paused does not grow")
	select {
	case msg := <-ch:
		require.Fail(t, "handed out while paused", "%s", msg.Payload)
	default:
	}
	require.NoError(t, sub.Seek(b.ctx(), b.topic, 0, 3))
	assert.True(t, sub.Status()[0].Paused, "a seek does not end a pause")

	sub.Resume()
	sub.Resume()
	assert.False(t, seen.last())
	for _, want := range []string{"k-0", "k-1"} { // offsets 3 and 4
		msg := receive(t, ch)
		assert.Equal(t, want, string(msg.Payload))
		msg.Ack()
	}
	require.NoError(t, sub.Close())

	// A member that begins paused gets its partition and waits.
	other := b.subscriber(nil)
	other.Pause()
	ch = b.subscribe(other)
	b.publish(1, "k")
	require.Eventually(t, func() bool { return len(other.Status()) == 1 && other.Status()[0].Paused }, patience, tick)
	other.Resume()
	receive(t, ch).Ack()
}

// testFencedOwnerTakesAnew: an owner whose epoch is no longer the partition's, but
// to whom the group gives the partition, asks where to go on.
func testFencedOwnerTakesAnew(t *testing.T, b *bench) {
	b.create(1)
	b.publish(4, "k")
	errFenced := errors.New("fenced")
	var epoch, position atomic.Int64
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) {
		sc.Hooks.Fenced = func(cause error) bool { return errors.Is(cause, errFenced) }
		sc.Hooks.Assigned = func(context.Context, string, [16]byte, int32, int64) (start, now int64, err error) {
			return position.Load(), epoch.Add(1), nil
		}
	})
	ch := b.subscribe(sub)
	msg := receive(t, ch)
	assert.Equal(t, int64(1), delivery.FromMessage(msg).Epoch)
	msg.Ack()
	// Somebody moves the position while a Delivery is in flight.
	msg = receive(t, ch)
	epoch.Add(1)
	position.Store(3)
	delivery.FromMessage(msg).Fail(errFenced)
	msg.Nack()
	msg = receive(t, ch)
	assert.Equal(t, "k-3", string(msg.Payload))
	assert.Equal(t, int64(3), delivery.FromMessage(msg).Epoch)

	// And while nothing is: it is told to look. First what is in flight ends.
	position.Store(1)
	retaken := make(chan error, 1)
	go func() { retaken <- sub.Retake(b.ctx(), b.topic, 0) }()
	msg.Ack()
	require.NoError(t, <-retaken)
	msg = receive(t, ch)
	assert.Equal(t, "k-1", string(msg.Payload))
	assert.Equal(t, int64(4), delivery.FromMessage(msg).Epoch)
	msg.Ack()
	require.ErrorIs(t, sub.Retake(b.ctx(), b.topic, 7), kafka.ErrNotAssigned)
	require.Eventually(t, func() bool {
		lags, err := b.admin.Lag(b.ctx(), b.group)
		return err == nil && len(lags) == 1 && lags[0].Committed == 2
	}, patience, tick, "the group's offset goes back with it")
}

// testGroupOffsets: the offsets of a group are set while it has no members, and
// only then.
func testGroupOffsets(t *testing.T, b *bench) {
	b.create(1)
	b.publish(5, "k")
	sub := b.subscriber(nil)
	ch := b.subscribe(sub)
	receive(t, ch).Ack()
	require.Eventually(t, func() bool {
		lags, err := b.admin.Lags(b.ctx(), b.group, "nobody")
		return err == nil && len(lags) == 1 && len(lags[b.group]) == 1 && lags[b.group][0].Committed == 1 && lags[b.group][0].Member != ""
	}, patience, tick)
	require.ErrorIs(t, b.admin.CommitFor(b.ctx(), b.group, b.topic, map[int32]int64{0: 3}), kafka.ErrGroupLive)
	require.NoError(t, sub.Close())
	require.NoError(t, b.admin.CommitFor(b.ctx(), b.group, b.topic, map[int32]int64{0: 3}))
	assert.Equal(t, "k-3", string(receive(t, b.subscribe(b.subscriber(nil))).Payload))
}
