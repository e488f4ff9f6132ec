package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// testBundle is a store in a database of its own, with a table for effects.
type testBundle struct {
	pool  *pgxpool.Pool
	store *inbox.Store
	wakes atomic.Int64
}

func setup(t testing.TB) *testBundle {
	t.Helper()
	dsn := testenv.Database(t, migrate)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &testBundle{pool: pool}
	b.store = inbox.New(pool, func() { b.wakes.Add(1) })
	return b
}

func migrate(ctx context.Context, dsn string) error {
	if err := postgres.MigrateDSN(ctx, dsn); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE TABLE effects (
		n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL CHECK (id <> 'forbidden'),
		once text UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	return err
}

func (b *testBundle) strings(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		all = append(all, s)
	}
	require.NoError(t, rows.Err())
	return all
}

func (b *testBundle) effects(t testing.TB) []string {
	t.Helper()
	return b.strings(t, `SELECT id FROM effects ORDER BY n`)
}

// mark is an event whose effect is a row with its id.
type mark struct {
	ID string `json:"id"`
}

func (mark) EventType() string  { return "example.mark.made.v1" }
func (m mark) EventKey() string { return m.ID }

func markRecord(t testing.TB, id string) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(mark{ID: id}, topics.WithID("id-"+id))
	require.NoError(t, err)
	return env.Record("marks", []byte(id))
}

func insertMark(ctx context.Context, tx pipeline.Tx, m mark) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, m.ID)
	return err
}

func insertMarks(ctx context.Context, tx pipeline.Tx, batch []mark) error {
	for _, m := range batch {
		if err := insertMark(ctx, tx, m); err != nil {
			return err
		}
	}
	return nil
}

// owner feeds a processor as the owner of a partition would.
type owner struct {
	t         testing.TB
	processor *pipeline.Processor
	partition int32
	epoch     int64
	start     int64
}

func classifier() middleware.Classifier {
	return middleware.Classifier{Infrastructure: []func(error) bool{postgres.IsInfrastructure}}
}

var topicID = [16]byte{0xab, 15: 1}

func (b *testBundle) own(t testing.TB, c pipeline.Consumer) *owner {
	t.Helper()
	return b.ownPartition(t, c, 3)
}

func (b *testBundle) ownPartition(t testing.TB, c pipeline.Consumer, partition int32) *owner {
	t.Helper()
	if c.Name == "" {
		c.Name, c.Topic = "marker", "marks"
	}
	if c.Delivery.Breaker.Faults == 0 {
		c.Delivery.Breaker.Faults = -1
	}
	p, err := pipeline.NewProcessor(c, pipeline.ProcessorConfig{
		Store: b.store, Classifier: classifier(),
		Rand: func() float64 { return 0 },
	})
	require.NoError(t, err)
	o := &owner{t: t, processor: p, partition: partition}
	o.start, o.epoch, err = p.Assigned(t.Context(), "marks", topicID, partition, -1)
	require.NoError(t, err)
	return o
}

// feed delivers records that lie from the given offset on.
func (o *owner) feed(ctx context.Context, from int64, records ...topics.Record) ([]middleware.Outcome, error) {
	d := &delivery.Delivery{
		Group: o.processor.Consumer().Name, Topic: "marks", TopicID: topicID, Partition: o.partition, Epoch: o.epoch, Try: 1,
	}
	for i, r := range records {
		r.Topic, r.TopicID, r.Partition, r.Offset = "marks", topicID, o.partition, from+int64(i)
		d.Records = append(d.Records, r)
	}
	return o.processor.Process(ctx, d)
}
