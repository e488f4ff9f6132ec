package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// errorLog keeps the errors that a hook is told of.
type errorLog struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorLog) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// await waits for a report of that trouble; empty for none.
func (l *errorLog) await(t *testing.T, want kafka.Trouble) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, err := range l.errs {
			if kafka.TroubleOf(err) == want {
				return true
			}
		}
		return false
	}, patience, tick, "nobody told of %q", want)
}

// A member that comes under the name of one that is still there has its partitions at
// once, whatever that one is doing; and that one is fenced.
func TestStaticMemberReplacesItsNamesake(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1")
	f.cfg.SessionTimeout = 2 * time.Minute // nobody is waited for
	var joined errorLog
	static := func(sc *kafka.SubscriberConfig) {
		sc.InstanceID, sc.Hooks.Joined = "n-0", joined.add
	}
	_, old := f.subscribe("one", static)
	joined.await(t, "")
	receive(t, old).Ack()
	held := receive(t, old)
	require.Eventually(t, func() bool { return f.committed(0) == 1 }, patience, 10*tick)

	_, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) { sc.InstanceID = "n-0" })
	again := receive(t, ch)
	require.EqualValues(t, 1, delivery.FromMessage(again).First().Offset)
	select {
	case <-held.Context().Done():
	case <-time.After(patience):
		require.FailNow(t, "the former member goes on")
	}
	held.Ack()
	joined.await(t, kafka.TroubleFenced)
	require.EqualValues(t, 1, f.committed(0), "the former member committed")
	again.Ack()
	require.Eventually(t, func() bool { return f.committed(0) == 2 }, patience, 10*tick)
}

// A static member that closes is gone: others need not wait for its session to end.
func TestStaticMemberLeavesWithClose(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0")
	f.cfg.SessionTimeout = 2 * time.Minute
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) { sc.InstanceID = "n-0" })
	receive(t, ch).Ack()
	require.NoError(t, sub.Close())
	admin, err := kafka.NewAdmin(f.cfg)
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.CommitFor(t.Context(), "g", "one", map[int32]int64{0: 0}), "the group has no members")
	_, ch = f.subscribe("one", func(sc *kafka.SubscriberConfig) { sc.InstanceID = "n-1" })
	receive(t, ch).Ack()
}

// The offset of a topic that is gone means nothing in one of the same name, whether that
// has more records by now or fewer.
func TestTopicThatWasRenewedWhileNobodyLooked(t *testing.T) {
	t.Parallel()
	for _, records := range []int{2, 9} {
		t.Run(fmt.Sprint(records), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.publish("one", "a", "b", "c", "d")
			remember := func(sc *kafka.SubscriberConfig) { sc.RememberTopics, sc.StartFrom = true, kafka.StartLatest }
			sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) { sc.RememberTopics = true })
			for range 4 {
				receive(t, ch).Ack()
			}
			require.NoError(t, sub.Close())

			// The same topic: it goes on behind them.
			sub, ch = f.subscribe("one", remember)
			f.publish("one", "e")
			first := receive(t, ch)
			require.Equal(t, "e", string(first.Payload))
			first.Ack()
			require.NotZero(t, sub.Status()[0].TopicID)
			require.False(t, sub.Status()[0].Renewed)
			require.NoError(t, sub.Close())

			before, err := f.admin().FetchOffsets(t.Context(), "g")
			require.NoError(t, err)
			require.NoError(t, f.DeleteTopic("one"))
			require.NoError(t, f.CreateTopic("one", 1, nil))
			// Brokers forget the offsets of a topic that is deleted. Those that do not, or a
			// group that is restored from elsewhere, keep what was noted with them.
			require.NoError(t, f.admin().CommitAllOffsets(t.Context(), "g", before.Offsets()))
			values := make([]string, records)
			for i := range values {
				values[i] = fmt.Sprint(i)
			}
			f.publish("one", values...)
			sub, ch = f.subscribe("one", remember)
			for _, want := range values {
				msg := receive(t, ch)
				require.Equal(t, want, string(msg.Payload))
				msg.Ack()
			}
			require.True(t, sub.Status()[0].Renewed)
			require.Eventually(t, func() bool { return f.committed(0) == int64(records) }, patience, 10*tick)
		})
	}
}

// admin is a person with Kafka's tools.
func (f *fake) admin() *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(f.cfg.Brokers...))
	require.NoError(f.t, err)
	f.t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// A topic that is made anew while it is consumed is consumed on once it was given up and
// taken up again.
func TestReplacedTopicIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1", "2")
	sub, err := kafka.NewSubscriber(f.cfg, kafka.SubscriberConfig{
		Group: "g", RememberTopics: true, BackoffInitial: tick, BackoffMax: 4 * tick, DrainTimeout: time.Second, CommitInterval: tick,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	ctx, end := context.WithCancel(t.Context())
	ch, err := sub.Subscribe(ctx, "one")
	require.NoError(t, err)
	for range 3 {
		receive(t, ch).Ack()
	}
	require.NoError(t, f.DeleteTopic("one"))
	require.NoError(t, f.CreateTopic("one", 1, nil))
	st := await(t, sub, 0, kafka.StateStopped)
	require.ErrorIs(t, st.Cause, kafka.ErrTopicReplaced)
	f.publish("one", "new")
	end()
	drained(t, ch)
	ch, err = sub.Subscribe(t.Context(), "one")
	require.NoError(t, err)
	msg := receive(t, ch)
	require.Equal(t, "new", string(msg.Payload))
	msg.Ack()
	require.Eventually(t, func() bool { return f.committed(0) == 1 }, patience, 10*tick)
}

// drained waits for the end of a channel.
func drained(t *testing.T, ch <-chan *message.Message) {
	t.Helper()
	for {
		select {
		case _, open := <-ch:
			if !open {
				return
			}
		case <-time.After(patience):
			require.FailNow(t, "the channel was never closed")
		}
	}
}

func TestEndsOfPartitionsThatWereNeverFetched(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	sub, _ := f.subscribe("three", nil)
	for partition := range int32(3) {
		require.EqualValues(t, -1, await(t, sub, partition, kafka.StateRunning).HighWatermark)
	}
	require.NoError(t, sub.RefreshEnds(t.Context()))
	for _, st := range sub.Status() {
		assert.Zero(t, st.HighWatermark)
	}
	id, err := sub.Admin().ClusterID(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, id)
	retention, err := sub.Admin().OffsetsRetention(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7*24*time.Hour, retention)
}
