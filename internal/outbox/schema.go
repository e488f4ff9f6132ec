package outbox

import (
	"database/sql"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"
)

// The metadata of a Watermill message that say where it belongs.
const (
	MetadataAggregateType = "aggregate_type"
	MetadataAggregateID   = "aggregate_id"
	MetadataPartitionKey  = delivery.MetadataPartitionKey
	MetadataEventType     = "ce_type"
)

// Schema makes watermill-sql's Publisher write into the outbox: with the statement
// of LockAndAppend, all messages of a call at once. It only writes: rows are
// published by a Relay, not read by a watermill-sql Subscriber.
type Schema struct {
	// Texts has arrays sent as texts, for database/sql.
	Texts bool
}

var _ wsql.SchemaAdapter = Schema{}

// InsertQuery returns the statement that writes messages, or an error that names
// the first one which is not fit for it.
func (s Schema) InsertQuery(topic string, msgs message.Messages) (wsql.Query, error) {
	entries := make([]Entry, len(msgs))
	for i, msg := range msgs {
		e, err := entryOf(topic, msg)
		if err != nil {
			return wsql.Query{}, fmt.Errorf("message %d: %w", i, err)
		}
		entries[i] = e
	}
	c, err := columnsOf(entries)
	if err != nil {
		return wsql.Query{}, err
	}
	args := c.arrays
	if s.Texts {
		args = c.texts
	}
	return wsql.Query{Query: appendSQL, Args: args(bucketsOf(entries))}, nil
}

// entryOf is a message as an entry: the record that the transport would make of
// it, with the aggregate's id for a key if it has none.
func entryOf(topic string, msg *message.Message) (Entry, error) {
	switch {
	case msg == nil:
		return Entry{}, errors.New("it is nil")
	case msg.UUID == "":
		return Entry{}, errors.New("the UUID is empty")
	}
	for _, name := range []string{MetadataAggregateType, MetadataAggregateID} {
		if msg.Metadata[name] == "" {
			return Entry{}, fmt.Errorf("%s: metadata %s is missing", msg.UUID, name)
		}
	}
	rec := delivery.RecordOf(topic, msg)
	e := Entry{
		AggregateType: msg.Metadata[MetadataAggregateType], AggregateID: msg.Metadata[MetadataAggregateID], Topic: topics.Topic(topic),
		Envelope: topics.Envelope{ID: msg.UUID, Type: msg.Metadata[MetadataEventType]}, Record: &rec,
	}
	if rec.Key == nil {
		rec.Key = []byte(e.AggregateID)
	}
	if err := e.validate(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", msg.UUID, err)
	}
	return e, nil
}

// SelectQuery implements wsql.SchemaAdapter for a Subscriber, which there is not.
func (Schema) SelectQuery(string, string, wsql.OffsetsAdapter) wsql.Query { return wsql.Query{} }

// UnmarshalMessage implements wsql.SchemaAdapter. It always fails.
func (Schema) UnmarshalMessage(wsql.Scanner) (wsql.Row, error) {
	return wsql.Row{}, errors.New("read the outbox: that is the relay's business")
}

// SchemaInitializingQueries implements wsql.SchemaAdapter: the table is made by a
// migration.
func (Schema) SchemaInitializingQueries(string) []wsql.Query { return nil }

// SubscribeIsolationLevel implements wsql.SchemaAdapter.
func (Schema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }
