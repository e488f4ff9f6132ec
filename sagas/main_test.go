package sagas_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Order is the state of the saga of these tests.
type Order struct {
	Item     string `json:"item"`
	Count    int    `json:"count"`
	Reserved int    `json:"reserved,omitempty"`
	Note     string `json:"note,omitempty"`
}

// shop is what the steps work on: the table stock.
type shop struct {
	fail error
	hook func()
}

func (s *shop) reserve(ctx context.Context, tx sagas.Tx, o *Order) error {
	if _, err := tx.Exec(ctx, `UPDATE stock SET left_over = left_over - $2 WHERE item = $1`, o.Item, o.Count); err != nil {
		return err
	}
	if err := tx.Publish(ctx, topics.ExecutionCancelRequested{ExecutionID: "e-1", Attempt: 1, By: "reserve"}); err != nil {
		return err
	}
	if s.hook != nil {
		s.hook()
	}
	o.Reserved = o.Count
	return s.fail
}

func (s *shop) release(ctx context.Context, tx sagas.Tx, o *Order) error {
	_, err := tx.Exec(ctx, `UPDATE stock SET left_over = left_over + $2 WHERE item = $1`, o.Item, o.Reserved)
	o.Reserved = 0
	return errors.Join(err, s.fail)
}

func (s *shop) saga() sagas.Saga {
	return sagas.New[Order]("order",
		sagas.Step("reserve", s.reserve, sagas.Compensate(s.release)),
		sagas.Remote("pay", "bank", "charge", sagas.CompensateBy("refund"), sagas.Fields("item", "count")),
	)
}

// bench is a participant under test, on a database with 10 nuts in stock.
type bench struct {
	*pipelinetest.Harness
	t     *testing.T
	tx    pgx.Tx
	saga  uuid.UUID
	issue int64
}

func newBench(t *testing.T, s sagas.Saga) *bench {
	t.Helper()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), `CREATE TABLE stock (item text, left_over int CHECK (left_over >= 0)); INSERT INTO stock VALUES ('nuts', 10)`)
	require.NoError(t, err)
	consumers := s.Consumers()
	require.Len(t, consumers, 1)
	return &bench{Harness: pipelinetest.New(t, consumers[0], pipelinetest.WithTx(tx)), t: t, tx: tx, saga: uuid.New()}
}

func (b *bench) left() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.tx.QueryRow(b.t.Context(), `SELECT left_over FROM stock`).Scan(&n))
	return n
}

// command is the first attempt at the step reserve of an order of 3 nuts.
func (b *bench) command() topics.SagaCommand {
	b.issue++
	return topics.SagaCommand{
		SagaID: b.saga.String(), Saga: "order", CommandID: uuid.NewString(), Participant: "order", Type: "reserve", Step: "reserve",
		Attempt: 1, Issue: b.issue, Payload: json.RawMessage(`{"item":"nuts","count":3,"other":"kept"}`),
	}
}

// undo is the compensation of c.
func (b *bench) undo(c topics.SagaCommand) topics.SagaCommand {
	b.issue++
	c.Compensation, c.CompensatesCommandID, c.CommandID, c.Type, c.Issue = true, c.CommandID, uuid.NewString(), "compensate:reserve", b.issue
	return c
}

// again is the next attempt at c.
func (b *bench) again(c topics.SagaCommand) topics.SagaCommand {
	b.issue++
	c.Attempt, c.Issue = c.Attempt+1, b.issue
	return c
}

// send feeds a command and returns the reply, and how many other events came of it.
func (b *bench) send(c topics.SagaCommand) (reply topics.SagaReply, others int) {
	b.t.Helper()
	before := len(b.Published())
	require.Equal(b.t, []pipelinetest.Outcome{pipelinetest.Done}, b.Feed(c))
	events := b.Published()[before:]
	require.NotEmpty(b.t, events)
	for _, e := range b.PublishedEnvelopes()[before:] {
		if r, ok := e.Event.(topics.SagaReply); ok {
			reply = r
		}
	}
	require.Equal(b.t, c.CommandID, reply.CommandID)
	require.Equal(b.t, c.Attempt, reply.Attempt)
	return reply, len(events) - 1
}

func in(d time.Duration) *time.Time { return new(time.Now().Add(d)) }
