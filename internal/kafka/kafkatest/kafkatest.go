// Package kafkatest proves the transport of internal/kafka against a broker:
// the suites run on the embedded broker and on a real Apache Kafka alike.
package kafkatest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// patience is how long a test waits for what must happen. It is generous: it
// only matters when a test fails.
const patience = 60 * time.Second

// Broker is what the suites run on.
type Broker struct {
	// Addrs are the seed addresses.
	Addrs []string
	// Restart kills the broker and starts it again with its data, and returns
	// when it serves. Nil if it cannot; then the tests that need it are skipped.
	Restart func(t testing.TB)
	// RestartCommand does the same from outside the process. Nil if there is
	// none.
	RestartCommand []string
	// Driver is what is proven. Its zero value is package kafka.
	Driver Driver
	// Embedded says that it is not Kafka itself, and in what it differs.
	Embedded bool
}

// Driver makes the subscribers and publishers under test.
type Driver struct {
	NewSubscriber func(kafka.Config, kafka.SubscriberConfig) (Subscriber, error)
	NewPublisher  func(kafka.Config) (message.Publisher, error)
	// SingleRecords says that a Delivery is one record, and batches are refused.
	SingleRecords bool
}

// Subscriber is what every driver's subscriber can do.
type Subscriber interface {
	message.Subscriber
	Status() []kafka.PartitionStatus
	RetryNow(topic string, partition int32) error
	Seek(ctx context.Context, topic string, partition int32, offset int64) error
	Pause()
	Resume()
	Retake(ctx context.Context, topic string, partition int32) error
	RefreshEnds(ctx context.Context) error
}

func (d Driver) subscriber(cfg kafka.Config, sc kafka.SubscriberConfig) (Subscriber, error) {
	if d.NewSubscriber != nil {
		return d.NewSubscriber(cfg, sc)
	}
	return kafka.NewSubscriber(cfg, sc)
}

func (d Driver) publisher(cfg kafka.Config) (message.Publisher, error) {
	if d.NewPublisher != nil {
		return d.NewPublisher(cfg)
	}
	return kafka.NewPublisher(cfg, kafka.PublisherConfig{})
}

// Config returns the settings to reach the broker with.
func (b Broker) Config() kafka.Config {
	return kafka.Config{Brokers: b.Addrs, SessionTimeout: 6 * time.Second, HeartbeatInterval: 200 * time.Millisecond}
}

// Run runs the suite of our own. Topics and groups get names of their own, so
// that tests can share a broker.
func Run(t *testing.T, broker Broker) {
	for name, test := range map[string]func(*testing.T, *bench){
		"offsets are committed after the ack and not before": testCommitAfterAck,
		"a nack stalls its partition and no other":           testNackStallsItsPartition,
		"retry now ends the backoff":                         testRetryNow,
		"a poisoned partition moves in a rebalance":          testRebalanceUnderPoison,
		"members that come and go lose nothing":              testMembersComeAndGo,
		"any bytes pass through untouched":                   testAnyBytes,
		"large records pass and oversize ones are rejected":  testLargeRecords,
		"a handler that hangs loses its partition":           testHangingHandlerLosesPartition,
		"a slow handler may finish in the shutdown":          testShutdownWaits,
		"a handler that hangs is redelivered":                testShutdownGivesUp,
		"batches hold one partition in order":                testBatches,
		"an offset out of range stops the partition":         testOutOfRange,
		"a pause holds what is not in flight":                testPause,
		"a fenced owner takes its partition anew":            testFencedOwnerTakesAnew,
		"offsets of a group without members are set":         testGroupOffsets,
		"seek skips what never succeeds":                     testSeekPastPoison,
		"hooks decide where to start":                        testHooksDecide,
		"a failing hook stalls and recovers":                 testFailingHook,
		"a context ends its subscription alone":              testUnsubscribe,
		"a tail resumes without gap or repetition":           testTail,
		"a tail passes the end of a transaction":             testTailTransaction,
		"slow consumers bound what is fetched":               testPrefetchIsBounded,
		"messages and records keep their form":               testForms,
		"records carry the time that the topic asks for":     testStamp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if broker.Driver.SingleRecords && name == "batches hold one partition in order" {
				t.Skip("a message of this driver is one record")
			}
			test(t, newBench(t, broker))
		})
	}
	if broker.Restart == nil {
		return
	}
	// The restart concerns all that share the broker: one after the other.
	for name, test := range map[string]func(*testing.T, *bench){
		"a consumer survives the broker":    testConsumerSurvivesRestart,
		"order per key survives the broker": testOrderSurvivesRestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, newBench(t, broker)) })
	}
}

// bench is what one test works with.
type bench struct {
	t      *testing.T
	broker Broker
	cfg    kafka.Config
	admin  *kafka.Admin
	pub    *kafka.Publisher
	topic  string
	group  string
}

func newBench(t *testing.T, broker Broker) *bench {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	b := &bench{t: t, broker: broker, cfg: broker.Config(), topic: name + "-" + uuid.NewString()[:8]}
	b.topic = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, b.topic)
	b.group = "group-" + b.topic
	var err error
	b.admin, err = kafka.NewAdmin(b.cfg)
	require.NoError(t, err)
	t.Cleanup(b.admin.Close)
	b.pub, err = kafka.NewPublisher(b.cfg, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.pub.Close()) })
	return b
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *bench) create(partitions int32) {
	b.t.Helper()
	reports, err := b.admin.EnsureTopics(b.ctx(), []kafka.TopicConfig{{Name: b.topic, Partitions: partitions, ReplicationFactor: 1}})
	require.NoError(b.t, err)
	require.Equal(b.t, kafka.TopicCreated, reports[0].Outcome)
}

// subscriber makes one with short pauses. It is closed when the test ends.
func (b *bench) subscriber(change func(*kafka.SubscriberConfig)) Subscriber {
	b.t.Helper()
	sc := kafka.SubscriberConfig{
		Group: b.group, BackoffInitial: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
		DrainTimeout: 2 * time.Second, CommitInterval: 10 * time.Millisecond,
	}
	if change != nil {
		change(&sc)
	}
	if b.broker.Driver.SingleRecords {
		sc.BatchSize = 1
	}
	sub, err := b.broker.Driver.subscriber(b.cfg, sc)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, sub.Close()) })
	return sub
}

func (b *bench) subscribe(sub Subscriber) <-chan *message.Message {
	b.t.Helper()
	ch, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(b.t, err)
	return ch
}

// publish writes n records per key, values "key-0", "key-1" ...
func (b *bench) publish(n int, keys ...string) {
	b.t.Helper()
	var recs []topics.Record
	for i := range n {
		for _, key := range keys {
			recs = append(recs, topics.Record{Topic: b.topic, Key: []byte(key), Value: fmt.Appendf(nil, "%s-%d", key, i)})
		}
	}
	require.Nil(b.t, b.pub.PublishRecords(b.ctx(), recs))
}

// keysOf returns one key for each partition of the topic.
func (b *bench) keysOf(partitions int) []string {
	b.t.Helper()
	tail, err := kafka.NewTail(b.ctx(), b.cfg, kafka.TailConfig{Topics: []string{b.topic}})
	require.NoError(b.t, err)
	defer tail.Close()
	probe := 64 * partitions
	keys := make([]string, probe)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	b.publish(1, keys...)
	found := make([]string, partitions)
	seen, missing := 0, partitions
	err = tail.Run(b.ctx(), func(r topics.Record) error {
		seen++
		if found[r.Partition] == "" {
			found[r.Partition] = string(r.Key)
			missing--
		}
		if seen == probe {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(b.t, err, errEnough)
	require.Zero(b.t, missing, "no key found for some partition")
	return found
}

// receive waits for the next message.
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

// committed waits until the group has committed offset for a partition.
func (b *bench) committed(partition int32, offset int64) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.offset(partition) == offset }, patience, 10*time.Millisecond,
		"the group never committed offset %d", offset)
}

func (b *bench) offset(partition int32) int64 {
	lags, err := b.admin.Lag(b.ctx(), b.group)
	if err != nil {
		return -2
	}
	for _, l := range lags {
		if l.Topic == b.topic && l.Partition == partition {
			return l.Committed
		}
	}
	return -1
}

// state waits until a partition is in a state and returns its status.
func state(t testing.TB, sub Subscriber, partition int32, want kafka.PartitionState) kafka.PartitionStatus {
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
	}, patience, 2*time.Millisecond, "partition %d was never %s", partition, want)
	return found
}

// log keeps what consumers saw.
type log struct {
	mu      sync.Mutex
	entries []entry
	changed chan struct{}
}

type entry struct {
	who       string
	partition int32
	offset    int64
	key       string
	value     string
}

func newLog() *log { return &log{changed: make(chan struct{})} }

func (l *log) add(who string, d *delivery.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range d.Records {
		l.entries = append(l.entries, entry{who, r.Partition, r.Offset, string(r.Key), string(r.Value)})
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) snapshot() ([]entry, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]entry(nil), l.entries...), l.changed
}

// until waits for the log to satisfy done.
func (l *log) until(t testing.TB, what string, done func([]entry) bool) []entry {
	t.Helper()
	limit := time.After(patience)
	for {
		entries, changed := l.snapshot()
		if done(entries) {
			return entries
		}
		select {
		case <-changed:
		case <-limit:
			require.FailNow(t, "never happened: "+what, "%d entries", len(entries))
		}
	}
}

// consume hands every message to handle and acks or nacks it as told, each in a
// goroutine of its own as Watermill's router does. It ends with the channel.
func consume(ch <-chan *message.Message, handle func(*delivery.Delivery, *message.Message) bool) *sync.WaitGroup {
	var running sync.WaitGroup
	running.Go(func() {
		for msg := range ch {
			running.Go(func() {
				if handle(delivery.FromMessage(msg), msg) {
					msg.Ack()
				} else {
					msg.Nack()
				}
			})
		}
	})
	return &running
}
