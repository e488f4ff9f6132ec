package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/topics"
)

// Publisher publishes events straight to their topics, outside any transaction:
// for handlers made with On and for programs without a database. Where an event
// must stand or fall with a change in PostgreSQL, Tx.Publish is the way.
type Publisher struct {
	records RecordPublisher
	naming  topics.Naming
}

// NewPublisher returns a publisher over the transport's.
func NewPublisher(records RecordPublisher, naming topics.Naming) *Publisher {
	return &Publisher{records: records, naming: naming}
}

// Publish returns nil once all events are durable. Correlation, causation and
// trace are those of the record that ctx handles. After an error some of the
// events may have been published; publishing again gives them new ids.
func (p *Publisher) Publish(ctx context.Context, events ...topics.Event) error {
	records := make([]topics.Record, len(events))
	for i, e := range events {
		out, err := newOutboxEvent(ctx, e)
		if err != nil {
			return fmt.Errorf("publish %s: %w", e.EventType(), err)
		}
		records[i] = out.Envelope.Record(p.naming.Physical(out.Topic), []byte(out.AggregateID))
	}
	if err := errors.Join(p.records.PublishRecords(ctx, records)...); err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	return nil
}
