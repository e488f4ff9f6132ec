package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Subscription is what a consumer asks the transport for.
type Subscription struct {
	// Consumer is the name of the consumer.
	Consumer string
	// Group is the consumer group.
	Group string
	// Topic is the physical name.
	Topic string
	// BatchSize is the largest number of records in one delivery.
	BatchSize int
	// Transactional says that the position in PostgreSQL is the truth.
	Transactional bool
	// Gather is how long the subscriber may let records gather after it has got
	// some; see Consumer.Gather. A subscriber that cannot may ignore it.
	Gather time.Duration
	// From is where to start without a position.
	From Start
	// Assigned is called when a partition becomes ours, before its first record is
	// fetched. See Processor.Assigned.
	Assigned func(ctx context.Context, topic string, topicID [16]byte, partition int32, committed int64) (start, epoch int64, err error)
	// Released may be called when a partition is no longer ours.
	Released func(partition int32)
}

// RouterConfig is what a Router works with. Subscribe is required; Store and
// DeadLetters are when a consumer needs them.
type RouterConfig struct {
	// Subscribe returns the subscriber of one consumer. The router owns it: it
	// closes it first of all when it stops, and expects Close to drain, that is to
	// hand out nothing new and to return when what is in flight was acked or nacked.
	Subscribe func(Subscription) (message.Subscriber, error)
	// Store drains lanes too if it is a LaneStore.
	Store Store
	// LanePoll is how often it is looked for lanes to drain. Defaults to 1 s.
	LanePoll time.Duration
	// LaneWake, if set, has it looked at once.
	LaneWake <-chan struct{}
	// DeadLetters is not closed by the router.
	DeadLetters RecordPublisher
	Naming      topics.Naming
	// GroupPrefix is put before a consumer's name to make its group. Defaults to
	// "millrace-".
	GroupPrefix string
	// Infrastructure are further tests for infrastructure faults, such as those of
	// the Kafka client.
	Infrastructure []func(error) bool
	// DrainTimeout is how long handlers may take to finish once the router stops;
	// then their contexts end. Defaults to 30 s.
	DrainTimeout time.Duration
	// CloseTimeout is how long they may take to return after that. Defaults to 10 s.
	CloseTimeout time.Duration
	// Registerer takes the metrics. Nil means none.
	Registerer prometheus.Registerer
	// Tracer may be nil.
	Tracer trace.Tracer
	// Log defaults to slog.Default().
	Log *slog.Logger
}

// Defaults of RouterConfig.
const (
	GroupPrefixDefault  = "millrace-"
	DrainTimeoutDefault = 30 * time.Second
	CloseTimeoutDefault = 10 * time.Second
)

// ErrDrainTimeout reports that handlers did not return in time when the router
// stopped. What they were working on is redelivered.
var ErrDrainTimeout = errors.New("handlers did not return in time")

// Router runs consumers, each with its own subscription, on a Watermill router.
type Router struct {
	cfg     RouterConfig
	metrics *middleware.Metrics
	inner   *message.Router
	stopped chan struct{}
	closing atomic.Bool
	stop    chan struct{}
	stopper sync.Once

	mu          sync.Mutex
	running     bool
	processors  []*Processor
	subscribers []message.Subscriber
}

// NewRouter returns a router without consumers.
func NewRouter(cfg RouterConfig) (*Router, error) {
	if cfg.Subscribe == nil {
		return nil, errors.New("new router: Subscribe is nil")
	}
	cfg.GroupPrefix = cmp.Or(cfg.GroupPrefix, GroupPrefixDefault)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, DrainTimeoutDefault)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, CloseTimeoutDefault)
	cfg.LanePoll = cmp.Or(cfg.LanePoll, lanePollDefault)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	r := &Router{cfg: cfg, stopped: make(chan struct{}), stop: make(chan struct{})}
	if cfg.Registerer != nil {
		m, err := middleware.NewMetrics(cfg.Registerer)
		if err != nil {
			return nil, err
		}
		r.metrics = m
	}
	var err error
	r.inner, err = message.NewRouter(message.RouterConfig{CloseTimeout: cfg.CloseTimeout},
		watermillLog{log: cfg.Log, closing: &r.closing})
	if err != nil {
		return nil, fmt.Errorf("new router: %w", err)
	}
	return r, nil
}

// Add adds a consumer. It must be called before Run. Names are unique.
func (r *Router) Add(c Consumer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return fmt.Errorf("add consumer %q: the router is running", c.Name)
	}
	for _, p := range r.processors {
		if p.consumer.Name == c.Name {
			return fmt.Errorf("add consumer %q: there is one of that name already", c.Name)
		}
	}
	p, err := NewProcessor(c, ProcessorConfig{
		Group: r.cfg.GroupPrefix + c.Name,
		Store: r.cfg.Store, DeadLetters: r.cfg.DeadLetters, Naming: r.cfg.Naming,
		Classifier: middleware.Classifier{Infrastructure: r.cfg.Infrastructure},
		Metrics:    r.metrics, Tracer: r.cfg.Tracer, Log: r.cfg.Log,
	})
	if err != nil {
		return err
	}
	c = p.consumer
	topic := r.cfg.Naming.Physical(c.Topic)
	sub, err := r.cfg.Subscribe(Subscription{
		Consumer: c.Name, Group: p.cfg.Group, Topic: topic, BatchSize: c.BatchSize, Gather: c.Gather, From: c.From,
		Transactional: c.Handle.kind.transactional(),
		Assigned:      p.Assigned, Released: p.Released,
	})
	if err != nil {
		return fmt.Errorf("add consumer %q: subscribe: %w", c.Name, err)
	}
	sub = &closeOnce{Subscriber: sub}
	r.processors, r.subscribers = append(r.processors, p), append(r.subscribers, sub)
	h := r.inner.AddConsumerHandler(c.Name, topic, sub, func(msg *message.Message) error {
		_, err := p.handle(msg)
		return err
	})
	h.AddMiddleware(append([]message.HandlerMiddleware{p.observe}, p.chain...)...)
	return nil
}

// Run runs all consumers until ctx ends or Close is called, and then stops in
// three steps: it drains (nothing new is handed out, handlers finish what they
// have), it cancels (after DrainTimeout, the contexts of those that have not),
// it closes. Handlers do not see the end of ctx before the second step. Run
// returns nil after a clean stop, and may be called once.
func (r *Router) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("run router: it is or was running")
	}
	r.running = true
	consumers := len(r.processors)
	r.mu.Unlock()
	defer close(r.stopped)

	if ctx.Err() != nil || consumers == 0 {
		// Nothing to drain.
		select {
		case <-ctx.Done():
		case <-r.stop:
		}
		return r.closeSubscribers()
	}
	// Watermill's router ends the contexts of messages as soon as its own context
	// ends or it is closed, which would interrupt every handler. So its context is
	// not ours, and it is closed last: when its subscribers have ended by
	// themselves, no message is left whose context could be ended.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.inner.Run(work) }()
	// Subscribers are not closed before all of them have subscribed.
	select {
	case <-r.inner.Running():
	case err := <-ended:
		return fmt.Errorf("run router: %w", errors.Join(err, r.closeSubscribers()))
	}
	lanes := r.startLanes(work)
	flush := time.NewTicker(maxIdleTime)
	defer flush.Stop()
	for {
		select {
		case err := <-ended:
			cancel()
			lanes.stop()
			if err = errors.Join(err, r.closeSubscribers()); err != nil {
				return fmt.Errorf("run router: %w", err)
			}
			return errors.New("run router: all subscriptions ended")
		case <-flush.C:
			r.flushIdle(work)
		case <-ctx.Done():
			return r.drain(cancel, lanes, ended)
		case <-r.stop:
			return r.drain(cancel, lanes, ended)
		}
	}
}

// flushIdle lets positions catch up. What fails now is repeated, or read again
// after a restart.
func (r *Router) flushIdle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CloseTimeout)
	defer cancel()
	for _, p := range r.processors {
		if err := p.FlushIdle(ctx); err != nil {
			r.cfg.Log.DebugContext(ctx, "position not moved", "consumer", p.consumer.Name, "error", err)
		}
	}
}

// drain is the stop of a running router.
func (r *Router) drain(cancel context.CancelFunc, lanes *laneLoop, ended <-chan error) error {
	r.closing.Store(true)
	drained := make(chan error, 1)
	go func() {
		var wg sync.WaitGroup
		wg.Go(lanes.stop)
		err := r.closeSubscribers()
		wg.Wait()
		drained <- err
	}()

	timer := time.NewTimer(r.cfg.DrainTimeout)
	defer timer.Stop()
	var closeErr error
	late := false
	select {
	case closeErr = <-drained:
	case <-timer.C:
		late = true
		cancel()
		timer.Reset(r.cfg.CloseTimeout)
		select {
		case closeErr = <-drained:
		case <-timer.C:
			return fmt.Errorf("stop router: %w", ErrDrainTimeout)
		}
	}
	if err := r.endInner(ended); err != nil {
		return err
	}
	r.flushIdle(context.Background())
	if closeErr != nil {
		return fmt.Errorf("stop router: %w", closeErr)
	}
	if late {
		r.cfg.Log.Warn("consumers interrupted", "drain_timeout", r.cfg.DrainTimeout)
	}
	return nil
}

// endInner closes Watermill's router, which finds nothing left to interrupt.
func (r *Router) endInner(ended <-chan error) error {
	r.closing.Store(true)
	if err := r.inner.Close(); err != nil {
		return fmt.Errorf("stop router: %w: %w", ErrDrainTimeout, err)
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("run router: %w", err)
	}
	return nil
}

// closeSubscribers drains all subscriptions at the same time.
func (r *Router) closeSubscribers() error {
	r.mu.Lock()
	subscribers := r.subscribers
	r.mu.Unlock()
	errs := make([]error, len(subscribers))
	var wg sync.WaitGroup
	for i, s := range subscribers {
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Running is closed when all consumers have subscribed.
func (r *Router) Running() <-chan struct{} { return r.inner.Running() }

// Close stops a running router as the end of Run's context does, and waits for
// Run to return. On a router that never ran, it closes the subscriptions.
func (r *Router) Close() error {
	r.stopper.Do(func() { close(r.stop) })
	r.mu.Lock()
	running := r.running
	r.running = true // a closed router does not run
	r.mu.Unlock()
	if !running {
		defer close(r.stopped)
		return r.closeSubscribers()
	}
	<-r.stopped
	return nil
}

// OrderDeadLetter has the record at which a partition of a consumer is stalled
// become a dead letter. See Processor.OrderDeadLetter.
func (r *Router) OrderDeadLetter(consumer string, o DeadLetterOrder) error {
	r.mu.Lock()
	processors := r.processors
	r.mu.Unlock()
	for _, p := range processors {
		if p.consumer.Name == consumer {
			return p.OrderDeadLetter(o)
		}
	}
	return fmt.Errorf("dead-letter offset %d of partition %d: no consumer %q runs here", o.Offset, o.Partition, consumer)
}

// Status says how each consumer is doing, in the order in which they were added.
func (r *Router) Status() []ConsumerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]ConsumerStatus, len(r.processors))
	for i, p := range r.processors {
		all[i] = p.Status()
	}
	return all
}

// closeOnce lets both us and Watermill's router close a subscriber.
type closeOnce struct {
	message.Subscriber
	once sync.Once
	err  error
}

func (c *closeOnce) Close() error {
	c.once.Do(func() { c.err = c.Subscriber.Close() })
	return c.err
}
