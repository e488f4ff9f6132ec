package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	internal "github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/outbox"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// shop is a user's program: a database that it reaches by pgx, and by two drivers
// of database/sql.
type shop struct {
	t      *testing.T
	pool   *pgxpool.Pool
	db, pq *sql.DB
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &shop{t: t, pool: pool}
	for driver, db := range map[string]**sql.DB{"pgx": &s.db, "postgres": &s.pq} {
		*db, err = sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, (*db).Close()) })
	}
	return s
}

func (s *shop) withPGX(use func(tx pgx.Tx) error) error {
	return postgres.InTx(s.t.Context(), s.pool, func(_ context.Context, tx pgx.Tx) error { return use(tx) })
}

func (s *shop) withSQL(use func(tx *sql.Tx) error) error { return s.withDB(s.db, use) }

func (s *shop) withDB(db *sql.DB, use func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(s.t.Context(), nil)
	if err != nil {
		return err
	}
	if err := use(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// paid is the event that every way enqueues; only the id and the key differ.
func paid(n int) outbox.Entry {
	return outbox.Entry{
		AggregateType: "order", AggregateID: "o-ä", Topic: "orders", Key: fmt.Appendf(nil, "key-%d", n%2),
		Envelope: topics.Envelope{
			ID: fmt.Sprintf("0198c0de-0000-7000-8000-%012d", n), Source: "/shop", Type: "shop.order.paid.v1", Subject: "o-ä",
			DataContentType: "application/json", Time: time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC), Sequence: 7,
			TraceParent:   "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			CorrelationID: "c-1", Extensions: map[string]string{"zebra": "z", "apple": "ä"},
			Data: []byte(`{"a": 1, "text": "ö"}`),
		},
	}
}

// enqueue is paid by way of SQL.
const enqueue = `SELECT millrace_enqueue('order', 'o-ä', 'shop.order.paid.v1', 'orders', $1, '{"text": "ö", "a": 1}', jsonb_build_object(
	'ce_id', $2::text, 'ce_source', '/shop', 'ce_time', '2026-03-01T12:00:00.000005Z', 'ce_sequence', 7, 'ce_zebra', 'z', 'ce_apple', 'ä',
	'traceparent', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'correlationid', 'c-1', 'tracestate', ''))`

func (s *shop) enqueue(n int) error {
	return s.withPGX(func(tx pgx.Tx) error {
		var id string
		e := paid(n)
		err := tx.QueryRow(s.t.Context(), enqueue, string(e.Key), e.Envelope.ID).Scan(&id)
		assert.Equal(s.t, e.Envelope.ID, id)
		return err
	})
}

// newBroker is a broker with one topic of one partition.
func newBroker(t *testing.T, topic string) kafka.Config {
	t.Helper()
	broker := kafka.Config{Brokers: testenv.Broker(t), FetchMaxWait: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	admin, err := kafka.NewAdmin(broker)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: topic, Partitions: 1, ReplicationFactor: 1}})
	require.NoError(t, err)
	return broker
}

// relay publishes to the broker until the test ends.
func (s *shop) relay(broker kafka.Config) {
	s.t.Helper()
	publisher, err := kafka.NewPublisher(broker, kafka.PublisherConfig{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, publisher.Close()) })
	relay, err := internal.NewRelay(internal.Deps{
		Pool: s.pool, Leases: lease.NewManager(s.pool, "test", 10*time.Second, broker.Logger), Publisher: publisher, IsRejected: kafka.IsRejected,
	}, internal.Config{})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); assert.NoError(s.t, <-done) })
}

// waiting waits until one transaction waits for a lock of the outbox.
func (s *shop) waiting(msg ...any) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var waiting int
		err := s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&waiting)
		return err == nil && waiting == 1
	}, 30*time.Second, 2*time.Millisecond, msg...)
}

// rows counts what the outbox holds.
func (s *shop) rows() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM outbox_events`).Scan(&n))
	return n
}

func TestThreeWaysOneRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broker := newBroker(t, "orders")
	require.NoError(t, s.withPGX(func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, paid(1)) }))
	require.NoError(t, s.withSQL(func(tx *sql.Tx) error { return outbox.AppendSQL(t.Context(), tx, paid(2), paid(3)) }))
	require.NoError(t, s.enqueue(4))
	tail, err := kafka.NewTail(t.Context(), broker, kafka.TailConfig{Topics: []string{"orders"}, From: kafka.StartEarliest})
	require.NoError(t, err)
	t.Cleanup(tail.Close)
	s.relay(broker)

	var got []topics.Record
	reading, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	err = tail.Run(reading, func(r topics.Record) error {
		if got = append(got, r); len(got) == 4 {
			stop()
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, 4)
	for i, r := range got {
		e := paid(i + 1)
		want := e.Envelope.Record("orders", e.Key)
		assert.Equal(t, string(want.Key), string(r.Key))
		assert.Equal(t, string(want.Value), string(r.Value))
		assert.Equal(t, want.Headers, r.Headers)
	}
}

func TestThreeWaysOneRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.NoError(t, s.withPGX(func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, paid(1)) }))
	require.NoError(t, s.withSQL(func(tx *sql.Tx) error { return outbox.AppendSQL(t.Context(), tx, paid(1)) }))
	require.NoError(t, s.withDB(s.pq, func(tx *sql.Tx) error { return outbox.AppendSQL(t.Context(), tx, paid(1)) }))
	require.NoError(t, s.enqueue(1))
	var rows, kinds int
	require.NoError(t, s.pool.QueryRow(t.Context(), `
		SELECT count(*), count(DISTINCT (id, shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers, status, attempts))
		FROM outbox_events`).Scan(&rows, &kinds))
	assert.Equal(t, 4, rows)
	assert.Equal(t, 1, kinds)
}

func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var id string
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT millrace_enqueue('order', 'o-1', 'shop.order.paid.v1', 'orders',
		headers => '{"b": null, "a": "", "ce_dataschema": null}')`).Scan(&id))
	var row, key string
	var payload, headers []byte
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT id::text, convert_from(partition_key, 'UTF8'), payload, headers FROM outbox_events`).
		Scan(&row, &key, &payload, &headers))
	assert.Equal(t, id, row)
	assert.Equal(t, "o-1", key)
	assert.Nil(t, payload, "a tombstone")
	list, err := internal.DecodeHeaders(headers)
	require.NoError(t, err)
	event, err := topics.DecodeRecord(topics.Record{Topic: "orders", Value: []byte(`{}`), Headers: list})
	require.NoError(t, err, "it is a CloudEvent")
	assert.Equal(t, []string{id, "/millrace/sql", "o-1", "application/json"}, []string{event.ID, event.Source, event.Subject, event.DataContentType})
	assert.WithinDuration(t, time.Now(), event.Time, time.Hour)
	assert.Equal(t, []topics.Header{{Key: "a", Value: []byte{}}, {Key: "b"}}, list[len(list)-2:])
}

func TestBadEventsAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	bad := paid(1)
	bad.Topic = ""
	require.ErrorContains(t, s.withPGX(func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, paid(1), bad) }), "entry 1: the topic is empty")
	require.ErrorContains(t, s.withSQL(func(tx *sql.Tx) error { return outbox.AppendSQL(t.Context(), tx, paid(1), bad) }), "entry 1: the topic is empty")
	for _, call := range []string{`'', 'o', 't', 'orders'`, `'order', NULL, 't', 'orders'`, `'order', 'o', 't', ''`} {
		_, err := s.pool.Exec(t.Context(), `SELECT millrace_enqueue(`+call+`)`)
		require.ErrorContains(t, err, "required", call)
	}
	_, err := s.pool.Exec(t.Context(), `SELECT millrace_enqueue('order', 'o', 't', 'orders', headers => '[1]')`)
	require.ErrorContains(t, err, "must be a JSON object")
	assert.Zero(t, s.rows())
}

// Each way waits for a transaction that has enqueued for the same aggregate in any
// other way: order is that of the commits.
func TestAllWaysTakeTheSameLock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for first, begin := range map[string]func(tx pgx.Tx) error{
		"append":  func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, paid(1)) },
		"enqueue": func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), enqueue, "k", paid(1).Envelope.ID); return err },
		"publish": func(tx pgx.Tx) error { return outbox.NewPublisher(t.Context(), tx).Publish("orders", placed(1)) },
	} {
		for second, other := range map[string]func() error{
			"append": func() error {
				return s.withPGX(func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, paid(2)) })
			},
			"append sql": func() error {
				return s.withSQL(func(tx *sql.Tx) error { return outbox.AppendSQL(t.Context(), tx, paid(2)) })
			},
			"enqueue": func() error { return s.enqueue(2) },
			"publish": func() error {
				return s.withPGX(func(tx pgx.Tx) error { return outbox.NewPublisher(t.Context(), tx).Publish("orders", placed(2)) })
			},
			"publish sql": func() error {
				return s.withSQL(func(tx *sql.Tx) error { return outbox.NewPublisherSQL(t.Context(), tx).Publish("orders", placed(2)) })
			},
		} {
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, begin(tx))
			done := make(chan error, 1)
			go func() { done <- other() }()
			s.waiting("%s waits for %s", second, first)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-done)
		}
	}
}
