package stock_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/kafka/stock"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

const (
	patience = time.Minute
	tick     = 2 * time.Millisecond
)

// fake is a broker whose answers a test can spoil.
type fake struct {
	*kfake.Cluster
	t   *testing.T
	cfg kafka.Config
}

// newFake starts a broker with topics named after their number of partitions.
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

func (f *fake) publisher() *kafka.Publisher {
	f.t.Helper()
	pub, err := kafka.NewPublisher(f.cfg, kafka.PublisherConfig{})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, pub.Close()) })
	return pub
}

func (f *fake) publish(topic string, values ...string) {
	f.t.Helper()
	recs := make([]topics.Record, len(values))
	for i, v := range values {
		recs[i] = topics.Record{Topic: topic, Key: []byte("k"), Value: []byte(v)}
	}
	require.Nil(f.t, f.publisher().PublishRecords(f.t.Context(), recs))
}

func (f *fake) subscribe(topic string, change func(*kafka.SubscriberConfig)) (*stock.Subscriber, <-chan *message.Message) {
	f.t.Helper()
	sc := kafka.SubscriberConfig{
		Group: "g", BackoffInitial: tick, BackoffMax: 4 * tick, DrainTimeout: time.Second, CommitInterval: tick,
	}
	if change != nil {
		change(&sc)
	}
	sub, err := stock.NewSubscriber(f.cfg, sc)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, sub.Close()) })
	ch, err := sub.Subscribe(context.Background(), topic)
	require.NoError(f.t, err)
	return sub, ch
}

func (f *fake) committed(topic string, partition int32) int64 {
	f.t.Helper()
	admin, err := kafka.NewAdmin(f.cfg)
	if err != nil {
		return -2
	}
	defer admin.Close()
	offsets, err := admin.Committed(f.t.Context(), "g", topic)
	if err != nil {
		return -2 // a group that is coming into being
	}
	if offset, ok := offsets[partition]; ok {
		return offset
	}
	return -1
}

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case got, ok := <-ch:
		require.True(t, ok, "the channel was closed")
		return got
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func await(t testing.TB, sub *stock.Subscriber, partition int32, want kafka.PartitionState) kafka.PartitionStatus {
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
		sc.DrainTimeout = 5 * time.Second
		sc.Hooks.Revoked = func(_ context.Context, _ string, _ int32, _ int64, lost bool) { revoked <- lost }
	})
	receive(t, ch).Ack()
	held := receive(t, ch)
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: kerr.UnknownMemberID})
	<-held.Context().Done()
	held.Ack() // too late
	require.True(t, receive(t, revoked))
	again := receive(t, ch)
	d := delivery.FromMessage(again)
	require.Equal(t, 1, d.Try)
	require.LessOrEqual(t, d.First().Offset, int64(1), "the record that was in flight comes again")
	require.LessOrEqual(t, f.committed("one", 0), int64(1), "a lost partition committed what was acked too late")
	again.Ack()
}

func TestFetchThatIsForbiddenStallsAndRecovers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	forbidden := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "one", Err: kerr.TopicAuthorizationFailed, Count: -1})
	f.publish("one", "0")
	sub, ch := f.subscribe("one", nil)
	st := await(t, sub, 0, kafka.StateStalled)
	require.ErrorContains(t, st.Cause, "fetch one/0")
	require.ErrorContains(t, st.Cause, "authorized")
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

func TestLatestIsDecidedOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "old")
	latest := func(sc *kafka.SubscriberConfig) { sc.StartFrom = kafka.StartLatest }
	sub, _ := f.subscribe("one", latest)
	require.Eventually(t, func() bool { return f.committed("one", 0) == 1 }, patience, 10*tick)
	require.NoError(t, sub.Close())
	f.publish("one", "between")
	_, ch := f.subscribe("one", latest)
	msg := receive(t, ch)
	require.Equal(t, "between", string(msg.Payload))
	msg.Ack()
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
	receive(t, closed) // whether it could say goodbye does not matter
	_, open := <-ch
	require.False(t, open)
}

// A group changes its driver member by member.
func TestGroupOfBothDrivers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	franz, err := kafka.NewSubscriber(f.cfg, kafka.SubscriberConfig{Group: "g", CommitInterval: tick, DrainTimeout: time.Second})
	require.NoError(t, err)
	old, err := franz.Subscribe(context.Background(), "three")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(franz.Status()) == 3 }, patience, tick)
	sub, ch := f.subscribe("three", nil)
	require.Eventually(t, func() bool { return len(sub.Status()) > 0 && len(franz.Status())+len(sub.Status()) == 3 }, patience, tick)
	require.NoError(t, franz.Close())
	_, open := <-old
	require.False(t, open)
	require.Eventually(t, func() bool { return len(sub.Status()) == 3 }, patience, tick)
	f.publish("three", "value")
	receive(t, ch).Ack()
	// And back.
	franz, err = kafka.NewSubscriber(f.cfg, kafka.SubscriberConfig{Group: "g", CommitInterval: tick, DrainTimeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, franz.Close()) }()
	_, err = franz.Subscribe(context.Background(), "three")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(franz.Status()) > 0 && len(franz.Status())+len(sub.Status()) == 3 }, patience, tick)
}

func TestPauseHoldsEverythingAndRetakeAsksAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1", "2")
	starts := make(chan int64, 2)
	starts <- 1
	starts <- 2
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.Hooks.Assigned = func(context.Context, string, [16]byte, int32, int64) (int64, int64, error) {
			start := <-starts
			return start, 10 * start, nil
		}
	})
	sub.Pause()
	sub.Pause()
	require.Eventually(t, func() bool { st := sub.Status(); return len(st) == 1 && st[0].Epoch == 10 }, patience, tick)
	require.NoError(t, sub.Retake(t.Context(), "one", 0))
	require.NoError(t, sub.RefreshEnds(t.Context()))
	st := sub.Status()[0]
	require.Equal(t, []int64{2, 20, 3, 1, 0}, []int64{st.Position, st.Epoch, st.HighWatermark, st.Lag, st.Acked})
	select {
	case <-ch:
		require.Fail(t, "a message came during the pause")
	default:
	}
	sub.Resume()
	sub.Resume()
	msg := receive(t, ch)
	require.Equal(t, "2", string(msg.Payload))
	require.EqualValues(t, 20, delivery.FromMessage(msg).Epoch)
	msg.Ack()
	require.ErrorIs(t, sub.Retake(t.Context(), "one", 7), kafka.ErrNotAssigned)
	require.ErrorIs(t, sub.Seek(t.Context(), "two", 0, 0), kafka.ErrNotAssigned)
}

func TestWhatTheDriverCannotDoIsRefused(t *testing.T) {
	t.Parallel()
	cfg := kafka.Config{Brokers: []string{"127.0.0.1:1"}}
	for name, sc := range map[string]kafka.SubscriberConfig{
		"batches": {Group: "g", BatchSize: 2}, "gather": {Group: "g", Gather: time.Second},
	} {
		_, err := stock.NewSubscriber(cfg, sc)
		require.ErrorIs(t, err, stock.ErrBatches, name)
	}
	_, err := stock.NewSubscriber(cfg, kafka.SubscriberConfig{})
	require.ErrorContains(t, err, "group is required")
	_, err = stock.NewSubscriber(kafka.Config{}, kafka.SubscriberConfig{Group: "g"})
	require.ErrorContains(t, err, "kafka.brokers")
	_, err = stock.NewPublisher(kafka.Config{}, stock.PublisherConfig{})
	require.ErrorContains(t, err, "kafka.brokers")
	sub, err := stock.NewSubscriber(cfg, kafka.SubscriberConfig{Group: "g"})
	require.NoError(t, err)
	_, err = sub.Subscribe(t.Context(), "one")
	require.ErrorContains(t, err, "subscribe to one")
	require.NoError(t, sub.Close())
	_, err = sub.Subscribe(t.Context(), "one")
	require.ErrorIs(t, err, kafka.ErrClosed)
}

func TestMetricsTellWhatHappened(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0", "1", "2")
	reg := prometheus.NewRegistry()
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.Registerer, sc.BackoffInitial, sc.BackoffMax = reg, time.Hour, time.Hour
	})
	receive(t, ch).Ack()
	receive(t, ch).Nack()
	await(t, sub, 0, kafka.StateStalled)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP millrace_partition_stalled 1 while the partition is stalled or stopped.
		# TYPE millrace_partition_stalled gauge
		millrace_partition_stalled{group="g",partition="0",topic="one"} 1
		# HELP millrace_consumer_lag Records between the last acked one and the end of the partition, as of the last fetch.
		# TYPE millrace_consumer_lag gauge
		millrace_consumer_lag{group="g",partition="0",topic="one"} 2
	`), "millrace_partition_stalled", "millrace_consumer_lag"))
}

func TestSecuredConnections(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{kafka.MechanismPlain, kafka.MechanismScramSHA256, kafka.MechanismScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			ca := kafkatest.NewAuthority(t)
			f := newFake(t, kfake.TLS(ca.Server), kfake.EnableSASL(), kfake.Superuser(mechanism, "user", "pass"))
			f.cfg.TLS = ca.Client
			f.cfg.SASL = kafka.SASLConfig{Mechanism: mechanism, Username: "user", Password: secret.New("pass")}
			pub, err := stock.NewPublisher(f.cfg, stock.PublisherConfig{})
			require.NoError(t, err)
			require.NoError(t, pub.Publish("one", message.NewMessage("u", []byte("a"))))
			require.NoError(t, pub.Close())
			_, ch := f.subscribe("one", nil)
			msg := receive(t, ch)
			require.Equal(t, "a", string(msg.Payload))
			msg.Ack()

			var log bytes.Buffer
			wrong := f.cfg
			wrong.SASL.Password = secret.New("canary")
			wrong.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			_, err = stock.NewPublisher(wrong, stock.PublisherConfig{})
			require.Error(t, err)
			require.NotContains(t, err.Error()+log.String(), "canary")
			in := f.cfg
			in.TLS = kafka.TLSConfig{}
			_, err = stock.NewPublisher(in, stock.PublisherConfig{})
			require.Error(t, err, "in the clear")
		})
	}
}

// The embedded broker knows no OAUTHBEARER, so the test answers in its place and
// looks at what the client says.
func TestOAuthBearerSendsTheTokenOfTheMoment(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	said := make(chan string, 64)
	f.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{req.(*kmsg.SASLHandshakeRequest).Mechanism}
		return resp, nil, true
	})
	f.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		said <- string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		return req.ResponseKind(), nil, true
	})
	file := filepath.Join(t.TempDir(), "token")
	f.cfg.SASL = kafka.SASLConfig{Mechanism: kafka.MechanismOAuthBearer, TokenFile: file}
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		for len(said) > 0 {
			<-said
		}
		pub, err := stock.NewPublisher(f.cfg, stock.PublisherConfig{})
		require.NoError(t, err)
		require.Contains(t, receive(t, said), "auth=Bearer "+token+"\x01")
		require.NoError(t, pub.Close())
	}
	require.NoError(t, os.Remove(file))
	_, err := stock.NewPublisher(f.cfg, stock.PublisherConfig{})
	require.Error(t, err)
}
