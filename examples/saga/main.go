// Command saga adds a saga of its own to a running pipeline: an order that reserves goods,
// takes the money and books a parcel, each in a transaction of its own. When the parcel
// cannot be booked, the money is given back and the goods are released.
//
// Start a pipeline with `millrace up`, in another terminal
//
//	go run ./examples/saga
//
// and in a third one
//
//	millrace sagas start order --wait 30s --state '{"item":"feather","count":2,"price":150}'
//	millrace sagas start order --wait 30s --state '{"item":"anvil","count":1,"price":9900}'
//
// The second one is too heavy for the post: `millrace sagas timeline ID` shows how it is
// undone. Kill the program at any moment and start it again: no order is lost, and none
// takes anything twice.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/sagas"
)

func main() { app.Main(app.Saga(NewOrder)) }

// Order is all that the saga keeps between its steps.
type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
	// Price is what one of them costs, in cents.
	Price int `json:"price"`
	// Payment is the number of the payment, once it was made.
	Payment int64 `json:"payment,omitempty"`
	// Parcel is where the goods are, once they were sent.
	Parcel string `json:"parcel,omitempty"`
}

// shop is what the steps work with: nothing comes out of a context.
type shop struct{ log *slog.Logger }

// NewOrder returns the saga, and makes the tables of the shop where there are none.
func NewOrder(pool *pgxpool.Pool, log *slog.Logger) (sagas.Saga, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return sagas.Saga{}, fmt.Errorf("make the tables of the shop: %w", err)
	}
	s := shop{log: log}
	return sagas.New[Order]("order",
		sagas.Step("reserve", s.reserve, sagas.Compensate(s.release)),
		sagas.Step("pay", s.pay, sagas.Compensate(s.refund), sagas.Retry(3, time.Second)),
		sagas.Step("ship", s.ship),
	).Within(time.Hour), nil
}

const schema = `
CREATE TABLE IF NOT EXISTS shop_stock (item text PRIMARY KEY, grams int NOT NULL, on_hand int NOT NULL CHECK (on_hand >= 0));
CREATE TABLE IF NOT EXISTS shop_payments (id bigserial PRIMARY KEY, saga text NOT NULL, cents int NOT NULL, refunded boolean NOT NULL DEFAULT false);
INSERT INTO shop_stock VALUES ('feather', 1, 100), ('anvil', 45000, 100) ON CONFLICT DO NOTHING`

// reserve takes the goods off the shelf. What it does with tx, the note that it was done
// and the reply are one transaction.
func (s shop) reserve(ctx context.Context, tx sagas.Tx, o *Order) error {
	tag, err := tx.Exec(ctx, `UPDATE shop_stock SET on_hand = on_hand - $2 WHERE item = $1 AND on_hand >= $2`, o.Item, o.Count)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return sagas.Fail("sold_out", "there are no %d of %q", o.Count, o.Item)
	}
	s.log.InfoContext(ctx, "goods are reserved", "saga_id", tx.Command().SagaID, "item", o.Item, "count", o.Count)
	return nil
}

// release undoes reserve.
func (s shop) release(ctx context.Context, tx sagas.Tx, o *Order) error {
	_, err := tx.Exec(ctx, `UPDATE shop_stock SET on_hand = on_hand + $2 WHERE item = $1`, o.Item, o.Count)
	s.log.InfoContext(ctx, "goods are released", "saga_id", tx.Command().SagaID, "item", o.Item, "count", o.Count)
	return err
}

func (s shop) pay(ctx context.Context, tx sagas.Tx, o *Order) error {
	err := tx.QueryRow(ctx, `INSERT INTO shop_payments (saga, cents) VALUES ($1, $2) RETURNING id`,
		tx.Command().SagaID, o.Count*o.Price).Scan(&o.Payment)
	s.log.InfoContext(ctx, "payment is taken", "saga_id", tx.Command().SagaID, "payment", o.Payment)
	return err
}

// refund undoes pay. It sees the state as pay left it, also when the reply of pay was lost.
func (s shop) refund(ctx context.Context, tx sagas.Tx, o *Order) error {
	_, err := tx.Exec(ctx, `UPDATE shop_payments SET refunded = true WHERE id = $1`, o.Payment)
	s.log.InfoContext(ctx, "payment is refunded", "saga_id", tx.Command().SagaID, "payment", o.Payment)
	return err
}

// ship books a parcel. Nothing comes after it, so there is nothing to undo.
func (s shop) ship(ctx context.Context, tx sagas.Tx, o *Order) error {
	var grams int
	if err := tx.QueryRow(ctx, `SELECT grams FROM shop_stock WHERE item = $1`, o.Item).Scan(&grams); err != nil {
		return err
	}
	if total := grams * o.Count; total > 30_000 {
		return sagas.Fail("too_heavy", "%d kg are too heavy for the post", total/1000)
	}
	o.Parcel = "parcel-" + tx.Command().CommandID[:8]
	s.log.InfoContext(ctx, "parcel is booked", "saga_id", tx.Command().SagaID, "parcel", o.Parcel)
	return nil
}
