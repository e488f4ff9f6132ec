package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

func TestHeadersSurvive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.Custom(func(t *rapid.T) topics.Header {
			h := topics.Header{Key: string(rapid.SliceOf(rapid.Byte()).Draw(t, "key"))}
			if rapid.Bool().Draw(t, "set") {
				h.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
				if h.Value == nil {
					h.Value = []byte{}
				}
			}
			return h
		})
		in := rapid.SliceOf(header).Draw(t, "headers")
		out, err := DecodeHeaders(EncodeHeaders(in))
		require.NoError(t, err)
		require.Len(t, out, len(in))
		for i := range in {
			require.Equal(t, in[i], out[i])
			require.Equal(t, in[i].Value == nil, out[i].Value == nil)
		}
	})
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add(EncodeHeaders([]topics.Header{{Key: "a", Value: []byte("b")}, {Key: "a"}}))
	f.Add([]byte{})
	f.Add([]byte{1, 255, 255, 255, 254})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := DecodeHeaders(b)
		if err == nil {
			assert.Equal(t, b, EncodeHeaders(headers))
		}
	})
}

func TestAppendRejectsBadEntries(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, next: map[string]int{}}
	for name, spoil := range map[string]func(*Entry){
		"aggregate type":          func(e *Entry) { e.AggregateType = "" },
		"aggregate id":            func(e *Entry) { e.AggregateID = "" },
		"topic":                   func(e *Entry) { e.Topic = "" },
		"id":                      func(e *Entry) { e.Envelope.ID = "" },
		"aggregate type \"a\\x00": func(e *Entry) { e.AggregateType = "a\x00" },
		"aggregate id \"\\xff":    func(e *Entry) { e.AggregateID = "\xff" },
		"topic \"\\x00":           func(e *Entry) { e.Topic = "\x00" },
	} {
		e := b.entry("a")
		spoil(&e)
		err := Append(t.Context(), nil, b.entry("b"), e)
		require.Error(t, err, name)
		assert.ErrorContains(t, err, "entry 1")
		assert.ErrorContains(t, err, name)
	}
	assert.NoError(t, Append(t.Context(), nil), "nothing to do")
}

func TestAppendedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	raw := topics.Record{Key: []byte{0, 0xff}, Headers: []topics.Header{{Key: "x\xff", Value: []byte{0}}, {Key: "x\xff"}}}
	e := b.entry("agg")
	b.commit(e,
		Entry{AggregateType: "dead", AggregateID: "agg", Topic: topics.DeadLetters, Record: &raw, Envelope: topics.Envelope{ID: "not a uuid", Type: "for\x00eign\xff"}},
		Entry{AggregateType: "test", AggregateID: "other", Topic: "t", Envelope: e.Envelope, Key: []byte("k")})
	rows, err := b.pool.Query(t.Context(), `SELECT id::text, shard, aggregate_type, event_type, topic, partition_key, payload, headers, status,
		get_byte(sha256(convert_to(aggregate_id, 'UTF8')), 0) % 16 FROM outbox_events ORDER BY seq`)
	require.NoError(t, err)
	type stored struct {
		ID                     string
		Shard                  int
		Aggregate, Type, Topic string
		Key, Payload, Headers  []byte
		Status                 string
		SQLShard               int
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	require.NoError(t, err)
	require.Len(t, got, 3)
	for _, r := range got {
		assert.Equal(t, r.SQLShard, r.Shard, "SQL and Go agree on the shard")
		assert.Equal(t, "PENDING", r.Status)
	}
	assert.Equal(t, e.Envelope.ID, got[0].ID)
	assert.Equal(t, "agg", string(got[0].Key))
	assert.Equal(t, "execution_events", got[0].Topic, "the logical name")
	headers, err := DecodeHeaders(got[0].Headers)
	require.NoError(t, err)
	id, _ := topics.Record{Headers: headers}.Header("ce_id")
	assert.Equal(t, e.Envelope.ID, string(id))
	assert.Equal(t, "for\uFFFDeign\uFFFD", got[1].Type, "no reason to refuse the record")
	assert.Equal(t, raw.Key, got[1].Key)
	assert.Nil(t, got[1].Payload, "a tombstone stays one")
	assert.Equal(t, EncodeHeaders(raw.Headers), got[1].Headers)
	assert.Equal(t, "k", string(got[2].Key))
}

func TestAppendKeepsTheOrderOfEntries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(2000, "a", "b", "c")
	var disordered int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM (
		SELECT split_part(convert_from(payload, 'UTF8'), ':', 2)::integer AS n,
			lag(split_part(convert_from(payload, 'UTF8'), ':', 2)::integer, 1, 0) OVER (PARTITION BY aggregate_id ORDER BY seq) AS before
		FROM outbox_events) x WHERE n <> before + 1`).Scan(&disordered))
	assert.Zero(t, disordered)
}

func TestAppendIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	boom := errors.New("boom")
	require.ErrorIs(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, Append(ctx, tx, b.entry("a")))
		return boom
	}), boom)
	assert.Zero(t, b.count("PENDING"))
}

func TestLockAggregateSerialises(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, LockAggregate(t.Context(), tx, "a"))
	other := "b"
	for i := 0; LockBucket(other) == LockBucket("a"); i++ {
		other = fmt.Sprint("b", i)
	}
	require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error { return LockAggregate(ctx, tx, other) }))
	second := make(chan error, 1)
	go func() {
		second <- postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error { return LockAggregate(ctx, tx, "a") })
	}()
	b.eventually(func() bool {
		var waiting int
		err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&waiting)
		return err == nil && waiting == 1
	})
	assert.Empty(t, second)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-second)
}

func TestStorable(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a\uFFFDb\uFFFD", storable("a\x00b\xff"))
	long := storable(strings.Repeat("€", 1000))
	assert.LessOrEqual(t, len(long), maxErrorBytes)
	assert.Equal(t, strings.Repeat("€", len(long)/3), long)
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	c := Config{}.withDefaults()
	var got []time.Duration
	for n := 1; n <= 8; n++ {
		got = append(got, c.retryDelay(n)/time.Second)
	}
	assert.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}, got)
}
