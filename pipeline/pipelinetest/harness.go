package pipelinetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Outcome is what became of a record. See package middleware.
type Outcome = middleware.Outcome

// The outcomes that a fed record can have.
const (
	Done          = middleware.Done
	Duplicate     = middleware.Duplicate
	Unknown       = middleware.Unknown
	NotTargeted   = middleware.NotTargeted
	ReplayDropped = middleware.ReplayDropped
	DeadLettered  = middleware.DeadLettered
	Parked        = middleware.Parked
	// Unsettled: the consumer stalls at this record or before it.
	Unsettled = middleware.Open
)

// DeadLetter is a record that the consumer gave up on.
type DeadLetter = middleware.Letter

// Option changes how a consumer is run.
type Option func(*Harness)

// WithTx runs the statements of OnTx and OnBatchTx handlers in tx, under a
// savepoint that is rolled back when the handler fails. The test ends tx.
func WithTx(tx pgx.Tx) Option { return func(h *Harness) { h.store.tx = tx } }

// WithContext replaces the context that handlers run under. Ending it stands
// for a shutdown or the loss of the partition.
func WithContext(ctx context.Context) Option { return func(h *Harness) { h.ctx = ctx } }

// WithClassifier adds knowledge about infrastructure faults.
func WithClassifier(c middleware.Classifier) Option {
	return func(h *Harness) { h.classifier = c }
}

// Harness runs one consumer. It is not safe for concurrent use.
type Harness struct {
	t          testing.TB
	ctx        context.Context
	processor  *pipeline.Processor
	classifier middleware.Classifier
	store      *memoryStore
	letters    *letterBox
	epoch      int64
	next       int64
	last       [][]topics.Record
	outcomes   []Outcome
	waits      []time.Duration
}

// partition is where everything lies that is fed.
const topicID = "pipelinetest-id!"

// New returns a harness for c. It fails the test if the consumer is not valid.
func New(t testing.TB, c pipeline.Consumer, opts ...Option) *Harness {
	t.Helper()
	h := &Harness{t: t, ctx: t.Context(), letters: &letterBox{}}
	h.store = &memoryStore{letters: h.letters}
	for _, opt := range opts {
		opt(h)
	}
	p, err := pipeline.NewProcessor(c, pipeline.ProcessorConfig{
		Store: h.store, DeadLetters: h.letters, Classifier: h.classifier,
		Rand: func() float64 { return 1 },
		Sleep: func(ctx context.Context, d time.Duration) bool {
			h.waits = append(h.waits, d)
			return ctx.Err() == nil
		},
	})
	if err != nil {
		t.Fatalf("pipelinetest: %v", err)
	}
	h.processor = p
	h.Reassign()
	return h
}

// Feed feeds events and fails the test unless all of them are settled. It
// returns what became of each.
func (h *Harness) Feed(events ...topics.Event) []Outcome {
	h.t.Helper()
	envs := make([]topics.Envelope, len(events))
	for i, e := range events {
		env, err := topics.NewEnvelope(e)
		if err != nil {
			h.t.Fatalf("pipelinetest: %v", err)
		}
		envs[i] = env
	}
	return h.FeedEnvelope(envs...)
}

// FeedEnvelope is Feed for events with an identity, a time or a cause. The same
// envelope fed twice is the same event at two places of the log.
func (h *Harness) FeedEnvelope(envs ...topics.Envelope) []Outcome {
	h.t.Helper()
	records := make([]topics.Record, len(envs))
	for i, env := range envs {
		records[i] = env.Record("", []byte(env.Subject))
	}
	return h.FeedRecord(records...)
}

// FeedRecord is Feed for records as they may lie in a topic: of any content, with
// any headers. Topic, partition and offset are set by the harness.
func (h *Harness) FeedRecord(records ...topics.Record) []Outcome {
	h.t.Helper()
	outcomes, err := h.TryRecord(records...)
	if err != nil {
		h.t.Fatalf("pipelinetest: the consumer stalls: %v", err)
	}
	return outcomes
}

// TryRecord is FeedRecord for consumers that are expected to stall: it returns
// the error with which the first delivery was refused, and stops there.
// Redeliver then does what the transport would do after its pause.
func (h *Harness) TryRecord(records ...topics.Record) ([]Outcome, error) {
	h.t.Helper()
	placed := slices.Clone(records)
	for i := range placed {
		r := &placed[i]
		r.Topic, r.TopicID, r.Partition, r.Offset = string(h.processor.Consumer().Topic), h.partition().TopicID, 0, h.next
		h.next++
	}
	h.last = slices.Collect(slices.Chunk(placed, h.processor.Consumer().BatchSize))
	return h.deliver()
}

// Redeliver hands out the records of the last call once more, at the same
// offsets, as the broker does when an ack was lost.
func (h *Harness) Redeliver() ([]Outcome, error) {
	h.t.Helper()
	return h.deliver()
}

func (h *Harness) deliver() ([]Outcome, error) {
	h.outcomes = nil
	for i, batch := range h.last {
		d := &delivery.Delivery{
			Group: h.processor.Consumer().Name, Topic: batch[0].Topic, TopicID: batch[0].TopicID,
			Records: batch, Epoch: h.epoch, Try: 1,
		}
		outcomes, err := h.processor.Process(h.ctx, d)
		h.outcomes = append(h.outcomes, outcomes...)
		if err != nil {
			for _, rest := range h.last[i+1:] {
				h.outcomes = append(h.outcomes, make([]Outcome, len(rest))...)
			}
			return h.outcomes, err
		}
	}
	return h.outcomes, nil
}

// Reassign makes the harness a new owner of the partition, as after a rebalance.
func (h *Harness) Reassign() {
	h.t.Helper()
	p := h.partition()
	_, epoch, err := h.processor.Assigned(h.ctx, p.Topic, p.TopicID, p.Partition, -1)
	if err != nil {
		h.t.Fatalf("pipelinetest: %v", err)
	}
	h.epoch = epoch
}

// Evict makes somebody else the owner of the partition, without telling the
// consumer: what it does from here on must have no effect.
func (h *Harness) Evict() {
	h.t.Helper()
	if _, err := h.store.Take(h.ctx, h.partition()); err != nil {
		h.t.Fatalf("pipelinetest: %v", err)
	}
}

func (h *Harness) partition() pipeline.Partition {
	p := pipeline.Partition{Group: h.processor.Consumer().Name, Topic: string(h.processor.Consumer().Topic)}
	copy(p.TopicID[:], topicID)
	return p
}

// Published returns the events that committed transactions published, in order.
func (h *Harness) Published() []topics.Event {
	events := make([]topics.Event, len(h.store.outbox))
	for i, out := range h.store.outbox {
		events[i] = out.Event
	}
	return events
}

// PublishedEnvelopes returns the same events with topic, cause and sequence.
func (h *Harness) PublishedEnvelopes() []pipeline.OutboxEvent { return slices.Clone(h.store.outbox) }

// Statements returns the SQL of committed transactions, in order. It is empty
// with WithTx.
func (h *Harness) Statements() []Statement { return slices.Clone(h.store.statements) }

// DeadLetters returns the records that the consumer gave up on, in order.
func (h *Harness) DeadLetters() []DeadLetter { return slices.Clone(h.letters.filed) }

// Parked returns the records that wait behind a dead letter with their key, in
// order. Nothing drains them here: that is the router's, in the same way as it
// handles any record.
func (h *Harness) Parked() []topics.Record { return slices.Clone(h.store.parked) }

// FailDeadLetters makes writing dead letters fail with err; nil makes it work
// again.
func (h *Harness) FailDeadLetters(err error) { h.letters.fail = err }

// FailCommit makes the next commit return err. If done, the transaction takes
// effect nevertheless, as when the connection breaks before the answer comes.
func (h *Harness) FailCommit(err error, done bool) {
	h.store.failCommit, h.store.commitDone = err, done
}

// Waits returns the waits between attempts that were asked for so far.
func (h *Harness) Waits() []time.Duration { return slices.Clone(h.waits) }

// Position returns the first offset that the consumer's store does not take for
// settled, or pipeline.NoOffset.
func (h *Harness) Position() int64 { return h.store.next }

// Status says how the consumer is doing.
func (h *Harness) Status() pipeline.ConsumerStatus { return h.processor.Status() }
