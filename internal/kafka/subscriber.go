package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxAnswer bounds what is read of one answer, which may hold a single batch that is
	// larger than what was asked for.
	maxAnswer = 100 << 20
	// commitTimeout bounds one commit of offsets.
	commitTimeout = 5 * time.Second
	// leaveTimeout bounds the farewell to the group.
	leaveTimeout = 3 * time.Second
)

// Subscriber is one member of a consumer group, for any number of topics. It
// implements Watermill's message.Subscriber and is safe for concurrent use.
type Subscriber struct {
	cfg     Config
	sc      SubscriberConfig
	client  *kgo.Client
	admin   *kadm.Client
	metrics prometheus.Collector

	// life ends when nothing may talk to the brokers any more.
	life context.Context
	end  context.CancelFunc
	// running waits for the poll loop, the commit loop and what ends
	// subscriptions whose context is done.
	running sync.WaitGroup

	mu            sync.Mutex
	subscriptions map[string]*subscription
	workers       map[partition]*worker
	closed        bool
	closeDone     chan struct{}
	// holding is closed when what Pause began ends; nil while nothing is paused.
	holding chan struct{}

	// marks are what was noted with the offsets that the group was asked for last.
	marks map[partition]string

	poll   pollFence
	commit committer
}

// partition names one partition of a topic.
type partition struct {
	topic     string
	partition int32
}

// subscription is one Subscribe of a topic.
type subscription struct {
	topic string
	out   chan *message.Message
	// values carries the values of the Subscribe context, not its end.
	values context.Context
	// workers are those that may write to out.
	workers sync.WaitGroup
	// leaving says that its context has ended and no partition is taken on any
	// more. Guarded by Subscriber.mu.
	leaving bool
	ended   chan struct{}
	once    sync.Once
}

// NewSubscriber makes a subscriber. It joins its group with the first Subscribe.
func NewSubscriber(cfg Config, sc SubscriberConfig) (*Subscriber, error) {
	cfg, sc = cfg.WithDefaults(), sc.withDefaults(cfg)
	if err := sc.validate(cfg); err != nil {
		return nil, err
	}
	s := &Subscriber{
		cfg: cfg, sc: sc,
		subscriptions: map[string]*subscription{}, workers: map[partition]*worker{}, closeDone: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.poll.init()
	s.commit.init(s)
	client, err := cfg.newClient(append(s.options(),
		kgo.WithContext(s.life),
		kgo.AlwaysRetryEOF(), // a broker that shuts down accepts connections and drops them
		kgo.ConsumerGroup(sc.Group),
		// Cooperative: partitions that stay with their owner are never
		// interrupted by a member that joins or leaves.
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(cfg.SessionTimeout),
		kgo.HeartbeatInterval(cfg.HeartbeatInterval),
		kgo.RebalanceTimeout(cfg.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(cfg.FetchMaxWait),
		kgo.MaxDecompressBatchBytes(maxInflatedBatch),
		// An offset that does not lie in the log is an error, never a jump.
		kgo.ConsumeStartOffset(startOffset(sc.StartFrom)),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.AdjustFetchOffsetsFn(s.onAssigned),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
	)...)
	if err != nil {
		return nil, err
	}
	s.client, s.admin = client, kadm.NewClient(client)
	if sc.Registerer != nil {
		s.metrics = NewSubscriberMetrics(sc.Group, sc.Clock, s.Status)
		if err := sc.Registerer.Register(s.metrics); err != nil {
			client.Close()
			return nil, fmt.Errorf("register subscriber metrics: %w", err)
		}
	}
	s.running.Go(s.pollLoop)
	s.running.Go(s.commit.loop)
	return s, nil
}

// options are those of the client that not every subscriber has.
func (s *Subscriber) options() []kgo.Opt {
	var opts []kgo.Opt
	if n := int32(s.sc.FetchBytes); n > 0 {
		opts = append(opts, kgo.FetchMaxBytes(n), kgo.FetchMaxPartitionBytes(n), kgo.BrokerMaxReadBytes(max(n, maxAnswer)))
	}
	if s.sc.ReadCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	}
	if s.sc.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(s.sc.InstanceID))
	}
	if s.sc.RememberTopics {
		opts = append(opts, kgo.OnOffsetsFetched(s.onOffsets))
	}
	if s.sc.Hooks.Connected != nil {
		opts = append(opts, kgo.WithHooks(connectHook{s.sc.Hooks.Connected}))
	}
	if joined := s.sc.Hooks.Joined; joined != nil {
		opts = append(opts, kgo.WithHooks(groupHook{joined}),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { joined(nil) }))
	}
	return opts
}

func startOffset(from StartFrom) kgo.Offset {
	if from == StartLatest {
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtStart()
}

// Subscribe adds topic to what the member consumes and returns the channel of
// its messages. Each message stands for a delivery.Delivery. The channel is
// closed, after draining, when ctx ends or the subscriber is closed; messages
// carry the values of ctx, and their context outlives ctx by the drain. A topic
// can have one subscription at a time.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, ErrClosed)
	}
	if s.subscriptions[topic] != nil {
		return nil, fmt.Errorf("subscribe to %s: group %s is already subscribed through this subscriber", topic, s.sc.Group)
	}
	sub := &subscription{
		topic: topic, out: make(chan *message.Message),
		values: context.WithoutCancel(ctx), ended: make(chan struct{}),
	}
	s.subscriptions[topic] = sub
	s.client.AddConsumeTopics(topic)
	s.running.Go(func() {
		select {
		case <-ctx.Done():
			s.unsubscribe(sub)
		case <-sub.ended:
		}
	})
	return sub.out, nil
}

// unsubscribe drains the workers of a subscription whose context ended, then
// gives the topic up and closes the channel.
func (s *Subscriber) unsubscribe(sub *subscription) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		sub.leaving = true
	}
	s.mu.Unlock()
	if closed {
		return // Close ends the subscription
	}
	workers := s.workersOf(sub.topic)
	s.drain(workers)
	s.release(workers, false)
	// Only now may the topic be subscribed again: adding it before it is purged
	// would purge the new subscription.
	s.client.PurgeTopicsFromConsuming(sub.topic)
	s.mu.Lock()
	delete(s.subscriptions, sub.topic)
	s.mu.Unlock()
	sub.end()
}

// end closes the channel once no worker can write to it.
func (sub *subscription) end() {
	sub.once.Do(func() {
		sub.workers.Wait()
		close(sub.ended)
		close(sub.out)
	})
}

// Close drains all partitions, commits what was acked, leaves the group and
// closes the channels. It takes at most about DrainTimeout, and eight seconds
// more if the brokers do not answer. It may be called more than once.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.closeDone
		return nil
	}
	s.closed = true
	subs := make([]*subscription, 0, len(s.subscriptions))
	for _, sub := range s.subscriptions {
		subs = append(subs, sub)
	}
	s.mu.Unlock()
	defer close(s.closeDone)

	workers := s.workersOf("")
	s.drain(workers)
	s.release(workers, false)
	// Brokers that do not answer now will notice by themselves, a session
	// timeout later.
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	err := s.leave(ctx)

	s.end()
	for _, sub := range subs {
		sub.end()
	}
	s.running.Wait()
	s.client.Close()
	if s.metrics != nil {
		s.sc.Registerer.Unregister(s.metrics)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("leave group %s: %w", s.sc.Group, err)
	}
	return nil
}

// RetryNow ends the backoff of a stalled partition.
func (s *Subscriber) RetryNow(topic string, partitionID int32) error {
	w := s.worker(partition{topic, partitionID})
	if w == nil {
		return fmt.Errorf("retry %s/%d: %w", topic, partitionID, ErrNotAssigned)
	}
	select {
	case w.retry <- struct{}{}:
	default: // a retry is already asked for
	}
	return nil
}

// Seek makes a partition go on at offset, forwards or backwards, once the
// Delivery in flight has ended. It is the way out of a stopped partition, and
// past a Delivery that will never succeed. It returns when it has taken effect.
func (s *Subscriber) Seek(ctx context.Context, topic string, partitionID int32, offset int64) error {
	w := s.worker(partition{topic, partitionID})
	if w == nil {
		return fmt.Errorf("seek %s/%d: %w", topic, partitionID, ErrNotAssigned)
	}
	if offset < 0 {
		return fmt.Errorf("seek %s/%d: offset %d is negative", topic, partitionID, offset)
	}
	if err := w.request(ctx, seekRequest{offset: offset}); err != nil {
		return fmt.Errorf("seek %s/%d to offset %d: %w", topic, partitionID, offset, err)
	}
	return nil
}

// Retake has the Assigned hook asked again where a partition is to go on, and
// under which epoch, once the Delivery in flight has ended: whoever keeps the
// offsets has moved it. It returns when it has taken effect.
func (s *Subscriber) Retake(ctx context.Context, topic string, partitionID int32) error {
	w := s.worker(partition{topic, partitionID})
	if w == nil {
		return fmt.Errorf("retake %s/%d: %w", topic, partitionID, ErrNotAssigned)
	}
	if !w.ready() {
		// It asks the hook anyway, with a backoff.
		return s.RetryNow(topic, partitionID)
	}
	if err := w.request(ctx, seekRequest{retake: true}); err != nil {
		return fmt.Errorf("retake %s/%d: %w", topic, partitionID, err)
	}
	return nil
}

func (s *Subscriber) worker(at partition) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[at]
}
