package stock

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// Publisher is the stock publisher with safe settings. It implements Watermill's
// message.Publisher and is safe for concurrent use.
//
// It writes one message after the other, each a round trip; only calls that are
// made at the same time share a request. So it is no match for kafka.Publisher,
// which the relay keeps in either case.
type Publisher struct {
	mu     sync.RWMutex // Publish reads, Close writes: stock code guards neither
	closed bool
	inner  *watermillkafka.Publisher
}

// PublisherConfig tunes a Publisher. The zero value is good.
type PublisherConfig struct {
	// MaxMessageBytes is about the largest record that is sent. Defaults to 1 MiB.
	MaxMessageBytes int
	// Retries is how often a record is sent again that was not acknowledged, a
	// quarter of a second apart. Defaults to 20.
	Retries int
}

// NewPublisher connects a publisher. It fails if no broker answers.
func NewPublisher(cfg kafka.Config, pc PublisherConfig) (*Publisher, error) {
	cfg = cfg.WithDefaults()
	config, err := newConfig(cfg)
	if err != nil {
		return nil, err
	}
	// Durable, and neither repeated nor reordered by a retry: with more than one
	// request in flight an earlier batch can be overtaken by a later one.
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes, config.Producer.Return.Errors = true, true
	config.Producer.Retry.Max = cmp.Or(pc.Retries, 20)
	config.Producer.Retry.Backoff = 250 * time.Millisecond
	config.Producer.MaxMessageBytes = cmp.Or(pc.MaxMessageBytes, 1<<20)
	config.Producer.Compression = sarama.CompressionSnappy
	// By the hash that Java's clients and the other driver use, so that a key stays
	// in its partition whoever publishes it.
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	inner, err := watermillkafka.NewPublisher(watermillkafka.PublisherConfig{
		Brokers: cfg.Brokers, Marshaler: marshaler{}, OverwriteSaramaConfig: config,
	}, stockLog{log: cmp.Or(cfg.Logger, slog.Default())})
	if err != nil {
		return nil, fmt.Errorf("kafka publisher: %w", err)
	}
	return &Publisher{inner: inner}, nil
}

// Publish writes the messages in order and stops at the first that is not
// acknowledged by all in-sync replicas, whose outcome is then unknown.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return kafka.ErrClosed
	}
	return p.inner.Publish(topic, msgs...)
}

// Close waits for calls that are under way and disconnects. It may be called more
// than once.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.inner.Close()
}

// marshaler makes the records that kafka.Publisher would make: with keys, with
// headers that repeat or are not text, and also of messages that came from Kafka,
// which the stock marshaler refuses.
type marshaler struct{}

// Marshal implements watermill-kafka's Marshaler. It never fails.
func (marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	rec := delivery.RecordOf(topic, msg)
	out := &sarama.ProducerMessage{Topic: topic, Timestamp: rec.Timestamp}
	// An encoder of nil bytes would be an empty key and an empty value.
	if rec.Key != nil {
		out.Key = sarama.ByteEncoder(rec.Key)
	}
	if rec.Value != nil {
		out.Value = sarama.ByteEncoder(rec.Value)
	}
	if len(rec.Headers) > 0 {
		out.Headers = make([]sarama.RecordHeader, len(rec.Headers))
		for i, h := range rec.Headers {
			out.Headers[i] = sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value}
		}
	}
	return out, nil
}
