package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
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

// maxKeyInID is how much of a record's key is shown.
const maxKeyInID = 64

// publishLetters writes the outbox rows of letters. Letters of one key stay in
// order. They belong to one partition, whose position is locked, so no other
// transaction writes rows of these aggregates at the same time.
func publishLetters(ctx context.Context, tx pgx.Tx, w pipeline.Work, letters []*middleware.Letter) error {
	return outbox.Append(ctx, tx, deadletter.Entries(w.DeadLetterTopic, letters...)...)
}
