package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// ProcessorConfig is what a Processor works with.
type ProcessorConfig struct {
	// Group is the consumer group. Defaults to the consumer's name.
	Group string
	// Store is required for OnTx and OnBatchTx consumers.
	Store Store
	// DeadLetters is required for On consumers, whose dead letters are published
	// directly.
	DeadLetters RecordPublisher
	// Naming gives topics their physical names. The zero value gives them their
	// own.
	Naming topics.Naming
	// Classifier knows errors that this package cannot, such as a Kafka client's.
	Classifier middleware.Classifier
	// Metrics may be nil.
	Metrics *middleware.Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// Log defaults to a logger that discards.
	Log *slog.Logger
	// Now, Rand and Sleep are replaced in tests.
	Now   func() time.Time
	Rand  func() float64
	Sleep func(ctx context.Context, d time.Duration) bool
}

// Processor is one consumer with its chain of middleware, ready to take
// deliveries. Router feeds it from a topic, package pipelinetest from a test. It
// is safe for concurrent use by different partitions.
type Processor struct {
	consumer Consumer
	cfg      ProcessorConfig
	table    table
	chain    []message.HandlerMiddleware
	whole    message.HandlerFunc
	status   *statusBoard
	unknown  *unknownTypes
	idle     *idlePositions
	orders   *orders
}

// NewProcessor checks the consumer and what it needs.
func NewProcessor(c Consumer, cfg ProcessorConfig) (*Processor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	if cfg.Group == "" {
		cfg.Group = c.Name
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	switch {
	case c.Handle.kind.transactional() && cfg.Store == nil:
		return nil, fmt.Errorf("consumer %q: %s needs a database", c.Name, c.Handle.kind)
	case !c.Handle.kind.transactional() && cfg.DeadLetters == nil:
		return nil, fmt.Errorf("consumer %q: %s needs a publisher of dead letters", c.Name, c.Handle.kind)
	}
	p := &Processor{
		consumer: c, cfg: cfg, table: c.Handle.table(),
		status: newStatusBoard(), unknown: newUnknownTypes(), idle: newIdlePositions(),
	}
	p.orders = newOrders(p.status, cfg.Now)
	p.chain = middleware.Chain(middleware.Config{
		Consumer: c.Name, Group: cfg.Group, Replay: c.Replay, Untargeted: c.Untargeted,
		MaxAttempts: c.Delivery.MaxAttempts, Backoff: c.Delivery.Backoff,
		OnExhausted: c.Delivery.OnExhausted, Breaker: c.Delivery.Breaker, Condemned: p.orders.condemned,
		Timeout: c.Timeout, Classifier: cfg.Classifier, Metrics: cfg.Metrics,
		Tracer: cfg.Tracer, Log: cfg.Log, Now: cfg.Now, Rand: cfg.Rand, Sleep: cfg.Sleep,
	})
	p.whole = middleware.Apply(p.handle, append([]message.HandlerMiddleware{p.observe}, p.chain...))
	return p, nil
}

// Consumer returns the consumer with its defaults filled in.
func (p *Processor) Consumer() Consumer { return p.consumer }

// Process takes one delivery through the chain and returns what became of each
// of its records. Nil means that all of that is durable; an error means that the
// delivery must be processed again, and records without an outcome are Open.
func (p *Processor) Process(ctx context.Context, d *delivery.Delivery) ([]middleware.Outcome, error) {
	flight := middleware.NewFlight(d)
	msg := message.NewMessageWithContext(middleware.WithFlight(delivery.NewContext(ctx, d), flight), "", d.First().Value)
	_, err := p.whole(msg)
	outcomes := make([]middleware.Outcome, len(flight.Items))
	for i := range flight.Items {
		outcomes[i] = flight.Items[i].Outcome
	}
	return outcomes, err
}

// HandleMessage is Process for a message from a subscriber.
func (p *Processor) HandleMessage(msg *message.Message) error {
	_, err := p.whole(msg)
	return err
}

// Assigned says where to start a partition that this process now owns, and under
// which epoch. committed is the position in Kafka, negative if there is none. A
// negative start means the position in Kafka, or where Consumer.From says.
func (p *Processor) Assigned(ctx context.Context, topic string, topicID [16]byte, partition int32, committed int64) (start, epoch int64, err error) {
	if !p.consumer.Handle.kind.transactional() {
		return committed, 0, nil
	}
	part := Partition{Group: p.cfg.Group, Topic: topic, TopicID: topicID, Partition: partition}
	pos, err := p.cfg.Store.Take(ctx, part)
	if err != nil {
		return 0, 0, fmt.Errorf("take partition %s/%d for %s: %w", topic, partition, p.cfg.Group, err)
	}
	if pos.Next == NoOffset && committed >= 0 {
		// The database never saw what the group has acked: it was restored to an
		// earlier point, or the consumer was an On consumer before. Nothing may be
		// skipped, so it reads again from the start. If the log no longer reaches
		// back to there the transport stops the partition and says so.
		p.cfg.Log.WarnContext(ctx, "consumer has a position in kafka but none in postgresql, reading from the start",
			"consumer", p.consumer.Name, "topic", topic, "partition", partition, "kafka_offset", committed)
		return 0, pos.Epoch, nil
	}
	p.noticeReset(ctx, part, pos.Next, committed)
	p.idle.taken(part, pos, p.cfg.Now())
	return pos.Next, pos.Epoch, nil
}

// maxDrift is how far the group's offset in Kafka may be from the position in the
// database without anybody having touched it: what has passed without effect, or
// was not committed before a crash.
const maxDrift = 10 * maxIdleRecords

// noticeReset reports an offset in Kafka that somebody else has set, or removed.
// The position in the database counts; the group's offset follows it.
func (p *Processor) noticeReset(ctx context.Context, part Partition, next, committed int64) {
	text := ""
	switch drift := committed - next; {
	case next <= 0:
	case committed < 0:
		text = fmt.Sprintf("the group had no offset in kafka although it has read up to %d: it was deleted or has expired", next)
	case drift > maxDrift || drift < -maxDrift:
		text = fmt.Sprintf("the group's offset in kafka was %d although it has read up to %d: it was reset", committed, next)
	}
	p.status.notice(part.Partition, text)
	if text != "" {
		p.cfg.Log.WarnContext(ctx, "the offset in kafka is not the consumer's position, which counts; move it with millrace consumers seek",
			"consumer", p.consumer.Name, "topic", part.Topic, "partition", part.Partition, "kafka_offset", committed, "position", next)
	}
}

// Released forgets what there was to know about a partition that is no longer ours.
func (p *Processor) Released(partition int32) {
	p.status.forget(partition)
	p.orders.release(partition)
}

// OrderDeadLetter has the record at which a partition is stalled become a dead
// letter with the next try. It returns ErrNotBlocked when the partition is not
// stalled at that very record; DeadLetterOrder.Done tells what became of the order.
func (p *Processor) OrderDeadLetter(o DeadLetterOrder) error { return p.orders.add(o) }

// Status says how the consumer is doing.
func (p *Processor) Status() ConsumerStatus {
	s := p.status.snapshot()
	s.Name, s.Group, s.Kind = p.consumer.Name, p.cfg.Group, p.consumer.Handle.kind.String()
	s.Topic = p.cfg.Naming.Physical(p.consumer.Topic)
	s.Inbox = p.consumer.Handle.kind.transactional() && !p.consumer.GuardedByState
	s.Replay = p.consumer.Replay
	return s
}

// observe keeps the status up to date; it stands outside the chain, so that it
// sees what the transport sees.
func (p *Processor) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out, err := next(msg)
		if f := middleware.FlightFrom(msg.Context()); f != nil {
			p.status.note(f, err, p.cfg.Classifier.Classify(msg.Context(), err), p.cfg.Now())
			if f.Delivery.Lane == 0 { // an order is about the record at which the partition is stalled
				p.orders.settle(f, err)
			}
		}
		return out, err
	}
}

// step is a live record on its way to its handler.
type step struct {
	index int // in Flight.Items
	item  *middleware.Item
	route *route
	value any
}

// handle is the innermost function of the chain: it settles what Poison left to
// settle, live records and letters, in offset order.
func (p *Processor) handle(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	f := middleware.FlightFrom(ctx)
	if f == nil {
		return nil, errors.New("handle message: not inside the chain")
	}
	crash.At("consumer.taken")
	steps, err := p.plan(ctx, f)
	if err != nil {
		return nil, err
	}
	if p.consumer.Handle.kind.transactional() {
		return nil, p.settleTx(ctx, f, steps)
	}
	return nil, p.settleEach(ctx, f, steps)
}

// plan decodes the live records, settles those that no handler wants, and names
// all that cannot be decoded at once.
func (p *Processor) plan(ctx context.Context, f *middleware.Flight) ([]step, error) {
	var bad map[int]error
	steps := make([]step, 0, len(f.Items))
	for i := range f.Items {
		item := &f.Items[i]
		if !item.Live() {
			continue
		}
		route, err := p.table.route(item)
		if err == nil && route == nil {
			item.Outcome = middleware.Unknown
			p.unknown.sample(ctx, p, item)
			continue
		}
		var value any
		if err == nil {
			value, err = route.decode(item)
		}
		if err != nil {
			if bad == nil {
				bad = make(map[int]error)
			}
			bad[i] = err
			continue
		}
		steps = append(steps, step{index: i, item: item, route: route, value: value})
	}
	if bad != nil {
		return nil, &middleware.RecordErrors{ByIndex: bad}
	}
	return steps, nil
}

// unknownTypes remembers which types were seen that no handler wants, so that
// each is logged once.
type unknownTypes struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// maxUnknownTypes bounds the memory: types are text that others choose.
const maxUnknownTypes = 1000

func newUnknownTypes() *unknownTypes { return &unknownTypes{seen: make(map[string]struct{})} }

func (u *unknownTypes) sample(ctx context.Context, p *Processor, item *middleware.Item) {
	env, _ := item.Envelope()
	u.mu.Lock()
	_, seen := u.seen[env.Type]
	if !seen && len(u.seen) < maxUnknownTypes {
		u.seen[env.Type] = struct{}{}
	} else {
		seen = true
	}
	u.mu.Unlock()
	if !seen {
		p.cfg.Log.DebugContext(ctx, "no handler for event type", "consumer", p.consumer.Name,
			"event_type", env.Type, "topic", item.Record.Topic, "partition", item.Record.Partition, "offset", item.Record.Offset)
	}
}
