package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// A Projection is a consumer that builds read models from the events of one topic, as
// its declaration says.
type Projection struct {
	// Name is the name of the consumer, and so of its consumer group. Changing it reads
	// the topic again from the start.
	Name string
	// Topic is what is read.
	Topic topics.Topic
	// Tables are what is built, those first whose rows others refer to.
	Tables []*Table
	// Apply says what one event changes: it asks the batch for rows and sets their
	// columns. It sees only the event, never what a row held before: the rules of the
	// columns decide that. An error is a fault of the record, which becomes a dead
	// letter; Apply finds out before it asks for a row. Events that are none of its
	// business are passed over.
	Apply func(b *Batch, e Event) error
	// DeadLetterTopic is where records go that cannot be applied. Defaults to
	// topics.DeadLetters.
	DeadLetterTopic topics.Topic
	// Breaker says when so many records cannot be applied that the consumer stalls. Its
	// zero value is the default of pipeline.Delivery.
	Breaker pipeline.Breaker
	// BatchSize is the largest number of records in one transaction. Defaults to 500.
	BatchSize int
	// Gather is how long after records came the next ones may wait for more. Defaults
	// to 0; see pipeline.Consumer.
	Gather time.Duration
}

// defaultBatch is how many records a transaction merges at most.
const defaultBatch = 500

// All returns the projections that Millrace ships. The caller may change the slice.
func All() []Projection { return []Projection{Executions(), Sagas(), DataIndex(nil)} }

// Consumer returns the consumer that runs the projection.
func (p Projection) Consumer() pipeline.Consumer {
	size := p.BatchSize
	if size == 0 {
		size = defaultBatch
	}
	return pipeline.Consumer{
		Name:  p.Name,
		Topic: p.Topic,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, records []topics.Record) error {
			return p.apply(ctx, tx, records)
		}),
		GuardedByState: true,
		// History that is told once more changes nothing, and mends what was lost.
		Replay:    true,
		BatchSize: size,
		Gather:    p.Gather,
		Delivery:  pipeline.Delivery{DeadLetterTopic: p.DeadLetterTopic, Breaker: p.Breaker},
	}
}

func (p Projection) apply(ctx context.Context, tx Execer, records []topics.Record) error {
	b := p.NewBatch()
	for _, r := range records {
		if err := b.Add(r); err != nil {
			return err
		}
	}
	if err := b.Merge(ctx, tx, nil); err != nil {
		return err
	}
	for _, f := range b.applied {
		f()
	}
	return nil
}

// A Batch folds events into rows, one per key, which Merge then writes with one
// statement per table. It is not safe for concurrent use.
type Batch struct {
	projection Projection
	rows       []map[string]*Row // by the index of the table, by key
	event      Event
	fault      error
	key        []byte
	applied    []func()
}

// WhenApplied has f called when the consumer has written the rows of the event that is
// being applied: for counting. It may come again when the transaction does not commit.
func (b *Batch) WhenApplied(f func()) { b.applied = append(b.applied, f) }

// NewBatch returns an empty batch of the projection.
func (p Projection) NewBatch() *Batch {
	b := &Batch{projection: p, rows: make([]map[string]*Row, len(p.Tables))}
	for i := range b.rows {
		b.rows[i] = make(map[string]*Row)
	}
	return b
}

// Add folds the event in a record into the batch. An error is a fault of the record
// (middleware.Malformed), and the batch is as it was.
func (b *Batch) Add(r topics.Record) error {
	env, err := topics.DecodeRecord(r)
	if err != nil {
		return pipeline.Malformed(err)
	}
	return b.AddEvent(NewEvent(env, r))
}

// AddEvent is Add for an event that is decoded already.
func (b *Batch) AddEvent(e Event) error {
	b.event, b.fault = e, nil
	err := b.projection.Apply(b, e)
	if err = cmp.Or(err, b.fault); err != nil {
		return pipeline.Malformed(fmt.Errorf("apply %s: %w", e.Type, err))
	}
	return nil
}

// Errors of the keys that Apply asks for.
var (
	// ErrUnversioned: an event of an aggregate must say which version it leads to, or
	// nothing could tell whether it is older than what is there.
	ErrUnversioned = errors.New("the event carries no sequence")
	// ErrBadKey: a key is empty, longer than 1 024 bytes, or no text that PostgreSQL
	// stores.
	ErrBadKey = errors.New("the key of the row is unusable")
)

// Row returns the row with that key, one value per column of the key, for the event
// that is being applied. Asking for it is enough to make it: a row of which nothing
// else is known is a placeholder. Where the key or the event is unusable the event
// becomes a dead letter and what is set in the row goes nowhere.
func (b *Batch) Row(t *Table, key ...any) *Row {
	row := &Row{table: t, values: make([]any, len(t.columns)), marks: make([]Mark, len(t.registers))}
	mark, ok := b.event.mark(t.order)
	if !ok {
		b.fault = ErrUnversioned
		return row
	}
	if err := row.identify(key); err != nil {
		b.fault = err
		return row
	}
	rows := b.rows[slices.Index(b.projection.Tables, t)]
	b.key = row.appendKey(b.key[:0])
	if known := rows[string(b.key)]; known != nil {
		row = known
	} else {
		rows[string(b.key)] = row
	}
	row.event = mark
	row.Set(t.historyFrom, b.event.At)
	row.Set(t.eventsFuture, b.event.Future)
	return row
}

func (r *Row) identify(key []any) error {
	if len(key) != len(r.table.keys) {
		panic(fmt.Sprintf("projections: %s has %d columns of its key, not %d", r.table.name, len(r.table.keys), len(key)))
	}
	for i, c := range r.table.keys {
		if s, isText := key[i].(string); isText && (s == "" || len(s) > maxText || storable(s) != s) {
			return fmt.Errorf("%s %.64q: %w", c.name, s, ErrBadKey)
		}
		r.values[c.index] = c.typ.normal(key[i])
	}
	return nil
}

func (r *Row) appendKey(b []byte) []byte {
	for _, c := range r.table.keys {
		b = fmt.Appendf(b, "%v\x00", r.values[c.index])
	}
	return b
}

// Rows returns how many rows the batch has.
func (b *Batch) Rows() (n int) {
	for _, rows := range b.rows {
		n += len(rows)
	}
	return n
}

// Merge writes the rows, one statement per table, in the order of the tables. Into
// names where the rows of a table go instead of to the table itself; nil is nowhere
// else. The batch may be merged again.
func (b *Batch) Merge(ctx context.Context, tx Execer, into map[*Table]string) error {
	for i, t := range b.projection.Tables {
		rows := make([]*Row, 0, len(b.rows[i]))
		for _, r := range b.rows[i] {
			rows = append(rows, r)
		}
		slices.SortFunc(rows, compareKeys)
		name := into[t]
		if name == "" {
			name = t.name
		}
		if err := t.merge(ctx, tx, name, rows); err != nil {
			return err
		}
	}
	return nil
}
