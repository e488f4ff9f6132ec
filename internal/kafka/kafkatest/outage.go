package kafkatest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// tick is how often conditions are looked at.
const tick = 5 * time.Millisecond

func testOutOfRange(t *testing.T, b *bench) {
	b.create(2)
	keys := b.keysOf(2)
	b.publish(10, keys...)
	ends, err := b.admin.EndOffsets(b.ctx(), b.topic)
	require.NoError(t, err)
	sub := b.subscriber(nil)
	ch := b.subscribe(sub)
	for { // until partition 0 has got past its first record
		msg := receive(t, ch)
		if d := delivery.FromMessage(msg); d.Partition == 0 && d.First().Offset == 1 {
			break
		}
		msg.Ack()
	}
	require.NoError(t, sub.Close())
	b.committed(0, 1)

	low := ends[b.topic][0] - 2
	b.deleteRecords(0, low)
	sub = b.subscriber(nil)
	ch = b.subscribe(sub)
	st := state(t, sub, 0, kafka.StateStopped)
	var cause *kafka.OutOfRangeError
	require.ErrorAs(t, st.Cause, &cause)
	require.Equal(t, []int64{1, low, ends[b.topic][0]}, []int64{cause.Offset, cause.Low, cause.High})
	require.EqualValues(t, 1, b.offset(0), "the group's offset must stay")

	go func() { // the neighbour goes on, whatever is left there
		b.publishQuietly(topics.Record{Topic: b.topic, Key: []byte(keys[1]), Value: []byte("neighbour")})
	}()
	for {
		msg := receive(t, ch)
		require.EqualValues(t, 1, delivery.FromMessage(msg).Partition)
		msg.Ack()
		if string(msg.Payload) == "neighbour" {
			break
		}
	}
	require.NoError(t, sub.Seek(b.ctx(), b.topic, 0, low))
	msg := receive(t, ch)
	require.Equal(t, low, delivery.FromMessage(msg).First().Offset)
	msg.Ack()
	b.committed(0, low+1)
	state(t, sub, 0, kafka.StateRunning)
}

func testSeekPastPoison(t *testing.T, b *bench) {
	b.create(1)
	b.publish(5, "a")
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.BackoffInitial, sc.BackoffMax = patience, 2*patience })
	ch := b.subscribe(sub)
	receive(t, ch).Nack()
	state(t, sub, 0, kafka.StateStalled)
	require.NoError(t, sub.Seek(b.ctx(), b.topic, 0, 3))
	msg := receive(t, ch)
	require.Equal(t, "a-3", string(msg.Payload))
	b.committed(0, 3)
	msg.Ack()
	b.committed(0, 4)
	// And back: the record is handed out again.
	held := receive(t, ch)
	require.Equal(t, "a-4", string(held.Payload))
	sought := make(chan error)
	go func() { sought <- sub.Seek(b.ctx(), b.topic, 0, 1) }()
	held.Ack()
	require.NoError(t, <-sought)
	for _, want := range []string{"a-1", "a-2", "a-3"} {
		msg := receive(t, ch)
		require.Equal(t, want, string(msg.Payload))
		msg.Ack()
	}
	require.Error(t, sub.Seek(b.ctx(), b.topic, 0, -5))
}

func testConsumerSurvivesRestart(t *testing.T, b *bench) {
	const total, publishers = 4000, 20
	b.create(4)
	sub := b.subscriber(nil)
	seen := newLog()
	done := consume(b.subscribe(sub), func(d *delivery.Delivery, _ *message.Message) bool {
		seen.add("", d)
		return true
	})
	var published atomic.Int64
	third := make(chan struct{})
	var publishing sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for i := range total / publishers {
				msg := message.NewMessage(fmt.Sprintf("%d-%d", p, i), fmt.Appendf(nil, "%d-%d", p, i))
				for b.pub.Publish(b.topic, msg) != nil {
				}
				if published.Add(1) == total/3 {
					close(third)
				}
			}
		})
	}
	<-third
	b.broker.Restart(t)
	b.broker.Restart(t)
	publishing.Wait()
	seen.until(t, "all messages", func(e []entry) bool { return len(values(e)) >= total })
	require.NoError(t, sub.Close())
	done.Wait()

	require.Eventually(t, func() bool {
		lags, err := b.admin.Lag(b.ctx(), b.group)
		behind := int64(0)
		for _, l := range lags {
			behind += l.Lag
		}
		return err == nil && len(lags) == 4 && behind == 0
	}, patience, tick, "what was acked was never committed")
}

// testOrderSurvivesRestart publishes like the relay: batches with several
// records per key, sent again until they succeed, while the broker dies.
func testOrderSurvivesRestart(t *testing.T, b *bench) {
	const keys, rounds = 40, 60
	b.create(4)
	sub := b.subscriber(func(sc *kafka.SubscriberConfig) { sc.BatchSize = 100 })
	seen := newLog()
	done := consume(b.subscribe(sub), func(d *delivery.Delivery, _ *message.Message) bool {
		seen.add("", d)
		return true
	})
	pub, err := kafka.NewPublisher(b.cfg, kafka.PublisherConfig{DeliveryTimeout: 2 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, pub.Close()) }()

	third := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for round := range rounds {
			if round == rounds/3 {
				close(third)
			}
			var batch []topics.Record
			for i := range 5 {
				for k := range keys {
					batch = append(batch, topics.Record{Topic: b.topic, Key: fmt.Appendf(nil, "k%d", k), Value: fmt.Appendf(nil, "%06d", round*5+i)})
				}
			}
			for len(batch) > 0 {
				batch = failed(t, batch, pub.PublishRecords(b.ctx(), batch))
			}
		}
	})
	<-third
	b.broker.Restart(t)
	publishing.Wait()
	total := keys * rounds * 5
	entries := seen.until(t, "all records", func(e []entry) bool { return len(values(e)) >= total })
	require.NoError(t, sub.Close())
	done.Wait()

	// First sightings of a key's values ascend: repetitions may follow.
	last := map[string]string{}
	first := map[string]bool{}
	for _, e := range entries {
		id := e.key + "/" + e.value
		if first[id] {
			continue
		}
		first[id] = true
		require.Greater(t, e.value, last[e.key], "key %s goes backwards", e.key)
		last[e.key] = e.value
	}
}

// failed returns the records to send again. None may have been rejected.
func failed(t testing.TB, batch []topics.Record, errs []error) []topics.Record {
	var again []topics.Record
	for i, err := range errs {
		if err != nil {
			assert.False(t, kafka.IsRejected(err), "an outage is no rejection: %v", err)
			again = append(again, batch[i])
		}
	}
	return again
}

func values(entries []entry) map[string]bool {
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.key+"/"+e.value] = true
	}
	return seen
}

// deleteRecords moves the beginning of a partition, as retention does.
func (b *bench) deleteRecords(partition int32, before int64) {
	b.t.Helper()
	opts, err := b.cfg.Options()
	require.NoError(b.t, err)
	client, err := kgo.NewClient(opts...)
	require.NoError(b.t, err)
	defer client.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(b.topic, partition, before, -1)
	responses, err := kadm.NewClient(client).DeleteRecords(b.ctx(), offsets)
	require.NoError(b.t, err)
	responses.Each(func(r kadm.DeleteRecordsResponse) { require.NoError(b.t, r.Err) })
}

func (b *bench) publishQuietly(recs ...topics.Record) {
	if errs := b.pub.PublishRecords(b.ctx(), recs); errs != nil {
		b.t.Errorf("publish: %s", strings.TrimSpace(errors.Join(errs...).Error()))
	}
}
