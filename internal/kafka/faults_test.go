package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

const (
	patience = 30 * time.Second
	tick     = 2 * time.Millisecond
)

// fake is a broker whose answers a test can spoil.
type fake struct {
	*kfake.Cluster
	t   *testing.T
	cfg kafka.Config
}

// newFake starts a broker with topics named after their number of partitions:
// "one" and "three".
func newFake(t *testing.T, opts ...kfake.Opt) *fake {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.SeedTopics(1, "one"), kfake.SeedTopics(3, "three"),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return &fake{cluster, t, kafka.Config{
		Brokers: cluster.ListenAddrs(), SessionTimeout: 6 * time.Second, HeartbeatInterval: 50 * time.Millisecond,
	}}
}

func (f *fake) publisher(pc kafka.PublisherConfig) *kafka.Publisher {
	f.t.Helper()
	pub, err := kafka.NewPublisher(f.cfg, pc)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, pub.Close()) })
	return pub
}

func (f *fake) publish(topic string, values ...string) {
	f.t.Helper()
	recs := make([]topics.Record, len(values))
	for i, v := range values {
		recs[i] = topics.Record{Topic: topic, Key: []byte("k"), Value: []byte(v)}
	}
	require.Nil(f.t, f.publisher(kafka.PublisherConfig{}).PublishRecords(f.t.Context(), recs))
}

func (f *fake) subscribe(topic string, change func(*kafka.SubscriberConfig)) (*kafka.Subscriber, <-chan *message.Message) {
	f.t.Helper()
	sc := kafka.SubscriberConfig{
		Group: "g", BackoffInitial: tick, BackoffMax: 4 * tick, DrainTimeout: time.Second, CommitInterval: tick,
	}
	if change != nil {
		change(&sc)
	}
	sub, err := kafka.NewSubscriber(f.cfg, sc)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, sub.Close()) })
	ch, err := sub.Subscribe(context.Background(), topic)
	require.NoError(f.t, err)
	return sub, ch
}

func (f *fake) committed(partition int32) int64 {
	f.t.Helper()
	admin, err := kafka.NewAdmin(f.cfg)
	require.NoError(f.t, err)
	defer admin.Close()
	lags, err := admin.Lag(f.t.Context(), "g")
	require.NoError(f.t, err)
	for _, l := range lags {
		if l.Partition == partition {
			return l.Committed
		}
	}
	return -1
}

// read returns the values in a topic, by partition.
func (f *fake) read(topic string, n int) map[int32][]string {
	f.t.Helper()
	tail, err := kafka.NewTail(f.t.Context(), f.cfg, kafka.TailConfig{Topics: []string{topic}, From: kafka.StartEarliest})
	require.NoError(f.t, err)
	defer tail.Close()
	got := map[int32][]string{}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	require.NoError(f.t, tail.Run(ctx, func(r topics.Record) error {
		got[r.Partition] = append(got[r.Partition], string(r.Value))
		if n--; n == 0 {
			cancel()
		}
		return nil
	}))
	require.Zero(f.t, n, "records are missing")
	return got
}

func receive(t testing.TB, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-ch:
		require.True(t, ok, "the channel was closed")
		return msg
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		return nil
	}
}

func await(t testing.TB, sub *kafka.Subscriber, partition int32, want kafka.PartitionState) kafka.PartitionStatus {
	t.Helper()
	var found kafka.PartitionStatus
	require.Eventually(t, func() bool {
		for _, st := range sub.Status() {
			if st.Partition == partition && st.State == want {
				found = st
				return true
			}
		}
		return false
	}, patience, tick, "partition %d was never %s", partition, want)
	return found
}

func TestLostPartitionEndsAtOnceAndCommitsNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1")
	revoked := make(chan bool, 4)
	_, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.CommitInterval = time.Hour // what was acked before waits for its commit
		sc.Hooks.Revoked = func(_ context.Context, _ string, _ int32, _ int64, lost bool) { revoked <- lost }
	})
	receive(t, ch).Ack()
	held := receive(t, ch)
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: kerr.UnknownMemberID})
	select {
	case <-held.Context().Done():
	case <-time.After(patience):
		require.FailNow(t, "the context of a lost partition goes on")
	}
	held.Ack()
	require.True(t, <-revoked)
	again := receive(t, ch)
	d := delivery.FromMessage(again)
	require.Equal(t, []any{int64(0), 1}, []any{d.First().Offset, d.Try}, "the new ownership starts at what is committed")
	require.EqualValues(t, -1, f.committed(0), "a lost partition committed")
	again.Ack()
}

func TestCommitUnderAnotherMembershipIsDropped(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("three", "0")
	// The group throws the member out the moment it wants to commit.
	refused := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownMemberID})
	_, ch := f.subscribe("three", nil)
	first := receive(t, ch)
	at := delivery.FromMessage(first).Partition
	first.Ack()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, refused.Wait(ctx, 1))
	// The client rejoins under a new generation and either keeps the partition,
	// and then its offset is committed on, or takes it anew and gets it again.
	require.Eventually(t, func() bool {
		select {
		case again := <-ch:
			again.Ack()
		default:
		}
		return f.committed(at) == 1
	}, patience, 10*tick)
}

func TestRefusedRecordIsToldApartFromItsNeighbours(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.publisher(kafka.PublisherConfig{Compression: kafka.CompressionNone})
	refuse(f, []byte("bad"), kerr.InvalidRecord)
	var recs []topics.Record
	for i := range 60 {
		value := fmt.Sprintf("%02d", i)
		if i == 20 || i == 45 {
			value = "bad"
		}
		recs = append(recs, topics.Record{Topic: "one", Key: fmt.Appendf(nil, "k%d", i%10), Value: []byte(value)})
	}
	errs := pub.PublishRecords(t.Context(), recs)
	require.Len(t, errs, 60)
	var want []string
	for i, err := range errs {
		switch {
		case i == 20 || i == 45:
			require.True(t, kafka.IsRejected(err), "record %d: %v", i, err)
		case i%10 == 0 && i > 20, i%10 == 5 && i > 45:
			require.ErrorIs(t, err, kafka.ErrHeldBack, "record %d", i)
		default:
			require.NoError(t, err, "record %d", i)
			want = append(want, fmt.Sprintf("%02d", i))
		}
	}
	require.ElementsMatch(t, want, f.read("one", len(want))[0])
	last := map[byte]string{}
	for _, v := range f.read("one", len(want))[0] {
		key := v[1] // its key is its last digit
		require.Greater(t, v, last[key], "key %c goes backwards", key)
		last[key] = v
	}
	require.Error(t, pub.Publish("one", message.NewMessage("u", []byte("bad"))))
}

// refuse makes the broker refuse every batch that contains text.
func refuse(f *fake, text []byte, because *kerr.Error) {
	f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		found := false
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				found = found || bytes.Contains(rp.Records, text)
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = rp.Partition, because.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		if !found {
			return nil, nil, false
		}
		return resp, nil, true
	})
}

func TestUnansweredPublishIsReportedInTime(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.publisher(kafka.PublisherConfig{DeliveryTimeout: time.Second})
	f.publish("one", "before")
	var silent sync.Mutex
	mute := true
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		silent.Lock()
		defer silent.Unlock()
		return nil, nil, mute
	})
	batch := []topics.Record{
		{Topic: "one", Key: []byte("k"), Value: []byte("1")}, {Topic: "one", Key: []byte("k"), Value: []byte("2")},
	}
	for _, recs := range [][]topics.Record{batch, batch[:1]} { // by a lane, and by the shared client
		errs := pub.PublishRecords(t.Context(), recs)
		require.Len(t, errs, len(recs))
		for _, err := range errs {
			require.Error(t, err)
			require.False(t, kafka.IsRejected(err), "silence is no rejection: %v", err)
		}
	}
	silent.Lock()
	mute = false
	silent.Unlock()
	require.Eventually(t, func() bool { return pub.PublishRecords(t.Context(), batch) == nil }, patience, tick)
	values := f.read("one", 3)[0]
	require.Equal(t, []string{"before", "1", "2"}, values[:3])
}

func TestLostAnswerIsRetriedWithoutRepetition(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	// Written, but the broker says it does not know.
	faults := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 2})
	f.publish("one", "1", "2", "3")
	require.Equal(t, 2, faults.Hits())
	f.publish("one", "4")
	require.Equal(t, []string{"1", "2", "3", "4"}, f.read("one", 4)[0])
}

func TestPublishAfterCloseAndCancelledPublish(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.publisher(kafka.PublisherConfig{})
	require.Nil(t, pub.PublishRecords(t.Context(), nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	recs := []topics.Record{{Topic: "one", Key: []byte("a")}, {Topic: "one", Key: []byte("a")}}
	for _, err := range pub.PublishRecords(ctx, recs) {
		require.Error(t, err)
	}
	require.NoError(t, pub.Close())
	require.ErrorIs(t, pub.PublishRecords(t.Context(), recs)[1], kafka.ErrClosed)
	require.ErrorIs(t, pub.Publish("one", message.NewMessage("u", nil)), kafka.ErrClosed)
}

func TestFetchThatIsForbiddenStallsAndRecovers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	forbidden := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "one", Err: kerr.TopicAuthorizationFailed, Count: -1})
	f.publish("one", "0")
	sub, ch := f.subscribe("one", nil)
	st := await(t, sub, 0, kafka.StateStalled)
	require.ErrorIs(t, st.Cause, kerr.TopicAuthorizationFailed)
	forbidden.Remove()
	receive(t, ch).Ack()
	await(t, sub, 0, kafka.StateRunning)
}

func TestReplacedTopicStops(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1", "2")
	sub, ch := f.subscribe("one", nil)
	for range 3 {
		receive(t, ch).Ack()
	}
	require.NoError(t, f.DeleteTopic("one"))
	require.NoError(t, f.CreateTopic("one", 1, nil))
	st := await(t, sub, 0, kafka.StateStopped)
	require.ErrorIs(t, st.Cause, kafka.ErrTopicReplaced)
	require.ErrorIs(t, sub.Seek(t.Context(), "one", 0, 0), kafka.ErrTopicReplaced)
}

func TestPartitionsThatATopicGetsAreConsumed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.cfg.MetadataMaxAge = 50 * time.Millisecond
	sub, ch := f.subscribe("one", nil)
	await(t, sub, 0, kafka.StateRunning)
	client, err := kgo.NewClient(kgo.SeedBrokers(f.cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).UpdatePartitions(t.Context(), 2, "one")
	require.NoError(t, err)
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "one", Partition: 1, Value: []byte("new")}).FirstErr())
	await(t, sub, 1, kafka.StateRunning)
	msg := receive(t, ch)
	assert.Equal(t, "new", string(msg.Payload))
	msg.Ack()
}

// A topic that was made anew takes records again, from a client that knew the former
// one as well, and nobody is told that a record was at fault.
func TestPublishToATopicThatWasReplaced(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]int{"shared client": 1, "lane": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.cfg.MetadataMaxAge = 50 * time.Millisecond
			pub := f.publisher(kafka.PublisherConfig{Lanes: 1})
			recs := make([]topics.Record, records)
			for i := range recs {
				recs[i] = topics.Record{Topic: "one", Key: []byte("k"), Value: []byte("v")}
			}
			require.Nil(t, pub.PublishRecords(t.Context(), recs))
			require.NoError(t, f.DeleteTopic("one"))
			require.NoError(t, f.CreateTopic("one", 1, nil))
			require.Eventually(t, func() bool {
				errs := pub.PublishRecords(t.Context(), recs)
				for _, err := range errs {
					assert.False(t, kafka.IsRejected(err), "%v", err)
				}
				return errs == nil
			}, patience, tick)
			f.read("one", records)
		})
	}
}

func TestLatestIsDecidedOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "old")
	latest := func(sc *kafka.SubscriberConfig) { sc.StartFrom = kafka.StartLatest }
	sub, _ := f.subscribe("one", latest)
	require.Eventually(t, func() bool { return f.committed(0) == 1 }, patience, 10*tick)
	require.NoError(t, sub.Close())
	f.publish("one", "between")
	_, ch := f.subscribe("one", latest)
	msg := receive(t, ch)
	require.Equal(t, "between", string(msg.Payload))
	msg.Ack()
}

// scriptedClock lets every backoff pass at once and notes its length. A drain
// never runs out.
type scriptedClock struct {
	drain  time.Duration
	mu     sync.Mutex
	pauses []time.Duration
}

func (c *scriptedClock) Now() time.Time { return time.Unix(1_700_000_000, 0) }

func (c *scriptedClock) After(d time.Duration) (<-chan time.Time, func()) {
	ch := make(chan time.Time, 1)
	if d != c.drain {
		c.mu.Lock()
		c.pauses = append(c.pauses, d)
		c.mu.Unlock()
		ch <- c.Now()
	}
	return ch, func() {}
}

func TestBackoffDoublesUpToAMinuteAndNeverEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0")
	clock := &scriptedClock{drain: 3 * time.Second}
	_, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.BackoffInitial, sc.BackoffMax, sc.DrainTimeout, sc.Clock = 0, 0, clock.drain, clock
	})
	for try := 1; try <= 10; try++ {
		msg := receive(t, ch)
		require.Equal(t, try, delivery.FromMessage(msg).Try)
		msg.Nack()
	}
	receive(t, ch).Ack()
	clock.mu.Lock()
	defer clock.mu.Unlock()
	s := time.Second
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s, 60 * s}, clock.pauses)
}

// gatherClock holds every pause until the test lets it pass.
type gatherClock struct {
	scriptedClock
	waits chan chan time.Time
}

func (c *gatherClock) After(d time.Duration) (<-chan time.Time, func()) {
	ch := make(chan time.Time, 1)
	if d != c.drain {
		c.waits <- ch
	}
	return ch, func() {}
}

func TestGatherHandsOutTogetherWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	clock := &gatherClock{scriptedClock: scriptedClock{drain: 3 * time.Second}, waits: make(chan chan time.Time, 10)}
	_, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.BatchSize, sc.Gather, sc.DrainTimeout, sc.Clock = 3, time.Minute, clock.drain, clock
	})
	f.publish("one", "0")
	msg := receive(t, ch) // at once: it was quiet
	require.Len(t, delivery.FromMessage(msg).Records, 1)
	msg.Ack()

	pause := <-clock.waits
	f.publish("one", "1", "2")
	select {
	case <-ch:
		require.Fail(t, "a delivery came during the pause")
	default:
	}
	pause <- clock.Now()
	msg = receive(t, ch)
	require.Len(t, delivery.FromMessage(msg).Records, 2)
	msg.Ack()

	pause = <-clock.waits
	f.publish("one", "3", "4", "5")
	pause <- clock.Now()
	msg = receive(t, ch)
	require.Len(t, delivery.FromMessage(msg).Records, 3)
	msg.Ack()
	f.publish("one", "6") // after a full batch there is no pause
	receive(t, ch).Ack()
}

func TestCloseWithoutBrokerEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1")
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) { sc.CommitInterval = time.Hour })
	receive(t, ch).Ack()
	held := receive(t, ch)
	f.Close()
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	held.Nack()
	select {
	case <-closed: // whether it could say goodbye does not matter
	case <-time.After(patience):
		require.FailNow(t, "close hangs")
	}
	_, open := <-ch
	require.False(t, open)
}
