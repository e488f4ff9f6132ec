// Package outbox publishes events of your own if, and only if, the transaction
// that wrote them was committed.
//
// Append writes events in your transaction, beside your own changes; a relay of
// Millrace publishes them after the commit, within 100 ms. The tables must be in
// the same database (`millrace migrate up`). Programs in other languages call the
// SQL function millrace_enqueue, which writes the same rows.
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `UPDATE orders SET paid = true WHERE id = $1`, id)
//	err = outbox.Append(ctx, tx, outbox.Entry{
//		AggregateType: "order", AggregateID: id, Topic: "orders",
//		Envelope: topics.Envelope{ID: eventID, Source: "/shop", Type: "shop.order.paid.v1", Data: data},
//	})
//	err = tx.Commit(ctx)
//
// Code that speaks Watermill publishes through a Publisher: NewPublisher makes one for
// a transaction.
//
// # Delivery
//
// At least once: an event whose relay dies at the wrong moment is published again
// with the same id. A committed event is never lost, one that was rolled back is
// never published.
//
// # Order
//
// Per aggregate, that is per aggregate type and id, in the order of commit: the
// functions here take a lock on each aggregate (one of 1024 that aggregates share)
// and hold it until the transaction ends. A transaction should therefore append
// late, be short, and append all it has in one call: two transactions that call
// twice, for aggregates in opposite order, can deadlock, which PostgreSQL resolves
// by aborting one.
package outbox

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
)

// Entry is one event to be published.
type Entry = outbox.Entry

// Append writes events in the caller's transaction, in their order. Nothing is
// written when one of them is not valid; the error says which and why, and the
// transaction can go on.
func Append(ctx context.Context, tx pgx.Tx, entries ...Entry) error {
	return outbox.LockAndAppend(ctx, tx, entries...)
}

// AppendSQL is Append for database/sql, with any driver for PostgreSQL.
func AppendSQL(ctx context.Context, tx *sql.Tx, entries ...Entry) error {
	return outbox.LockAndAppendSQL(ctx, tx, entries...)
}
