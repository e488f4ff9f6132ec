package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"
)

// Compression codecs that PublisherConfig.Compression may name.
const (
	CompressionNone   = "none"
	CompressionSnappy = "snappy"
	CompressionLZ4    = "lz4"
	CompressionZstd   = "zstd"
	CompressionGzip   = "gzip"
)

// PublisherConfig tunes a Publisher. The zero value is good.
type PublisherConfig struct {
	// MaxMessageBytes is the largest batch, and so about the largest record,
	// that is sent; a larger record is rejected without a round trip. It should
	// equal the brokers' max.message.bytes. Defaults to 1 MiB.
	MaxMessageBytes int
	// DeliveryTimeout bounds how long a record may take to be acknowledged. Once
	// it has passed the record is reported as failed, although it may have been
	// written. At least 1 second. Defaults to 30 seconds.
	DeliveryTimeout time.Duration
	// Compression is one of the Compression constants. Defaults to snappy.
	Compression string
	// Lanes is how many calls of several records may be in flight at once; more
	// wait. Each lane has its own connections. Defaults to 4.
	Lanes int
	// Registerer takes the publisher's metrics. Nil means none.
	Registerer prometheus.Registerer
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 1<<20)
	c.DeliveryTimeout = cmp.Or(c.DeliveryTimeout, 30*time.Second)
	c.Compression = cmp.Or(c.Compression, CompressionSnappy)
	c.Lanes = cmp.Or(c.Lanes, 4)
	return c
}

func (c PublisherConfig) options() ([]kgo.Opt, error) {
	codec, ok := map[string]kgo.CompressionCodec{
		CompressionNone: kgo.NoCompression(), CompressionSnappy: kgo.SnappyCompression(), CompressionLZ4: kgo.Lz4Compression(),
		CompressionZstd: kgo.ZstdCompression(), CompressionGzip: kgo.GzipCompression(),
	}[c.Compression]
	if !ok {
		return nil, fmt.Errorf("kafka publisher: unknown compression %q", c.Compression)
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > 64<<20 {
		return nil, fmt.Errorf("kafka publisher: max message bytes %d is not between 1 KiB and 64 MiB", c.MaxMessageBytes)
	}
	if c.Lanes < 1 || c.DeliveryTimeout < time.Second {
		return nil, fmt.Errorf("kafka publisher: lanes %d and delivery timeout %s must be at least 1 and 1s", c.Lanes, c.DeliveryTimeout)
	}
	return []kgo.Opt{
		// acks=all and the idempotent producer are the client's defaults: a
		// retry neither loses, repeats nor reorders.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),
		kgo.ProducerBatchCompression(codec, kgo.NoCompression()),
		kgo.RecordDeliveryTimeout(c.DeliveryTimeout),
		kgo.ProduceRequestTimeout(min(c.DeliveryTimeout, 10*time.Second)),
		// Without this a record whose answer got lost could not be given up
		// before the broker comes back: the call would hang for as long as the
		// outage lasts. With it the caller learns "unknown" in time, and the
		// client bumps its producer epoch before it sends anything else, so
		// that a straggler of the old epoch cannot overtake.
		kgo.AllowIdempotentProduceCancellation(),
		// A broker that shuts down accepts connections and drops them.
		kgo.AlwaysRetryEOF(),
		// About two seconds of a topic that is not there, then it is rejected.
		kgo.UnknownTopicRetries(3),
	}, nil
}

// Publisher writes records. It implements Watermill's message.Publisher and is
// safe for concurrent use.
//
// A call that may repeat a key takes a lane: a client that it has for itself.
// There all records are in the client's hands before the first is sent, so that
// they go out in as few batches as possible, and so that a batch which fails
// takes everything behind it along instead of being overtaken. Small calls with
// one record per key share a client that sends at once and merges what callers
// send at the same time.
type Publisher struct {
	cfg     PublisherConfig
	shared  *kgo.Client
	lanes   chan *lane
	newLane func() (*lane, error)
	metrics *publisherMetrics
	closing chan struct{}
	closed  atomic.Bool
	calls   sync.WaitGroup
	mu      sync.Mutex // orders calls.Add before calls.Wait
}

// NewPublisher makes a publisher. It does not connect: brokers that cannot be
// reached show in the first Publish.
func NewPublisher(cfg Config, pc PublisherConfig) (*Publisher, error) {
	pc = pc.withDefaults()
	newClient := func(own ...kgo.Opt) (*kgo.Client, error) {
		// Options are made for each client: it sorts the codecs they hold.
		role, err := pc.options()
		if err != nil {
			return nil, err
		}
		return cfg.newClient(append(role, own...)...)
	}
	shared, err := newClient(kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg: pc, shared: shared, lanes: make(chan *lane, pc.Lanes), closing: make(chan struct{}),
		newLane: func() (*lane, error) { return newLane(newClient) },
	}
	for range pc.Lanes {
		p.lanes <- nil // made when first used
	}
	if p.metrics, err = newPublisherMetrics(pc.Registerer); err != nil {
		shared.Close()
		return nil, err
	}
	return p, nil
}

// Publish writes all messages to topic in one batched produce and returns once
// every one is acknowledged by all in-sync replicas. If some are not it returns
// their errors joined; the others are written all the same.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	recs := make([]topics.Record, len(msgs))
	for i, msg := range msgs {
		recs[i] = delivery.RecordOf(topic, msg)
	}
	var faults []error
	for i, err := range p.PublishRecords(context.Background(), recs) {
		if err != nil {
			faults = append(faults, fmt.Errorf("publish message %s to %s: %w", msgs[i].UUID, topic, err))
		}
	}
	return errors.Join(faults...)
}

// PublishRecords writes recs, which may be for several topics, in as few batches
// as possible. It returns nil when every record was acknowledged by all in-sync
// replicas, else one entry per record, nil for those that were.
//
// An error that IsRejected accepts concerns that record alone: neighbours that a
// broker refused along with it have been sent again without it. Any other error
// leaves the outcome unknown: the record may have been written. Records of one
// topic and key are written in the order of recs, and none of them after one
// that failed: those behind it carry ErrHeldBack.
//
// The call lasts until ctx ends or DeliveryTimeout has passed, and up to three
// seconds more. A caller that ends ctx itself should not publish the same
// records again by the same publisher: the first ones may still be on their way.
func (p *Publisher) PublishRecords(ctx context.Context, recs []topics.Record) []error {
	if len(recs) == 0 {
		return nil
	}
	p.mu.Lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return repeat(ErrClosed, len(recs))
	}
	p.calls.Add(1)
	p.mu.Unlock()
	defer p.calls.Done()

	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, p.cfg.DeliveryTimeout)
	defer cancel()
	call := newPublishCall(ctx, limited, p, recs)
	call.run()
	p.metrics.observe(recs, call.errs, time.Since(began))
	if call.failed == 0 {
		return nil
	}
	return call.errs
}

// Close waits for calls that are under way, which last DeliveryTimeout at the
// most, and closes the connections. Later calls fail with ErrClosed. It may be
// called more than once.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := p.closed.CompareAndSwap(false, true)
	p.mu.Unlock()
	if !first {
		<-p.closing
		return nil
	}
	p.calls.Wait()
	p.shared.Close()
	for range p.cfg.Lanes {
		if lane := <-p.lanes; lane != nil {
			lane.client.Close()
		}
	}
	p.metrics.unregister(p.cfg.Registerer)
	close(p.closing)
	return nil
}

func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
