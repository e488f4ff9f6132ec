package deadletter_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// bench is a store on a database of its own.
type bench struct {
	pool  *pgxpool.Pool
	store *deadletter.Store
	names []string // of the topics that there are
	reg   *prometheus.Registry
	wakes int
}

func setup(t testing.TB) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, migrate))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{pool: pool, names: []string{"marks", "dead_letters", "prod.events"}, reg: prometheus.NewRegistry()}
	b.store = deadletter.New(deadletter.Config{
		Pool: pool, Naming: topics.Naming{topics.ExecutionEvents: "prod.events"}, Registerer: b.reg,
		TopicNames: func(context.Context) ([]string, error) { return b.names, nil },
		Wake:       func() { b.wakes++ },
	})
	return b
}

func migrate(ctx context.Context, dsn string) error {
	if err := postgres.MigrateDSN(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, consumer text, id text)`)
	return err
}

var (
	topicID = [16]byte{1, 2, 3}
	start   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// letter makes one that failed n seconds after start, at offset n.
func letter(n int, change ...func(*middleware.Letter)) *middleware.Letter {
	at := start.Add(time.Duration(n) * time.Second)
	l := &middleware.Letter{
		Consumer: "billing", Group: "millrace-billing", Class: middleware.HandlerFault,
		Original: topics.Record{
			Topic: "marks", TopicID: topicID, Partition: 1, Offset: int64(n), Key: []byte("k"), Value: []byte(`{"n":1}`),
		},
		EventType: "example.mark.made.v1", Source: "/test", EventID: fmt.Sprint("e", n),
		Reason: fmt.Sprintf("no price for item %d", n), Error: "long", ErrorType: "*x", CauseType: "*y", Attempts: 5,
		FirstFailure: at.Add(-time.Second), LastFailure: at,
	}
	for _, c := range change {
		c(l)
	}
	return l
}

func (b *bench) file(t testing.TB, letters ...*middleware.Letter) {
	t.Helper()
	require.NoError(t, deadletter.File(t.Context(), b.pool, letters...))
}

// all returns every letter, the oldest failure first.
func (b *bench) all(t testing.TB, f deadletter.Filter) []deadletter.Letter {
	t.Helper()
	list, err := b.store.List(t.Context(), f, deadletter.Page{Size: 1000})
	require.NoError(t, err)
	out := make([]deadletter.Letter, 0, len(list.Letters))
	for i := len(list.Letters) - 1; i >= 0; i-- {
		out = append(out, list.Letters[i])
	}
	return out
}

func (b *bench) ids(t testing.TB) []string {
	t.Helper()
	var ids []string
	for _, l := range b.all(t, deadletter.Filter{}) {
		ids = append(ids, l.ID.String())
	}
	return ids
}

// sent returns the rows of the outbox as records, in their order.
func (b *bench) sent(t testing.TB) []topics.Record {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT topic, partition_key, payload, headers FROM outbox_events ORDER BY seq`)
	require.NoError(t, err)
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (topics.Record, error) {
		var r topics.Record
		var headers []byte
		if err := row.Scan(&r.Topic, &r.Key, &r.Value, &headers); err != nil {
			return r, err
		}
		var err error
		r.Headers, err = outbox.DecodeHeaders(headers)
		return r, err
	})
	require.NoError(t, err)
	return records
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func statuses(letters []deadletter.Letter) []deadletter.Status {
	out := []deadletter.Status{}
	for _, l := range letters {
		out = append(out, l.Status)
	}
	return out
}

func header(t testing.TB, r topics.Record, key string) string {
	t.Helper()
	value, ok := r.Header(key)
	assert.True(t, ok, key)
	return string(value)
}
