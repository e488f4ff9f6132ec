package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/propagation"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Tx is the transaction of an OnTx or OnBatchTx handler. It ends when the
// handler returns: with nil it is committed, together with the inbox and the
// position in the topic; with an error it is rolled back. A Tx is used by one
// goroutine at a time and not after the handler has returned.
//
// The statement methods are those of pgx, so generated query code (sqlc) takes a
// Tx as it is. For what is missing there is PgxTx.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)

	// Publish puts events into the outbox: they are published if and only if the
	// transaction commits, per aggregate in the order of the calls. The topic is
	// that of the event's type; correlation, causation and trace are those of the
	// record being handled. Wrap an event in Outgoing to say more.
	Publish(ctx context.Context, events ...topics.Event) error
}

// Outgoing is an event together with what its type does not say. It can be
// passed wherever an event is published:
//
//	tx.Publish(ctx, pipeline.Outgoing{Event: e, Sequence: version})
type Outgoing struct {
	topics.Event
	// Sequence is the version of the aggregate after the event. Zero means that it
	// has none.
	Sequence int64
	// Topic overrides the topic of the event's type, for types that have several,
	// such as the task topics of the resource classes.
	Topic topics.Topic
	// AggregateType overrides the second-to-last word of the event's type
	// ("execution" for millrace.execution.requested.v1).
	AggregateType string
	// Options are applied to the envelope last, after cause and trace.
	Options []topics.EnvelopeOption
}

// OutboxEvent is an event on its way to the outbox.
type OutboxEvent struct {
	AggregateType, AggregateID string
	Topic                      topics.Topic
	// Event is what was published, Envelope what it became.
	Event    topics.Event
	Envelope topics.Envelope
}

// ErrTxManaged is returned when a handler tries to end its own transaction.
var ErrTxManaged = errors.New("the transaction is ended by returning from the handler")

// PgxTx returns the pgx transaction under tx, for libraries that ask for one,
// and false when there is none, as under a fake in a test. Its Commit and
// Rollback return ErrTxManaged; Begin makes a savepoint as usual.
func PgxTx(tx Tx) (pgx.Tx, bool) {
	under, ok := tx.(interface{ PgxTx() (pgx.Tx, bool) })
	if !ok {
		return nil, false
	}
	return under.PgxTx()
}

// AfterCommit has fn called once the transaction of tx is committed, before the
// next delivery of the partition. It is for hints, such as waking somebody who
// polls anyway: a process that dies in between never calls it, and neither does a
// commit whose outcome stayed unknown. It does nothing for a Tx that is not of
// this package.
func AfterCommit(tx Tx, fn func()) {
	if t, ok := tx.(*handlerTx); ok {
		t.committed = append(t.committed, fn)
	}
}

// managedTx is a pgx.Tx that the handler cannot end.
type managedTx struct{ pgx.Tx }

func (managedTx) Commit(context.Context) error   { return ErrTxManaged }
func (managedTx) Rollback(context.Context) error { return ErrTxManaged }

// handlerTx is the Tx that handlers see.
type handlerTx struct {
	StoreTx
	outbox    []OutboxEvent
	committed []func()
}

func (t *handlerTx) Publish(ctx context.Context, events ...topics.Event) error {
	for _, e := range events {
		out, err := newOutboxEvent(ctx, e)
		if err != nil {
			return fmt.Errorf("publish %s: %w", e.EventType(), err)
		}
		t.outbox = append(t.outbox, out)
	}
	return nil
}

func (t *handlerTx) PgxTx() (pgx.Tx, bool) {
	under, ok := t.StoreTx.(interface{ PgxTx() (pgx.Tx, bool) })
	if !ok {
		return nil, false
	}
	tx, ok := under.PgxTx()
	if !ok {
		return nil, false
	}
	return managedTx{Tx: tx}, true
}

// newOutboxEvent wraps an event for publishing with the cause that ctx carries.
func newOutboxEvent(ctx context.Context, e topics.Event) (OutboxEvent, error) {
	o, ok := e.(Outgoing)
	if !ok {
		o = Outgoing{Event: e}
	}
	out := OutboxEvent{AggregateType: o.AggregateType, AggregateID: o.EventKey(), Topic: o.Topic, Event: o.Event}
	if out.AggregateType == "" {
		out.AggregateType = aggregateType(o.EventType())
	}
	if out.Topic == "" {
		t, known := topics.Lookup(o.EventType())
		if !known {
			return OutboxEvent{}, errors.New("the type is not in the catalogue; name a topic with Outgoing")
		}
		out.Topic = t.Topic
	}
	cause := middleware.CauseFrom(ctx)
	carried := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carried)
	options := append([]topics.EnvelopeOption{
		topics.WithCorrelation(cause.CorrelationID, cause.CausationID),
		topics.WithTrace(carried["traceparent"], carried["tracestate"]),
		topics.WithSequence(o.Sequence),
	}, o.Options...)
	var err error
	out.Envelope, err = topics.NewEnvelope(o.Event, options...)
	return out, err
}

// aggregateType is the word before the verb: "execution" in
// millrace.execution.requested.v1.
func aggregateType(eventType string) string {
	words := strings.Split(eventType, ".")
	if last := words[len(words)-1]; len(words) > 1 && len(last) > 1 && last[0] == 'v' && last[1] >= '0' && last[1] <= '9' {
		words = words[:len(words)-1]
	}
	if len(words) < 2 {
		return words[0]
	}
	return words[len(words)-2]
}
