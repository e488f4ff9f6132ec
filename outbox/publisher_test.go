package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/outbox"
)

// placed is a message of the aggregate that paid is of.
func placed(n int) *message.Message { return placedOf("o-ä", n) }

func placedOf(order string, n int) *message.Message {
	msg := message.NewMessage(fmt.Sprintf("0198c0de-0000-7000-8000-%012d", n), fmt.Appendf(nil, "%d", n))
	msg.Metadata = message.Metadata{outbox.MetadataAggregateType: "order", outbox.MetadataAggregateID: order}
	return msg
}

// ways are all kinds of transactions, as a use of a publisher.
func (s *shop) ways() map[string]func(ctx context.Context, use func(message.Publisher) error) error {
	return map[string]func(context.Context, func(message.Publisher) error) error{
		"pgx": func(ctx context.Context, use func(message.Publisher) error) error {
			return s.withPGX(func(tx pgx.Tx) error { return use(outbox.NewPublisher(ctx, tx)) })
		},
		"database/sql": func(ctx context.Context, use func(message.Publisher) error) error {
			return s.withSQL(func(tx *sql.Tx) error { return use(outbox.NewPublisherSQL(ctx, tx)) })
		},
		"lib/pq": func(ctx context.Context, use func(message.Publisher) error) error {
			return s.withDB(s.pq, func(tx *sql.Tx) error { return use(outbox.NewPublisherSQL(ctx, tx)) })
		},
	}
}

// awkward are messages whose payloads and metadata are easy to lose.
func awkward() []*message.Message {
	binary := strings.Repeat("\x00\xff\"\\{},NULL'\n€", 3)
	plain := placed(1)
	plain.Metadata.Set(outbox.MetadataEventType, "shop.order.placed.v1")
	odd := message.NewMessage("not a uuid: \"ä\\", message.Payload(binary))
	odd.Metadata = message.Metadata{
		outbox.MetadataAggregateType: `ty"pe\`, outbox.MetadataAggregateID: "{o,NULL}", outbox.MetadataPartitionKey: binary,
		binary: binary, "empty": "", "": "no name", "ce_id": "another", outbox.MetadataEventType: "\x00\xff",
	}
	null, empty := placed(3), placed(4)
	null.Payload, empty.Payload = nil, message.Payload{}
	return []*message.Message{plain, odd, null, empty}
}

func TestMessagesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broker := newBroker(t, "orders")
	var want []*message.Message
	for _, way := range s.ways() {
		require.NoError(t, way(t.Context(), func(p message.Publisher) error { return p.Publish("orders", awkward()...) }))
		want = append(want, awkward()...)
	}
	s.relay(broker)
	subscriber, err := kafka.NewSubscriber(broker, kafka.SubscriberConfig{Group: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(t.Context(), "orders")
	require.NoError(t, err)

	// What is of one aggregate comes in order; the rest meets in any.
	got := map[string][]*message.Message{}
	for range want {
		select {
		case msg := <-messages:
			got[msg.Metadata[outbox.MetadataAggregateID]] = append(got[msg.Metadata[outbox.MetadataAggregateID]], msg)
			msg.Ack()
		case <-time.After(60 * time.Second):
			require.Fail(t, "messages are missing", "got %v", got)
		}
	}
	for _, w := range want {
		id := w.Metadata[outbox.MetadataAggregateID]
		require.NotEmpty(t, got[id])
		g := got[id][0]
		got[id] = got[id][1:]
		assert.Equal(t, w.UUID, g.UUID)
		assert.Equal(t, w.Payload, g.Payload, "nil stays nil, empty empty")
		metadata := maps.Clone(w.Metadata)
		delete(metadata, outbox.MetadataPartitionKey) // has become the key
		assert.Equal(t, metadata, g.Metadata)
	}
}

func TestAllPublishersWriteOneRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, way := range s.ways() {
		require.NoError(t, way(t.Context(), func(p message.Publisher) error { return p.Publish("orders", awkward()...) }))
	}
	rows, err := s.pool.Query(t.Context(), `
		SELECT count(*), aggregate_type, aggregate_id, event_type, topic, partition_key, payload
		FROM outbox_events
		GROUP BY shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers, status, attempts
		ORDER BY min(seq)`)
	require.NoError(t, err)
	type row struct {
		Times                    int
		Aggregate, Of, Type, Top string
		Key, Payload             []byte
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	require.NoError(t, err)
	odd := awkward()[1]
	assert.Equal(t, []row{
		{3, "order", "o-ä", "shop.order.placed.v1", "orders", []byte("o-ä"), []byte("1")},
		{3, `ty"pe\`, "{o,NULL}", "\uFFFD\uFFFD", "orders", []byte(odd.Metadata[outbox.MetadataPartitionKey]), odd.Payload},
		{3, "order", "o-ä", "", "orders", []byte("o-ä"), nil},
		{3, "order", "o-ä", "", "orders", []byte("o-ä"), []byte{}},
	}, got)
	var ids int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT count(DISTINCT id) FROM outbox_events`).Scan(&ids))
	assert.Equal(t, 6, ids, "a UUID is the row's id; what is none gets one each time")
}

func TestPublishIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	boom := errors.New("boom")
	for name, way := range s.ways() {
		require.ErrorIs(t, way(t.Context(), func(p message.Publisher) error {
			require.NoError(t, p.Publish("orders", placed(1)))
			return boom
		}), boom)
		assert.Zero(t, s.rows(), name)
	}
	for _, way := range s.ways() {
		require.NoError(t, way(t.Context(), func(p message.Publisher) error {
			return errors.Join(p.Publish("orders", placed(1)), p.Publish("orders"), p.Publish("orders", placed(2), placed(3)))
		}))
	}
	assert.Equal(t, 3*3, s.rows())
}

func TestTenThousandMessagesInOneCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const n, orders = 10_000, 100
	for name, way := range s.ways() {
		messages := make([]*message.Message, n)
		for i := range messages {
			messages[i] = placedOf(fmt.Sprint(name, "-", i%orders), i)
		}
		require.NoError(t, way(t.Context(), func(p message.Publisher) error { return p.Publish("orders", messages...) }))
	}
	var rows, statements, disordered int
	require.NoError(t, s.pool.QueryRow(t.Context(), `
		SELECT count(*), count(DISTINCT (xmin::text, cmin::text)), count(*) FILTER (WHERE n <> before + $1)
		FROM (
			SELECT xmin, cmin, convert_from(payload, 'UTF8')::integer AS n,
				lag(convert_from(payload, 'UTF8')::integer, 1, convert_from(payload, 'UTF8')::integer - $1) OVER (PARTITION BY aggregate_id ORDER BY seq) AS before
			FROM outbox_events) AS x`, orders).Scan(&rows, &statements, &disordered))
	assert.Equal(t, 3*n, rows)
	assert.Equal(t, 3, statements, "one statement each")
	assert.Zero(t, disordered)
}

func TestBadMessagesChangeNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	spoil := func(change func(*message.Message)) *message.Message {
		msg := placed(2)
		change(msg)
		return msg
	}
	bad := map[string]*message.Message{
		"it is nil":                              nil,
		"the UUID is empty":                      spoil(func(m *message.Message) { m.UUID = "" }),
		"metadata aggregate_type is missing":     spoil(func(m *message.Message) { delete(m.Metadata, outbox.MetadataAggregateType) }),
		"metadata aggregate_id is missing":       spoil(func(m *message.Message) { m.Metadata.Set(outbox.MetadataAggregateID, "") }),
		`the aggregate id "a\x00" is not UTF-8`:  spoil(func(m *message.Message) { m.Metadata.Set(outbox.MetadataAggregateID, "a\x00") }),
		`the aggregate type "\xff" is not UTF-8`: spoil(func(m *message.Message) { m.Metadata.Set(outbox.MetadataAggregateType, "\xff") }),
	}
	tries := 0
	for name, way := range s.ways() {
		require.NoError(t, way(t.Context(), func(p message.Publisher) error {
			for want, msg := range bad {
				err := p.Publish("orders", placed(1), msg)
				require.ErrorContains(t, err, "append to outbox: ", name)
				require.ErrorContains(t, err, "message 1", name)
				require.ErrorContains(t, err, want, name)
			}
			require.ErrorContains(t, p.Publish("", placed(1)), "the topic is empty")
			require.ErrorIs(t, p.Publish("or ders", placed(1)), wsql.ErrInvalidTopicName)
			assert.Equal(t, tries, s.rows())
			tries++
			return p.Publish("orders", placed(3)) // the transaction goes on
		}))
		assert.Equal(t, tries, s.rows(), name)
	}
	require.NoError(t, s.ways()["pgx"](t.Context(), func(p message.Publisher) error {
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Publish("orders", placed(1)), wsql.ErrPublisherClosed)
		require.ErrorIs(t, p.Publish("orders"), wsql.ErrPublisherClosed)
		return p.Close()
	}))
	assert.Equal(t, tries, s.rows())
}

func TestContextsThatHaveEndedWriteNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	why := errors.New("the request was given up")
	over, end := context.WithCancelCause(t.Context())
	end(why)
	for name, way := range s.ways() {
		require.NoError(t, way(over, func(p message.Publisher) error {
			require.ErrorIs(t, p.Publish("orders", placed(1)), why, name)
			return nil
		}))
		require.NoError(t, way(t.Context(), func(p message.Publisher) error {
			late := placed(2)
			late.SetContext(over)
			require.ErrorIs(t, p.Publish("orders", placed(1), late), why, name)
			return nil
		}), name)
	}
	assert.Zero(t, s.rows())
}

// A publisher that waits for a lock stops waiting when its context, or that of a
// message, ends.
func TestContextsEndTheWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	holder, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, outbox.NewPublisher(t.Context(), holder).Publish("orders", placed(1)))
	for name, way := range s.ways() {
		for _, ofMessage := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			msg, own := placed(2), ctx
			if ofMessage {
				msg.SetContext(ctx)
				own = t.Context()
			}
			done := make(chan error, 1)
			go func() {
				done <- way(own, func(p message.Publisher) error { return p.Publish("orders", msg) })
			}()
			s.waiting("%s, context of the message: %t", name, ofMessage)
			cancel()
			require.Error(t, <-done)
		}
	}
	require.NoError(t, holder.Commit(t.Context()))
	assert.Equal(t, 1, s.rows())
}

// Whoever commits later has the higher numbers, whoever began first.
func TestRacingTransactionsAreOrderedByCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broker := newBroker(t, "orders")
	for name, way := range s.ways() {
		order := "raced by " + name
		var second chan error
		require.NoError(t, way(t.Context(), func(p message.Publisher) error {
			require.NoError(t, p.Publish("orders", placedOf(order, 1), placedOf("other-"+name, 1)))
			second = make(chan error, 1)
			go func() {
				second <- way(t.Context(), func(p message.Publisher) error { return p.Publish("orders", placedOf(order, 3)) })
			}()
			s.waiting()
			return p.Publish("orders", placedOf(order, 2))
		}))
		require.NoError(t, <-second)
		var got []string
		require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT array_agg(convert_from(payload, 'UTF8') ORDER BY seq) FROM outbox_events
			WHERE aggregate_id = $1`, order).Scan(&got))
		assert.Equal(t, []string{"1", "2", "3"}, got, name)
	}
	// And so they are published.
	s.relay(broker)
	subscriber, err := kafka.NewSubscriber(broker, kafka.SubscriberConfig{Group: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	got := map[string]string{}
	for range 3 * 4 {
		select {
		case msg := <-messages:
			got[msg.Metadata[outbox.MetadataAggregateID]] += string(msg.Payload)
			msg.Ack()
		case <-time.After(60 * time.Second):
			require.Fail(t, "messages are missing", "got %v", got)
		}
	}
	assert.Equal(t, map[string]string{
		"raced by pgx": "123", "raced by database/sql": "123", "raced by lib/pq": "123",
		"other-pgx": "1", "other-database/sql": "1", "other-lib/pq": "1",
	}, got)
}

// Transactions that lock the same aggregates in other orders do not deadlock, as
// each call takes all its locks in one order.
func TestCallsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const callers, each, orders = 8, 20, 30
	done := make(chan error, callers)
	for caller := range callers {
		way := s.ways()[[]string{"pgx", "database/sql", "lib/pq"}[caller%3]]
		go func() {
			var faults error
			for range each {
				messages := make([]*message.Message, orders)
				for i := range messages {
					order := i
					if caller%4 < 2 {
						order = orders - 1 - i
					}
					messages[i] = placedOf(fmt.Sprint("o-", order), i)
					messages[i].UUID = uuid.NewString()
				}
				faults = errors.Join(faults, way(t.Context(), func(p message.Publisher) error { return p.Publish("orders", messages...) }))
			}
			done <- faults
		}()
	}
	for range callers {
		assert.NoError(t, <-done)
	}
	assert.Equal(t, callers*each*orders, s.rows())
}
