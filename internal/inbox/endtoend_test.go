package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// plant is everything that consumers run on: a broker, a database, a publisher.
type plant struct {
	*testBundle
	cfg       kafka.Config
	publisher *kafka.Publisher
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	p := &plant{testBundle: setup(t)}
	p.cfg = kafka.Config{Brokers: testenv.Broker(t), Logger: slog.New(slog.DiscardHandler)}
	admin, err := kafka.NewAdmin(p.cfg)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "marks", Partitions: 3}, {Name: "dead_letters", Partitions: 1}})
	require.NoError(t, err)
	p.publisher, err = kafka.NewPublisher(p.cfg, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.publisher.Close()) })
	return p
}

func (p *plant) publish(t *testing.T, records ...topics.Record) {
	t.Helper()
	for i := range records {
		records[i].Topic, records[i].Timestamp = "marks", time.Time{}
	}
	require.Nil(t, p.publisher.PublishRecords(t.Context(), records))
}

// start runs a router with the given consumers and returns what stops it.
func (p *plant) start(t *testing.T, consumers ...pipeline.Consumer) (stop func()) {
	t.Helper()
	r, err := pipeline.NewRouter(pipeline.RouterConfig{
		Store: p.store, DeadLetters: p.publisher, Registerer: prometheus.NewRegistry(),
		Infrastructure: []func(error) bool{postgres.IsInfrastructure},
		Log:            slog.New(slog.DiscardHandler),
		LanePoll:       20 * time.Millisecond,
		Subscribe: func(s pipeline.Subscription) (message.Subscriber, error) {
			return kafka.NewSubscriber(p.cfg, kafka.SubscriberConfig{
				Group: s.Group, BatchSize: s.BatchSize, Hooks: kafka.Hooks{Assigned: s.Assigned},
				BackoffInitial: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
			})
		},
	})
	require.NoError(t, err)
	for _, c := range consumers {
		require.NoError(t, r.Add(c))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ran)
		}
	}
	t.Cleanup(stop)
	return stop
}

// On a broker and a database: every mark has one effect per transactional
// consumer although routers come and go, commits to Kafka are lost with them, and
// the log holds poison and repetitions.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	const n = 300
	var want []string
	var records []topics.Record
	for i := range n {
		id := fmt.Sprintf("%04d", i)
		want = append(want, id)
		records = append(records, markRecord(t, id))
		switch {
		case i%50 == 7:
			records = append(records, topics.Record{Key: []byte(id), Value: []byte("\xffpoison")})
		case i%20 == 3:
			records = append(records, markRecord(t, id)) // the relay crashed before it marked the row
		}
	}
	var seen atomic.Int64
	consumers := func() []pipeline.Consumer {
		quick := pipeline.Delivery{Backoff: pipeline.Backoff{Initial: time.Millisecond}}
		return []pipeline.Consumer{
			{Name: "batch", Topic: "marks", Handle: pipeline.OnBatchTx(insertMarks), BatchSize: 16, Delivery: quick},
			{Name: "plain", Topic: "marks", Delivery: quick, Handle: pipeline.On(func(context.Context, mark) error {
				seen.Add(1)
				return nil
			})},
		}
	}
	stop := p.start(t, consumers()...)
	p.publish(t, records[:100]...)
	require.Eventually(t, func() bool { return len(p.effects(t)) > 20 }, eventually, tick)
	stop()
	p.publish(t, records[100:]...)
	stop = p.start(t, consumers()...)
	require.Eventually(t, func() bool { return len(p.effects(t)) >= n }, 3*eventually, tick)
	require.Eventually(t, func() bool { return seen.Load() >= int64(n) }, eventually, tick)
	require.Eventually(t, func() bool { return len(p.strings(t, `SELECT reason FROM dead_letters`)) == 6 }, eventually, tick)
	stop()
	assert.ElementsMatch(t, want, p.effects(t))
	assert.Equal(t, []string{"millrace-batch"}, p.strings(t, `SELECT DISTINCT consumer_group FROM dead_letters`))
	assert.Len(t, p.strings(t, `SELECT topic FROM outbox_events WHERE topic = 'dead_letters'`), 6)
	require.Len(t, p.strings(t, `SELECT partition::text FROM consumer_offsets WHERE consumer_group = 'millrace-batch'`), 3)
}

// The group's position in Kafka is lost: the database's holds, and nothing is
// applied twice even without an inbox.
func TestThePositionInTheDatabaseIsTheTruth(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	c := pipeline.Consumer{Name: "marker", Topic: "marks", Handle: pipeline.OnTx(insertMark), GuardedByState: true}
	stop := p.start(t, c)
	p.publish(t, markRecord(t, "a"), markRecord(t, "b"))
	require.Eventually(t, func() bool { return len(p.effects(t)) == 2 }, eventually, tick)
	stop()
	// A consumer of another name has no position in Kafka; give it the database's.
	_, err := p.pool.Exec(t.Context(), `UPDATE consumer_offsets SET consumer_group = 'millrace-renamed'`)
	require.NoError(t, err)
	c.Name = "renamed"
	stop = p.start(t, c)
	p.publish(t, markRecord(t, "c"))
	require.Eventually(t, func() bool { return len(p.effects(t)) >= 3 }, eventually, tick)
	stop()
	assert.ElementsMatch(t, []string{"a", "b", "c"}, p.effects(t))
}
