package outbox

import (
	"context"
	"database/sql"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
)

// Metadata that a Publisher reads. All but MetadataPartitionKey is published as a
// header too, like any other metadata.
const (
	// MetadataAggregateType and MetadataAggregateID name what a message belongs to
	// and what it is kept in order with. Required.
	MetadataAggregateType = outbox.MetadataAggregateType
	MetadataAggregateID   = outbox.MetadataAggregateID
	// MetadataPartitionKey is the record's key. Defaults to the aggregate's id.
	MetadataPartitionKey = outbox.MetadataPartitionKey
	// MetadataEventType is the type of the event by its name in CloudEvents. It is
	// what operators see of an event that waits. Optional.
	MetadataEventType = outbox.MetadataEventType
)

// Publisher is a Watermill publisher that writes messages in a transaction, as
// Append writes events: with the same locks, in the same order, published if and
// only if the transaction is committed. It is watermill-sql's Publisher with a
// schema of Millrace's.
//
// A message becomes the record that Watermill's Kafka publishers make of it: the
// payload is the value (nil is a tombstone), the UUID and the metadata are headers.
// A Watermill subscriber gets UUID, payload and metadata back as they were, whatever
// bytes they hold.
//
// It belongs to its transaction: it is not safe for concurrent use, and of no use
// after the commit.
type Publisher struct {
	ctx    context.Context
	tx     execFunc
	schema outbox.Schema
	closed bool
}

var _ message.Publisher = (*Publisher)(nil)

// execFunc runs a statement in the caller's transaction.
type execFunc func(ctx context.Context, query string, args ...any) (sql.Result, error)

// NewPublisher makes a publisher that writes in tx. Watermill's Publish knows no
// context, so that of the transaction is given here: ctx bounds every Publish.
func NewPublisher(ctx context.Context, tx pgx.Tx) *Publisher {
	return &Publisher{ctx: ctx, tx: func(ctx context.Context, query string, args ...any) (sql.Result, error) {
		_, err := tx.Exec(ctx, query, args...)
		return nil, err
	}}
}

// NewPublisherSQL is NewPublisher for database/sql, with any driver for PostgreSQL.
func NewPublisherSQL(ctx context.Context, tx *sql.Tx) *Publisher {
	return &Publisher{ctx: ctx, tx: tx.ExecContext, schema: outbox.Schema{Texts: true}}
}

// Publish implements message.Publisher: it writes all messages for the logical
// topic in one statement, in their order. When one of them lacks what is needed
// (see the Metadata constants), or its UUID, nothing is written and the transaction
// can go on; the error says which and what.
//
// It is given up when the publisher's context or that of one of the messages ends.
// When the statement was under way by then, the transaction is lost.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 && !p.closed {
		return nil
	}
	ctx, stop := p.bound(messages)
	defer stop()
	if err := p.publish(ctx, topic, messages); err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, topic string, messages []*message.Message) error {
	if p.closed {
		return wsql.ErrPublisherClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	upstream, err := wsql.NewPublisher(statement{ctx: ctx, exec: p.tx}, wsql.PublisherConfig{SchemaAdapter: p.schema}, nil)
	if err != nil {
		return err
	}
	return upstream.Publish(topic, messages...)
}

// bound returns a context that ends with the publisher's or any message's.
func (p *Publisher) bound(messages []*message.Message) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	stops := []func(){func() { cancel(nil) }}
	var last <-chan struct{} // mostly all have the same, or none
	for _, msg := range messages {
		if msg == nil || msg.Context().Done() == last {
			continue
		}
		of := msg.Context()
		last = of.Done()
		if of.Err() != nil {
			cancel(context.Cause(of))
			break
		}
		stop := context.AfterFunc(of, func() { cancel(context.Cause(of)) })
		stops = append(stops, func() { stop() })
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Close implements message.Publisher: Publish fails from now on. The transaction
// is left to its owner.
func (p *Publisher) Close() error {
	p.closed = true
	return nil
}

// statement is what watermill-sql's Publisher runs its one statement on: the
// caller's transaction, and the caller's context in the place of none.
type statement struct {
	wsql.ContextExecutor // nil: a Publisher that creates no tables calls nothing else
	ctx                  context.Context
	exec                 execFunc
}

// ExecContext implements wsql.ContextExecutor.
func (s statement) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return s.exec(s.ctx, query, args...)
}
