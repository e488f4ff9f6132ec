package stock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/kafka"
)

// ErrBatches refuses a subscription to batches: a message of the stock driver is
// one record.
var ErrBatches = errors.New("the stock driver (kafka.driver: sarama) hands out single records, no batches")

// reconnectPause is how long stock code waits before it connects again, and so how
// long Close may have to wait for it.
const reconnectPause = 500 * time.Millisecond

// Subscriber consumes by the stock subscriber, behind the fence of this package. It
// implements Watermill's message.Subscriber and is safe for concurrent use. Every
// topic that it subscribes to is a member of the group of its own.
type Subscriber struct {
	cfg     kafka.Config
	sc      kafka.SubscriberConfig
	admin   *kafka.Admin
	reader  *reader
	metrics prometheus.Collector

	mu            sync.Mutex
	subscriptions map[string]*subscription
	closed        bool
	closeDone     chan struct{}
	// holding is closed when what Pause began ends; nil while nothing is paused.
	holding chan struct{}
	// joining waits for Subscribe calls, running for what ends subscriptions.
	joining, running sync.WaitGroup
}

// subscription is one topic, and one stock subscriber.
type subscription struct {
	s     *Subscriber
	topic string
	out   chan *message.Message
	// values carries the values of the Subscribe context, not its end.
	values    context.Context
	inner     *watermillkafka.Subscriber
	forwarded chan struct{} // closed when stock code emits nothing any more
	leave     sync.Once
	left      chan struct{}

	mu      sync.Mutex
	workers map[int32]*worker
	leaving bool // no partition is taken on any more
}

// NewSubscriber makes a subscriber. It connects with the first Subscribe. Batches
// are refused with ErrBatches.
func NewSubscriber(cfg kafka.Config, sc kafka.SubscriberConfig) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	sc = sc.WithDefaults(cfg)
	if err := sc.Validate(cfg); err != nil {
		return nil, err
	}
	if sc.BatchSize > 1 || sc.Gather > 0 {
		return nil, fmt.Errorf("kafka subscriber: group %s: %w", sc.Group, ErrBatches)
	}
	config, err := consumerConfig(cfg, sc)
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		cfg: cfg, sc: sc, admin: admin, reader: &reader{brokers: cfg.Brokers, config: config},
		subscriptions: map[string]*subscription{}, closeDone: make(chan struct{}),
	}
	if sc.Registerer != nil {
		s.metrics = kafka.NewSubscriberMetrics(sc.Group, sc.Clock, s.Status)
		if err := sc.Registerer.Register(s.metrics); err != nil {
			admin.Close()
			return nil, fmt.Errorf("register subscriber metrics: %w", err)
		}
	}
	return s, nil
}

// Subscribe joins the group for topic and returns the channel of its messages. Each
// message stands for a delivery.Delivery. The channel is closed, after draining,
// when ctx ends or the subscriber is closed; messages carry the values of ctx, and
// their context outlives ctx by the drain. A topic can have one subscription at a
// time. It fails if no broker answers; later outages are waited out.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("subscribe to %s: %w", topic, kafka.ErrClosed)
	}
	if s.subscriptions[topic] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("subscribe to %s: group %s is already subscribed through this subscriber", topic, s.sc.Group)
	}
	sub := &subscription{
		s: s, topic: topic, out: make(chan *message.Message), values: context.WithoutCancel(ctx),
		forwarded: make(chan struct{}), left: make(chan struct{}), workers: map[int32]*worker{},
	}
	s.subscriptions[topic] = sub
	s.joining.Add(1)
	s.mu.Unlock()
	defer s.joining.Done()
	if err := sub.join(); err != nil {
		s.forget(sub)
		return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	s.running.Go(func() {
		select {
		case <-ctx.Done():
			sub.end()
			s.forget(sub)
		case <-sub.left:
		}
	})
	return sub.out, nil
}

func (s *Subscriber) forget(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subscriptions, sub.topic)
}

// join starts the stock subscriber.
func (sub *subscription) join() error {
	s := sub.s
	// A configuration of its own: it holds the balancer, which has a state.
	config, err := consumerConfig(s.cfg, s.sc)
	if err != nil {
		return err
	}
	sub.inner, err = watermillkafka.NewSubscriber(watermillkafka.SubscriberConfig{
		Brokers: s.cfg.Brokers, ConsumerGroup: s.sc.Group, OverwriteSaramaConfig: config,
		Unmarshaler: sub, Tracer: tracer{sub},
		NackResendSleep: watermillkafka.NoSleep, ReconnectRetrySleep: reconnectPause,
	}, stockLog{log: s.sc.Logger.With("group", s.sc.Group)})
	if err != nil {
		return err
	}
	messages, err := sub.inner.Subscribe(sub.values, sub.topic)
	if err != nil {
		return errors.Join(err, sub.inner.Close())
	}
	go func() {
		defer close(sub.forwarded)
		for msg := range messages {
			id, _ := watermillkafka.MessagePartitionFromCtx(msg.Context())
			sub.worker(id).offered <- msg // of which there is never more than one
		}
	}()
	return nil
}

// Unmarshal implements watermill-kafka's Unmarshaler. It never fails: what a record
// means is found out by those who can dead-letter it.
func (sub *subscription) Unmarshal(in *sarama.ConsumerMessage) (*message.Message, error) {
	return kafka.NewMessage(context.Background(), sub.worker(in.Partition).current), nil
}

// end drains the workers, leaves the group and closes the channel. Of several calls
// all return when that is done.
func (sub *subscription) end() {
	sub.leave.Do(func() {
		sub.mu.Lock()
		sub.leaving = true
		workers := slices.Collect(maps.Values(sub.workers))
		sub.mu.Unlock()
		for _, w := range workers {
			w.stop()
		}
		for _, w := range workers {
			<-w.done
		}
		if err := sub.inner.Close(); err != nil {
			sub.s.sc.Logger.Debug("leave group", "group", sub.s.sc.Group, "topic", sub.topic, "cause", err)
		}
		<-sub.forwarded
		close(sub.left)
		close(sub.out)
	})
}

func (sub *subscription) worker(partition int32) *worker {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.workers[partition]
}

// Close drains all partitions, commits what was acked, leaves the group and closes
// the channels. It takes at most about DrainTimeout, and longer if brokers do not
// answer: a dial timeout for each step of the farewell. It may be called more than
// once.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.closeDone
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	defer close(s.closeDone)
	s.joining.Wait()
	s.mu.Lock()
	subs := slices.Collect(maps.Values(s.subscriptions))
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, sub := range subs {
		ending.Go(sub.end)
	}
	ending.Wait()
	s.running.Wait()
	err := s.reader.close()
	s.admin.Close()
	if s.metrics != nil {
		s.sc.Registerer.Unregister(s.metrics)
	}
	return err
}

// Status returns the state of all assigned partitions, by topic and partition.
// Committed is the group's offset when the partition was assigned.
func (s *Subscriber) Status() []kafka.PartitionStatus {
	workers := s.workers()
	statuses := make([]kafka.PartitionStatus, len(workers))
	for i, w := range workers {
		statuses[i] = w.status()
	}
	sortStatuses(statuses)
	return statuses
}

// workers returns those of all subscriptions.
func (s *Subscriber) workers() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var workers []*worker
	for _, sub := range s.subscriptions {
		sub.mu.Lock()
		workers = slices.AppendSeq(workers, maps.Values(sub.workers))
		sub.mu.Unlock()
	}
	return workers
}

// worker returns the worker of a partition, or an error that wraps ErrNotAssigned.
func (s *Subscriber) worker(topic string, partition int32) (*worker, error) {
	s.mu.Lock()
	sub := s.subscriptions[topic]
	s.mu.Unlock()
	if sub != nil {
		if w := sub.worker(partition); w != nil {
			return w, nil
		}
	}
	return nil, kafka.ErrNotAssigned
}
