package inbox

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// effectTx is the transaction that the runtime hands to handlers.
type effectTx struct{ pgx.Tx }

// PgxTx is what pipeline.PgxTx finds.
func (t effectTx) PgxTx() (pgx.Tx, bool) { return t.Tx, true }

// Append implements pipeline.StoreTx.
func (t effectTx) Append(ctx context.Context, events ...pipeline.OutboxEvent) error {
	entries := make([]outbox.Entry, len(events))
	for i, e := range events {
		entries[i] = outbox.Entry{AggregateType: e.AggregateType, AggregateID: e.AggregateID, Topic: e.Topic, Envelope: e.Envelope}
	}
	return outbox.Append(ctx, t.Tx, entries...)
}

// maxKeyInID is how much of a record's key becomes part of an aggregate's id.
const maxKeyInID = 64

// publishLetters writes the outbox rows of letters. Letters of one key stay in
// order. They belong to one partition, whose position is locked, so no other
// transaction writes rows of these aggregates at the same time.
func publishLetters(ctx context.Context, tx pgx.Tx, w pipeline.Work, letters []*middleware.Letter) error {
	entries := make([]outbox.Entry, len(letters))
	for i, l := range letters {
		record := l.Record(string(w.DeadLetterTopic))
		key := l.Original.Key[:min(len(l.Original.Key), maxKeyInID)]
		entries[i] = outbox.Entry{
			AggregateType: "dead_letter",
			AggregateID:   fmt.Sprintf("%s/%s/%d/%s", l.Consumer, l.Original.Topic, l.Original.Partition, hex.EncodeToString(key)),
			Topic:         w.DeadLetterTopic,
			// The row gets an id of its own: the event's is that of another row.
			Envelope: topics.Envelope{Type: l.EventType},
			Record:   &record,
		}
	}
	return outbox.Append(ctx, tx, entries...)
}
