package outbox_test

import (
	"context"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/outbox"
	"github.com/millrace/millrace/topics"
)

// An order is paid, and its event published, or neither.
func ExampleAppend() {
	pay := func(ctx context.Context, pool *pgxpool.Pool, order, eventID string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE orders SET paid = true WHERE id = $1`, order); err != nil {
				return err
			}
			return outbox.Append(ctx, tx, outbox.Entry{
				AggregateType: "order", AggregateID: order, Topic: "orders",
				Envelope: topics.Envelope{ID: eventID, Source: "/shop", Type: "shop.order.paid.v1", Data: json.RawMessage(`{"amount":7}`)},
			})
		})
	}
	_ = pay
}

// The same with a message of Watermill's, for code that takes a message.Publisher.
func ExampleNewPublisher() {
	notify := func(publisher message.Publisher, order string) error {
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(`{"amount":7}`))
		msg.Metadata.Set(outbox.MetadataAggregateType, "order")
		msg.Metadata.Set(outbox.MetadataAggregateID, order)
		msg.Metadata.Set(outbox.MetadataEventType, "shop.order.paid.v1")
		return publisher.Publish("orders", msg)
	}
	pay := func(ctx context.Context, pool *pgxpool.Pool, order string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE orders SET paid = true WHERE id = $1`, order); err != nil {
				return err
			}
			return notify(outbox.NewPublisher(ctx, tx), order)
		})
	}
	_ = pay
}
