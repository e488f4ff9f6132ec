package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Consumer is a named subscription to a topic with the handler of its events.
// Only Name, Topic and Handle are required.
type Consumer struct {
	// Name identifies the consumer in metrics, logs, dead letters and the inbox,
	// and is its consumer group (with the prefix of the deployment, "millrace-" by
	// default). Renaming a consumer makes it a new one that reads the topic again
	// from the start. Lower-case letters, digits, '-', '_' and '.', at most 100.
	Name string
	// Topic is what the consumer reads.
	Topic topics.Topic
	// Handle is made by On, OnBatch, OnTx, OnBatchTx or Mux.
	Handle Handler

	// Replay opts in to history that a replay session re-emits. Defaults to false:
	// replayed events are acked, counted, and dropped.
	Replay bool
	// Untargeted says that the consumer acts on records that are meant for another
	// one too (header millrace-target), because it handles records as such and not
	// what they say: it copies, files or counts them. Defaults to false: such
	// records are acked and dropped.
	Untargeted bool
	// GuardedByState says that the state which the handler changes tells by itself
	// whether an event was applied already, as a projection or a state machine
	// does. Such a consumer keeps no inbox, which saves a row per event. Only for
	// OnTx and OnBatchTx. Defaults to false.
	GuardedByState bool
	// BatchSize is the largest number of records in one call of an OnBatch or
	// OnBatchTx handler. Batches begin small, grow while they are quick, and shrink when
	// they take seconds or fail. Defaults to 256. Not allowed for On and OnTx.
	BatchSize int
	// Gather is how long after records came the next ones may wait for more: what
	// gathers shares a transaction and a fetch. The first record after a quiet time
	// is handed over at once, and so is a backlog. For OnBatch and OnBatchTx handlers
	// that nobody waits for. Defaults to 0; at most MaxGather.
	Gather time.Duration
	// Timeout limits one attempt. Defaults to 30 s; negative means no limit.
	Timeout time.Duration
	// From is where a consumer that has no position yet starts. Defaults to
	// Earliest.
	From Start
	// Delivery says what happens when the handler fails.
	Delivery Delivery
}

// Delivery is a consumer's policy for faults of its handler.
type Delivery struct {
	// MaxAttempts is how often a record is attempted, the first time included,
	// before OnExhausted applies. Defaults to 5.
	MaxAttempts int
	// Backoff is the wait between attempts. Defaults to 200 ms, doubling up to
	// 30 s, with full jitter.
	Backoff Backoff
	// OnExhausted says what follows the last attempt. Defaults to DeadLetter.
	OnExhausted Exhausted
	// DeadLetterTopic defaults to topics.DeadLetters.
	DeadLetterTopic topics.Topic
	// Breaker says when so many records fail that the consumer stalls rather than
	// dead-letters them. Defaults to 20 faults and more than half of the last 100.
	Breaker Breaker
	// Ordered says what a dead letter means for the later events of its key.
	// Defaults to AsTheyCome. PerKey is for OnTx and OnBatchTx.
	Ordered Ordered
	// MaxParked is how many events of one key may wait behind a dead letter, and
	// MaxParkedTotal how many of one partition. What would be more stalls the
	// partition until the dead letters are redriven or discarded. They default to
	// 2000 and 10000 and are for PerKey only.
	MaxParked, MaxParkedTotal int
}

// Ordered says what a dead letter means for the events of its key that come after
// it.
type Ordered uint8

// The orders.
const (
	// AsTheyCome: later events are handled as if nothing was. A dead letter that is
	// redriven comes after them.
	AsTheyCome Ordered = iota
	// PerKey: later events of the key are parked, in PostgreSQL, until the dead
	// letter is redriven or discarded; then they are handled in order, before any
	// that come thereafter. Other keys go on, and so do records without a key, which
	// have no order to keep.
	PerKey
)

// Parts of Delivery. See package middleware.
type (
	Backoff   = middleware.Backoff
	Exhausted = middleware.Exhausted
	Breaker   = middleware.Breaker
)

// What follows the last attempt.
const (
	// DeadLetter files the record and goes on with the next.
	DeadLetter = middleware.DeadLetter
	// Block stalls the partition and keeps trying.
	Block = middleware.Block
)

// Start is where a new consumer begins.
type Start uint8

// The starts.
const (
	Earliest Start = iota // the oldest record that the topic still has
	Latest                // records that come after the consumer
)

// Defaults of Consumer.
const (
	BatchSizeDefault = 256
	TimeoutDefault   = 30 * time.Second
	maxBatchSize     = 10_000
	// MaxParkedDefault is per key, MaxParkedTotalDefault per partition.
	MaxParkedDefault      = 2000
	MaxParkedTotalDefault = 10_000
	// MaxGather is the longest Consumer.Gather.
	MaxGather = time.Second
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// WithDefaults returns the consumer with its zero fields replaced.
func (c Consumer) WithDefaults() Consumer {
	if c.Handle.kind.inBatches() {
		c.BatchSize = cmp.Or(c.BatchSize, BatchSizeDefault)
	} else {
		c.BatchSize = cmp.Or(c.BatchSize, 1)
	}
	c.Timeout = cmp.Or(c.Timeout, TimeoutDefault)
	d := &c.Delivery
	d.MaxAttempts = cmp.Or(d.MaxAttempts, middleware.MaxAttemptsDefault)
	d.Backoff = d.Backoff.WithDefaults()
	d.DeadLetterTopic = cmp.Or(d.DeadLetterTopic, topics.DeadLetters)
	if d.Ordered == PerKey {
		d.MaxParked = cmp.Or(d.MaxParked, MaxParkedDefault)
		d.MaxParkedTotal = cmp.Or(d.MaxParkedTotal, max(MaxParkedTotalDefault, d.MaxParked))
	}
	return c
}

// Validate reports everything that is wrong with the consumer, at once.
func (c Consumer) Validate() error {
	c = c.WithDefaults()
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validName.MatchString(c.Name) {
		fail("name %q: want lower-case letters, digits, '-', '_' and '.', at most 100", c.Name)
	}
	if c.Topic == "" {
		fail("topic is empty")
	}
	if err := c.Handle.problem(); err != nil {
		errs = append(errs, err)
	}
	if !c.Handle.kind.inBatches() && c.BatchSize != 1 {
		fail("batch size %d: only OnBatch and OnBatchTx take batches", c.BatchSize)
	}
	if c.BatchSize < 1 || c.BatchSize > maxBatchSize {
		fail("batch size %d: want 1 to %d", c.BatchSize, maxBatchSize)
	}
	if c.Gather != 0 && !c.Handle.kind.inBatches() {
		fail("gather %s: only OnBatch and OnBatchTx take batches", c.Gather)
	}
	if c.Gather < 0 || c.Gather > MaxGather {
		fail("gather %s: want 0 to %s", c.Gather, MaxGather)
	}
	if c.GuardedByState && !c.Handle.kind.transactional() {
		fail("guarded by state: only OnTx and OnBatchTx keep an inbox")
	}
	if c.From > Latest {
		fail("from %d: want Earliest or Latest", c.From)
	}
	if c.Delivery.MaxAttempts < 1 {
		fail("delivery max attempts %d: want at least 1", c.Delivery.MaxAttempts)
	}
	if c.Delivery.OnExhausted > Block {
		fail("delivery on exhausted %d: want DeadLetter or Block", c.Delivery.OnExhausted)
	}
	if c.Delivery.DeadLetterTopic == c.Topic {
		fail("delivery dead letter topic %s: is the topic that is read", c.Topic)
	}
	if err := c.Delivery.Backoff.Validate(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.orderProblems()...)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("consumer %q: %w", c.Name, errors.Join(errs...))
}

func (c Consumer) orderProblems() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	d := c.Delivery
	switch {
	case d.Ordered > PerKey:
		fail("delivery ordered %d: want AsTheyCome or PerKey", d.Ordered)
	case d.Ordered == AsTheyCome && (d.MaxParked != 0 || d.MaxParkedTotal != 0):
		fail("delivery max parked %d and %d: only PerKey parks", d.MaxParked, d.MaxParkedTotal)
	case d.Ordered == AsTheyCome:
	case !c.Handle.kind.transactional():
		fail("delivery ordered per key: only OnTx and OnBatchTx can park events")
	case d.MaxParked < 1 || d.MaxParkedTotal < d.MaxParked:
		fail("delivery max parked %d and %d: want at least 1 per key, and per partition no less than per key", d.MaxParked, d.MaxParkedTotal)
	}
	return errs
}
