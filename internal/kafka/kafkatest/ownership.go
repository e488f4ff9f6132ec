package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// testRebalanceUnderPoison is the case that breaks stock watermill-kafka: a
// member that nacks for ever keeps its partition after the group took it away.
func testRebalanceUnderPoison(t *testing.T, b *bench) {
	const partitions = 4
	b.create(partitions)
	keys := b.keysOf(partitions)
	b.publish(1, keys...)
	poisonous := func(msg *message.Message) bool { return string(msg.Payload) == keys[0]+"-0" }

	seen := newLog()
	handler := func(who string) func(*delivery.Delivery, *message.Message) bool {
		return func(d *delivery.Delivery, msg *message.Message) bool {
			seen.add(who, d)
			return !poisonous(msg)
		}
	}
	// The older member may lose the poisoned partition, so both orders are
	// seen over a few rounds: join, and leave again.
	a := b.subscriber(nil)
	doneA := consume(b.subscribe(a), handler("a"))
	state(t, a, 0, kafka.StateStalled)

	for round := range 3 {
		who := fmt.Sprint("b", round)
		other := b.subscriber(nil)
		done := consume(b.subscribe(other), handler(who))
		// The joining member gets its share although the older one stalls.
		require.Eventually(t, func() bool { return len(other.Status()) == partitions/2 && len(a.Status()) == partitions/2 },
			patience, tick, "%s never got its share", who)
		owners := map[int32]int{}
		for _, st := range append(a.Status(), other.Status()...) {
			owners[st.Partition]++
		}
		require.Len(t, owners, partitions, "partitions without an owner")
		requireNoZombie(t, seen, other, who)
		// The neighbours move.
		before, _ := seen.snapshot()
		b.publish(5, keys[1:]...)
		seen.until(t, "neighbours go on", func(e []entry) bool {
			for p := int32(1); p < partitions; p++ {
				if counted(e[len(before):], p) < 5 {
					return false
				}
			}
			return true
		})
		if round < 2 {
			require.NoError(t, other.Close())
			done.Wait()
			require.Eventually(t, func() bool { return len(a.Status()) == partitions }, patience, tick, "a never got everything back")
			continue
		}
		// Now the older one leaves.
		require.NoError(t, a.Close())
		doneA.Wait()
		require.Eventually(t, func() bool { return len(other.Status()) == partitions }, patience, tick)
		state(t, other, 0, kafka.StateStalled)
		require.NoError(t, other.Close())
		done.Wait()
	}
}

// requireNoZombie fails if a partition is handed out by a member that does not
// own it: it watches a hundred redeliveries of the poisoned one.
func requireNoZombie(t *testing.T, seen *log, other Subscriber, who string) {
	t.Helper()
	owner, loser := "a", who
	for _, st := range other.Status() {
		if st.Partition == 0 {
			owner, loser = who, "a"
		}
	}
	before, _ := seen.snapshot()
	after := seen.until(t, "the poisoned record is tried on", func(e []entry) bool {
		return counted(e[len(before):], 0) >= 100
	})
	for _, e := range after[len(before):] {
		if e.partition == 0 {
			require.NotEqual(t, loser, e.who, "%s hands out a partition of %s", loser, owner)
		}
	}
}

// A handler that does not return holds a revoked partition for DrainTimeout and
// no longer. Then its context ends, its ack counts for nothing, and the next
// owner gets the record again.
func testHangingHandlerLosesPartition(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	short := func(sc *kafka.SubscriberConfig) { sc.DrainTimeout = 20 * tick }
	a := b.subscriber(short)
	hung := map[int32]*message.Message{}
	ch := b.subscribe(a)
	for range 2 {
		msg := receive(t, ch)
		hung[delivery.FromMessage(msg).Partition] = msg
	}
	require.Len(t, hung, len(keys))
	other := b.subscriber(short)
	again := receive(t, b.subscribe(other))
	moved := delivery.FromMessage(again).Partition
	first := delivery.FromMessage(hung[moved]).First().Offset
	require.Equal(t, first, delivery.FromMessage(again).First().Offset)
	<-hung[moved].Context().Done()
	require.NoError(t, hung[1-moved].Context().Err(), "the partition that stays is not disturbed")
	hung[moved].Ack() // too late
	hung[1-moved].Ack()
	b.committed(1-moved, 1)
	require.EqualValues(t, -1, b.offset(moved))
	again.Ack()
	b.committed(moved, 1)
}

func testMembersComeAndGo(t *testing.T, b *bench) {
	const partitions, total = 6, 1500
	b.create(partitions)
	seen := newLog()
	active := newOwnership(t)
	handle := func(who string) func(*delivery.Delivery, *message.Message) bool {
		return func(d *delivery.Delivery, msg *message.Message) bool {
			defer active.enter(who, d, msg)()
			if rand.IntN(50) == 0 {
				return false
			}
			seen.add(who, d)
			return true
		}
	}
	stayed := b.subscriber(nil)
	done := consume(b.subscribe(stayed), handle("stays"))

	var publishing sync.WaitGroup
	publishing.Go(func() {
		for i := range total / 50 {
			var recs []topics.Record
			for k := range 50 {
				recs = append(recs, topics.Record{Topic: b.topic, Key: fmt.Appendf(nil, "k%d", k), Value: fmt.Appendf(nil, "k%d-%d", k, i)})
			}
			assert.Nil(t, b.pub.PublishRecords(b.ctx(), recs))
		}
	})
	for i := range 4 {
		guest := b.subscriber(nil)
		left := consume(b.subscribe(guest), handle(fmt.Sprint("guest", i)))
		require.Eventually(t, func() bool { return len(guest.Status()) > 0 }, patience, tick)
		require.NoError(t, guest.Close())
		left.Wait()
	}
	publishing.Wait()
	entries := seen.until(t, "everything", func(e []entry) bool { return distinct(e) >= total })
	require.Equal(t, total, distinct(entries))
	requireOrder(t, entries)
	require.NoError(t, stayed.Close())
	done.Wait()
}

// ownership checks that a partition is handled by one member at a time, for as
// long as the contexts of its messages last.
type ownership struct {
	t  testing.TB
	mu sync.Mutex
	by map[int32]*message.Message
}

func newOwnership(t testing.TB) *ownership { return &ownership{t: t, by: map[int32]*message.Message{}} }

func (o *ownership) enter(who string, d *delivery.Delivery, msg *message.Message) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other := o.by[d.Partition]; other != nil && other.Context().Err() == nil && msg.Context().Err() == nil {
		o.t.Errorf("%s handles partition %d while another member does", who, d.Partition)
	}
	o.by[d.Partition] = msg
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.by[d.Partition] == msg {
			delete(o.by, d.Partition)
		}
	}
}

func distinct(entries []entry) int {
	seen := map[[2]int64]bool{}
	for _, e := range entries {
		seen[[2]int64{int64(e.partition), e.offset}] = true
	}
	return len(seen)
}

func testShutdownWaits(t *testing.T, b *bench) {
	b.create(1)
	b.publish(2, "a")
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.DrainTimeout = 5 * time.Second })
	ch := b.subscribe(sub)
	msg := receive(t, ch)
	closed := make(chan error)
	go func() { closed <- sub.Close() }()
	require.Eventually(t, func() bool {
		_, err := sub.Subscribe(context.Background(), "another")
		return errors.Is(err, kafka.ErrClosed)
	}, patience, tick, "close never began")
	// The handler sees no end of its context, and its ack counts.
	select {
	case err := <-closed:
		require.FailNow(t, "closed under a handler", "%v", err)
	default:
	}
	require.NoError(t, msg.Context().Err())
	msg.Ack()
	require.NoError(t, <-closed)
	require.EqualValues(t, 1, b.offset(0))

	_, err := sub.Subscribe(context.Background(), b.topic)
	require.ErrorIs(t, err, kafka.ErrClosed)
	require.NoError(t, sub.Close())
	next := receive(t, b.subscribe(b.subscriber(nil)))
	require.Equal(t, "a-1", string(next.Payload))
	next.Ack()
}

func testShutdownGivesUp(t *testing.T, b *bench) {
	b.create(1)
	b.publish(2, "a")
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.DrainTimeout = 50 * tick })
	msg := receive(t, b.subscribe(sub))
	require.NoError(t, sub.Close())
	<-msg.Context().Done()
	msg.Ack() // too late
	again := receive(t, b.subscribe(b.subscriber(nil)))
	require.Equal(t, "a-0", string(again.Payload), "what was in flight must come again")
	require.EqualValues(t, -1, b.offset(0))
	again.Ack()
}

func testHooksDecide(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	b.publish(10, keys...)
	ends, err := b.admin.EndOffsets(b.ctx(), b.topic)
	require.NoError(t, err)
	list, err := b.admin.ListTopics(b.ctx(), b.topic)
	require.NoError(t, err)
	start := ends[b.topic][0] - 4
	var epoch atomic.Int64
	type call struct {
		partition int32
		value     int64
		lost      bool
	}
	revoked := make(chan call, 8)
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) {
		sc.Hooks.Assigned = func(_ context.Context, topic string, id [16]byte, partition int32, committed int64) (int64, int64, error) {
			assert.Equal(t, b.topic, topic)
			assert.Equal(t, list[0].ID, id)
			assert.EqualValues(t, -1, committed)
			if partition == 0 {
				return start, 100 + epoch.Add(1), nil
			}
			return -1, 200, nil
		}
		sc.Hooks.Revoked = func(_ context.Context, _ string, partition int32, epoch int64, lost bool) {
			revoked <- call{partition, epoch, lost}
		}
	})
	ch := b.subscribe(sub)
	first := map[int32]int64{}
	for range 4 + ends[b.topic][1] {
		msg := receive(t, ch)
		d := delivery.FromMessage(msg)
		if _, ok := first[d.Partition]; !ok {
			first[d.Partition] = d.First().Offset
		}
		require.Equal(t, map[int32]int64{0: 101, 1: 200}[d.Partition], d.Epoch)
		msg.Ack()
	}
	require.Equal(t, map[int32]int64{0: start, 1: 0}, first)
	require.NoError(t, sub.Close())
	require.ElementsMatch(t, []call{{0, 101, false}, {1, 200, false}}, []call{<-revoked, <-revoked})
	require.Equal(t, ends[b.topic][0], b.offset(0))
}

func testFailingHook(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	b.publish(3, keys...)
	ends, err := b.admin.EndOffsets(b.ctx(), b.topic)
	require.NoError(t, err)
	errDown := errors.New("database is down")
	var up atomic.Bool
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) {
		sc.Hooks.Assigned = func(_ context.Context, _ string, _ [16]byte, partition int32, _ int64) (int64, int64, error) {
			if partition == 0 && !up.Load() {
				return 0, 0, errDown
			}
			return ends[b.topic][partition] - 2, 7, nil
		}
	})
	ch := b.subscribe(sub)
	for range 2 { // the neighbour goes on
		msg := receive(t, ch)
		require.EqualValues(t, 1, delivery.FromMessage(msg).Partition)
		msg.Ack()
	}
	st := state(t, sub, 0, kafka.StateStalled)
	require.ErrorIs(t, st.Cause, errDown)
	up.Store(true)
	msg := receive(t, ch)
	d := delivery.FromMessage(msg)
	require.Equal(t, []int64{0, ends[b.topic][0] - 2, 7}, []int64{int64(d.Partition), d.First().Offset, d.Epoch})
	msg.Ack()
	receive(t, ch).Ack()
	b.committed(0, ends[b.topic][0])
}

func testUnsubscribe(t *testing.T, b *bench) {
	b.create(1)
	neighbour := newBench(t, b.broker)
	neighbour.create(1)
	b.publish(20, "a")
	sub := b.subscriber(nil)
	stays, err := sub.Subscribe(context.Background(), neighbour.topic)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ends, err := sub.Subscribe(ctx, b.topic)
	require.NoError(t, err)
	_, err = sub.Subscribe(ctx, b.topic)
	require.Error(t, err, "one subscription per topic")

	msg := receive(t, ends)
	cancel()
	require.NoError(t, msg.Context().Err(), "a handler may finish")
	msg.Ack()
	acked := 1
	for msg := range ends { // until the end of the context is noticed
		msg.Ack()
		acked++
	}
	require.EqualValues(t, acked, b.offset(0))
	b.publish(1, "more")

	neighbour.publish(1, "n")
	receive(t, stays).Ack()
	again, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	msg = receive(t, again)
	require.EqualValues(t, acked, delivery.FromMessage(msg).First().Offset)
	msg.Ack()
}
