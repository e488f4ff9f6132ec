package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

var (
	errEnough = errors.New("enough")
	errPoison = errors.New("poison")
)

func testCommitAfterAck(t *testing.T, b *bench) {
	b.create(1)
	b.publish(3, "a")
	sub := b.subscriber(nil)
	ch := b.subscribe(sub)
	first := receive(t, ch)
	d := delivery.FromMessage(first)
	require.Equal(t, "a-0", string(first.Payload))
	require.Equal(t, []any{b.group, b.topic, int32(0), 1, int64(0)}, []any{d.Group, d.Topic, d.Partition, d.Try, d.First().Offset})
	require.NotZero(t, d.TopicID)
	require.EqualValues(t, -1, b.offset(0), "committed before the ack")

	first.Ack()
	<-first.Context().Done()
	second := receive(t, ch)
	b.committed(0, 1)
	second.Nack()
	again := receive(t, ch)
	require.Equal(t, second.UUID, again.UUID)
	require.Equal(t, 2, delivery.FromMessage(again).Try)
	require.EqualValues(t, 1, b.offset(0), "a nack committed")
	again.Ack()
	receive(t, ch).Ack()
	b.committed(0, 3)
}

func testNackStallsItsPartition(t *testing.T, b *bench) {
	b.create(3)
	keys := b.keysOf(3)
	b.publish(50, keys...)
	sub := b.subscriber(nil)
	seen := newLog()
	var mended atomic.Bool
	done := consume(b.subscribe(sub), func(d *delivery.Delivery, msg *message.Message) bool {
		if string(msg.Payload) == keys[1]+"-10" && !mended.Load() {
			d.Fail(errPoison)
			return false
		}
		seen.add("", d)
		return true
	})
	count := func(partition int32) func([]entry) bool {
		return func(entries []entry) bool { return counted(entries, partition) >= 50 }
	}
	seen.until(t, "the neighbours go on", func(e []entry) bool { return count(0)(e) && count(2)(e) })
	st := state(t, sub, 1, kafka.StateStalled)
	assert.ErrorIs(t, st.Cause, errPoison)
	assert.Equal(t, keys[1], string(st.Key))
	assert.Positive(t, st.Attempts)
	assert.False(t, st.Since.IsZero())
	assert.Positive(t, st.Lag)

	mended.Store(true)
	entries := seen.until(t, "the stalled partition goes on", count(1))
	requireOrder(t, entries)
	state(t, sub, 1, kafka.StateRunning)
	require.NoError(t, sub.Close())
	done.Wait()
}

func testRetryNow(t *testing.T, b *bench) {
	b.create(1)
	b.publish(1, "a")
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.BackoffInitial, sc.BackoffMax = patience, 2*patience })
	ch := b.subscribe(sub)
	receive(t, ch).Nack()
	st := state(t, sub, 0, kafka.StateStalled)
	require.True(t, st.NextTry.After(st.Since))
	require.NoError(t, sub.RetryNow(b.topic, 0))
	receive(t, ch).Ack()
	state(t, sub, 0, kafka.StateRunning)
	require.ErrorIs(t, sub.RetryNow(b.topic, 7), kafka.ErrNotAssigned)
}

func testAnyBytes(t *testing.T, b *bench) {
	b.create(1)
	many := make([]topics.Header, 10_000)
	for i := range many {
		many[i] = topics.Header{Key: fmt.Sprintf("h%d", i%100), Value: fmt.Appendf(nil, "%d", i)}
	}
	sent := []topics.Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte{0xff, 0xfe, 0}, Value: []byte{0xc3, 0x28}, Headers: []topics.Header{{Key: "\xff", Value: []byte{0x80}}, {Key: "ce_id", Value: []byte{0xff}}}},
		{Value: []byte("{not json"), Headers: []topics.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("2")}}},
		{Value: []byte("x"), Headers: many},
		{Value: []byte("_"), Headers: []topics.Header{{Key: delivery.HeaderMessageUUID, Value: []byte("not a uuid")}}},
	}
	for i := range sent {
		sent[i].Topic = b.topic
	}
	// One call each: without a key, or with one, they share the only partition.
	for _, r := range sent {
		require.Nil(t, b.pub.PublishRecords(b.ctx(), []topics.Record{r}))
	}
	ch := b.subscribe(b.subscriber(nil))
	for i, want := range sent {
		msg := receive(t, ch)
		got := delivery.FromMessage(msg).First()
		assert.Equal(t, want.Key, got.Key, "key of record %d", i)
		assert.Equal(t, want.Value, got.Value, "value of record %d", i)
		assert.Equal(t, want.Headers, got.Headers, "headers of record %d", i)
		assert.NotEmpty(t, msg.UUID)
		if i == 3 {
			assert.Equal(t, "2", msg.Metadata["a"], "the last header of a name wins")
		}
		msg.Ack()
	}
}

func testLargeRecords(t *testing.T, b *bench) {
	b.create(1)
	large := make([]byte, 1<<20-1024)
	recs := []topics.Record{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("b"), Value: large},
		{Key: []byte("c"), Value: make([]byte, 2<<20)},
		{Key: []byte("c"), Value: []byte("behind the oversize one")},
		{Key: []byte("a"), Value: []byte("2")},
	}
	for i := range recs {
		recs[i].Topic = b.topic
	}
	errs := b.pub.PublishRecords(b.ctx(), recs)
	require.Len(t, errs, len(recs))
	for _, fine := range []int{0, 1, 4} {
		require.NoError(t, errs[fine], "record %d", fine)
	}
	require.True(t, kafka.IsRejected(errs[2]), "%v", errs[2])
	require.ErrorIs(t, errs[3], kafka.ErrHeldBack)
	require.False(t, kafka.IsRejected(errs[3]))

	ch := b.subscribe(b.subscriber(nil))
	var values []int
	for range 3 {
		msg := receive(t, ch)
		values = append(values, len(msg.Payload))
		msg.Ack()
	}
	require.Equal(t, []int{1, len(large), 1}, values)

	missing := b.pub.PublishRecords(b.ctx(), []topics.Record{{Topic: b.topic + "-missing", Value: []byte("x")}})
	require.Len(t, missing, 1)
	require.True(t, kafka.IsRejected(missing[0]), "%v", missing[0])
}

func testBatches(t *testing.T, b *bench) {
	b.create(4)
	keys := b.keysOf(4)
	b.publish(300, keys...)
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.BatchSize = 64 })
	seen := newLog()
	var failed, largest atomic.Int64
	done := consume(b.subscribe(sub), func(d *delivery.Delivery, _ *message.Message) bool {
		largest.Store(max(largest.Load(), int64(len(d.Records))))
		for i, r := range d.Records {
			if r.Partition != d.Partition || i > 0 && r.Offset <= d.Records[i-1].Offset {
				t.Errorf("a batch of partition %d holds %d/%d after %d", d.Partition, r.Partition, r.Offset, d.Records[max(0, i-1)].Offset)
			}
		}
		if d.Try == 1 && failed.Add(1) <= 8 {
			return false
		}
		seen.add("", d)
		return true
	})
	entries := seen.until(t, "all records", func(e []entry) bool { return len(e) >= 4*300+64*4 })
	requireOrder(t, entries)
	require.Greater(t, largest.Load(), int64(1))
	require.LessOrEqual(t, largest.Load(), int64(64))
	require.NoError(t, sub.Close())
	done.Wait()
}

func testPrefetchIsBounded(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	var recs []topics.Record
	noise := rand.NewChaCha8([32]byte{1})
	for i := range 400 {
		value := make([]byte, 20<<10) // noise: what is bounded is compressed
		_, _ = noise.Read(value)
		recs = append(recs, topics.Record{Topic: b.topic, Key: []byte(keys[i%2]), Value: value})
	}
	require.Nil(t, b.pub.PublishRecords(b.ctx(), recs))
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.PrefetchBytes = 64 << 10 })
	ch := b.subscribe(sub)
	held := map[int32]*message.Message{}
	for range 2 { // one per partition; nothing else can come
		msg := receive(t, ch)
		held[delivery.FromMessage(msg).Partition] = msg
	}
	require.Len(t, held, 2)
	// A fetch brings at most about 1 MiB per partition. There is the one that
	// crosses the bound, one already under way, and up to 64 small records.
	for _, st := range sub.Status() {
		require.LessOrEqual(t, st.Prefetched, 64+(64+2*1100)/20, "partition %d", st.Partition)
	}
	for _, msg := range held {
		msg.Ack()
	}
	// All of it comes nevertheless.
	total := 128 + len(recs)
	for range total - 2 {
		receive(t, ch).Ack()
	}
}

func testForms(t *testing.T, b *bench) {
	b.create(1)
	ch := b.subscribe(b.subscriber(nil))
	plain := message.NewMessage("an id", []byte("plain"))
	plain.Metadata.Set(delivery.MetadataPartitionKey, "the key")
	plain.Metadata.Set("colour", "blue")
	exact := message.NewMessage("another id", []byte("ignored"))
	delivery.WithRecord(exact, topics.Record{Key: nil, Value: nil, Headers: []topics.Header{
		{Key: "x", Value: []byte{1}}, {Key: "x", Value: []byte{0xff}}, {Key: "y", Value: []byte("y")},
	}})
	require.NoError(t, b.pub.Publish(b.topic, plain, exact))

	got := receive(t, ch)
	require.Equal(t, "an id", got.UUID)
	require.Equal(t, message.Metadata{"colour": "blue"}, got.Metadata)
	require.Equal(t, "the key", string(delivery.FromMessage(got).First().Key))
	got.Ack()

	got = receive(t, ch)
	first := delivery.FromMessage(got).First()
	require.Nil(t, first.Key)
	require.Nil(t, first.Value)
	// Sent on as it is, but for what a handler changes.
	got.Metadata.Set("y", "changed")
	got.Metadata.Set("z", "new")
	require.NoError(t, b.pub.Publish(b.topic, got))
	got.Ack()

	forwarded := delivery.FromMessage(receive(t, ch)).First()
	require.Nil(t, forwarded.Key)
	require.Equal(t, []topics.Header{
		{Key: "x", Value: []byte{1}}, {Key: "x", Value: []byte{0xff}},
		{Key: "y", Value: []byte("changed")}, {Key: "z", Value: []byte("new")},
	}, forwarded.Headers)
}

func testTail(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	from, err := b.admin.EndOffsets(b.ctx(), b.topic)
	require.NoError(t, err)
	b.publish(20, keys...)
	var got []entry
	read := func(tc kafka.TailConfig, n int) kafka.Offsets {
		tail, err := kafka.NewTail(b.ctx(), b.cfg, tc)
		require.NoError(t, err)
		defer tail.Close()
		require.ErrorIs(t, tail.Run(b.ctx(), func(r topics.Record) error {
			if n == 0 {
				return errEnough // not taken: comes again
			}
			n--
			got = append(got, entry{"", r.Partition, r.Offset, string(r.Key), string(r.Value)})
			return nil
		}), errEnough)
		return tail.Positions()
	}
	at := read(kafka.TailConfig{Topics: []string{b.topic}, Offsets: from}, 13)
	b.publish(1, keys...)
	read(kafka.TailConfig{Topics: []string{b.topic}, Offsets: at}, 28)
	require.Len(t, got, 41)
	requireOrder(t, got)
	seen := map[string]bool{}
	for _, e := range got {
		place := fmt.Sprint(e.partition, "/", e.offset)
		require.False(t, seen[place], "%s came twice", place)
		seen[place] = true
	}

	// From the end: only what is published afterwards, even before Run.
	tail, err := kafka.NewTail(b.ctx(), b.cfg, kafka.TailConfig{Topics: []string{b.topic}})
	require.NoError(t, err)
	defer tail.Close()
	require.Nil(t, b.pub.PublishRecords(b.ctx(), []topics.Record{{Topic: b.topic, Value: []byte("later")}}))
	require.ErrorIs(t, tail.Run(b.ctx(), func(r topics.Record) error {
		require.Equal(t, "later", string(r.Value))
		return errEnough
	}), errEnough)

	_, err = kafka.NewTail(b.ctx(), b.cfg, kafka.TailConfig{Topics: []string{b.topic}, Offsets: kafka.Offsets{b.topic: {0: 1 << 40}}})
	var outOfRange *kafka.OutOfRangeError
	require.ErrorAs(t, err, &outOfRange)
	ended, cancel := context.WithCancel(b.ctx())
	cancel()
	require.NoError(t, tail.Run(ended, func(topics.Record) error { return nil }))
}

// testTailTransaction: what is no record, as the end of a transaction, is not handed
// over, and the position passes it.
func testTailTransaction(t *testing.T, b *bench) {
	b.create(1)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...), kgo.TransactionalID(b.topic), kgo.DefaultProduceTopic(b.topic))
	require.NoError(t, err)
	defer client.Close()
	tail, err := kafka.NewTail(b.ctx(), b.cfg, kafka.TailConfig{Topics: []string{b.topic}})
	require.NoError(t, err)
	defer tail.Close()
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(b.ctx(), kgo.StringRecord("inside")).FirstErr())
	require.NoError(t, client.EndTransaction(b.ctx(), kgo.TryCommit))
	// The coordinator answers before it has written the end of the transaction.
	var end kafka.Offsets
	require.Eventually(t, func() bool {
		end, err = b.admin.EndOffsets(b.ctx(), b.topic)
		return err == nil && end[b.topic][0] > 1
	}, patience, time.Millisecond, "the end of the transaction has an offset")

	ctx, cancel := context.WithCancel(b.ctx())
	var got atomic.Int32
	done := make(chan error, 1)
	go func() {
		done <- tail.Run(ctx, func(r topics.Record) error {
			got.Add(1)
			return nil
		})
	}()
	require.Eventually(t, func() bool { return tail.Positions()[b.topic][0] == end[b.topic][0] }, patience, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, got.Load())
}

func counted(entries []entry, partition int32) int {
	n := 0
	for _, e := range entries {
		if e.partition == partition {
			n++
		}
	}
	return n
}

// requireOrder fails if records of a partition appear for the first time out of
// order. Repetitions are allowed.
func requireOrder(t testing.TB, entries []entry) {
	t.Helper()
	last := map[int32]int64{}
	seen := map[[2]int64]bool{}
	for _, e := range entries {
		place := [2]int64{int64(e.partition), e.offset}
		if seen[place] {
			continue
		}
		seen[place] = true
		if at, ok := last[e.partition]; ok {
			require.Greater(t, e.offset, at, "partition %d goes backwards", e.partition)
		}
		last[e.partition] = e.offset
	}
}
