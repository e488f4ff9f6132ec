package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/topics"
)

const benchBatch = 500

// benchConfig is a broker with a topic of twelve partitions: a real Kafka if
// tests may use one, else the embedded broker.
func benchConfig(b *testing.B) (kafka.Config, string) {
	b.Helper()
	cfg := kafka.Config{SessionTimeout: 6 * time.Second}
	if realkafka.Available() {
		cfg.Brokers = realkafka.Shared(b)
	} else {
		cfg.Brokers = testenv.Broker(b)
	}
	topic := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(b, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(b.Context(), []kafka.TopicConfig{{Name: topic, Partitions: 12, ReplicationFactor: 1}})
	require.NoError(b, err)
	return cfg, topic
}

func benchRecords(topic string) []topics.Record {
	recs := make([]topics.Record, benchBatch)
	for i := range recs {
		recs[i] = topics.Record{
			Topic: topic, Key: fmt.Appendf(nil, "execution-%04d", i%200), Value: make([]byte, 400),
			Headers: []topics.Header{{Key: "ce_id", Value: fmt.Appendf(nil, "%036d", i)}, {Key: "ce_type", Value: []byte("millrace.execution.requested.v1")}},
		}
	}
	return recs
}

func perSecond(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkPublish500(b *testing.B) {
	cfg, topic := benchConfig(b)
	pub, err := kafka.NewPublisher(cfg, kafka.PublisherConfig{})
	require.NoError(b, err)
	defer pub.Close()
	recs := benchRecords(topic)
	require.Nil(b, pub.PublishRecords(b.Context(), recs))
	for b.Loop() {
		require.Nil(b, pub.PublishRecords(b.Context(), recs))
	}
	perSecond(b, benchBatch)
}

// BenchmarkRawPublish500 is what BenchmarkPublish500 is measured against: the
// client alone, once as it comes and once without lingering.
func BenchmarkRawPublish500(b *testing.B) {
	for name, opts := range map[string][]kgo.Opt{"default linger": nil, "no linger": {kgo.ProducerLinger(0)}} {
		b.Run(name, func(b *testing.B) {
			cfg, topic := benchConfig(b)
			client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cfg.Brokers...))...)
			require.NoError(b, err)
			defer client.Close()
			publish := func() {
				raw := make([]*kgo.Record, 0, benchBatch)
				for _, r := range benchRecords(topic) {
					raw = append(raw, &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: []kgo.RecordHeader{
						{Key: r.Headers[0].Key, Value: r.Headers[0].Value}, {Key: r.Headers[1].Key, Value: r.Headers[1].Value},
					}})
				}
				require.NoError(b, client.ProduceSync(context.Background(), raw...).FirstErr())
			}
			publish()
			for b.Loop() {
				publish()
			}
			perSecond(b, benchBatch)
		})
	}
}

func BenchmarkPublishOne(b *testing.B) {
	cfg, topic := benchConfig(b)
	pub, err := kafka.NewPublisher(cfg, kafka.PublisherConfig{})
	require.NoError(b, err)
	defer pub.Close()
	recs := benchRecords(topic)
	require.Nil(b, pub.PublishRecords(b.Context(), recs[:1]))
	for i := 0; b.Loop(); i++ {
		require.Nil(b, pub.PublishRecords(b.Context(), recs[i%benchBatch:i%benchBatch+1]))
	}
	perSecond(b, 1)
}

func BenchmarkConsume(b *testing.B) {
	const total = 200 * benchBatch
	cfg, topic := benchConfig(b)
	pub, err := kafka.NewPublisher(cfg, kafka.PublisherConfig{})
	require.NoError(b, err)
	for range total / benchBatch {
		require.Nil(b, pub.PublishRecords(b.Context(), benchRecords(topic)))
	}
	require.NoError(b, pub.Close())
	for _, size := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("batch %d", size), func(b *testing.B) {
			for i := range b.N {
				consumeAll(b, cfg, topic, fmt.Sprintf("g-%d-%d-%d", size, b.N, i), size, total)
			}
			perSecond(b, total)
		})
	}
	b.Run("raw", func(b *testing.B) {
		for i := range b.N {
			client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(fmt.Sprintf("raw-%d-%d", b.N, i)))
			require.NoError(b, err)
			for n := 0; n < total; {
				n += client.PollFetches(context.Background()).NumRecords()
			}
			client.Close()
		}
		perSecond(b, total)
	})
}

func consumeAll(b *testing.B, cfg kafka.Config, topic, group string, size, total int) {
	sub, err := kafka.NewSubscriber(cfg, kafka.SubscriberConfig{Group: group, BatchSize: size, DrainTimeout: 2 * time.Second})
	require.NoError(b, err)
	ch, err := sub.Subscribe(context.Background(), topic)
	require.NoError(b, err)
	for n := 0; n < total; {
		msg := <-ch
		n += len(delivery.FromMessage(msg).Records)
		msg.Ack()
	}
	require.NoError(b, sub.Close())
}
