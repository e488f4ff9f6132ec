package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/topics"
)

// Tx is the part of a pool or a transaction that is written through.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// Append adds records to the log. Those that it has already are left as they
// are. A record that is no event is logged with what is known of it: its place,
// key, headers, value and time.
func Append(ctx context.Context, tx Tx, records []topics.Record) error {
	return NewWriter().Append(ctx, tx, records)
}

// Writer appends to the log, and remembers what it has found out about topics and
// partitions. It is safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	numbers map[topicName]int16
	begins  map[partition]int64
}

// topicName is a topic as the broker knows it.
type topicName struct {
	id   [16]byte
	name string
}

// partition is a partition as the log knows it.
type partition struct {
	topic  int16
	number int32
}

// NewWriter returns a writer that knows nothing yet.
func NewWriter() *Writer {
	return &Writer{numbers: map[topicName]int16{}, begins: map[partition]int64{}}
}

// Append is Append for callers that do it often.
func (w *Writer) Append(ctx context.Context, tx Tx, records []topics.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := w.append(ctx, tx, records); err != nil {
		return fmt.Errorf("append %d records to the event log: %w", len(records), err)
	}
	return nil
}

func (w *Writer) append(ctx context.Context, tx Tx, records []topics.Record) error {
	numbers := make([]int16, len(records))
	first := map[partition]topics.Record{}
	for i, r := range records {
		no, err := w.number(ctx, tx, topicName{r.TopicID, r.Topic})
		if err != nil {
			return err
		}
		numbers[i] = no
		p := partition{no, r.Partition}
		if f, seen := first[p]; !seen || r.Offset < f.Offset {
			first[p] = r
		}
	}
	fresh := true
	for p, r := range first {
		if err := w.begin(ctx, tx, p, r); err != nil {
			return err
		}
		if fresh {
			// The owner of a partition is alone with it, so what is not there now does not
			// come in between.
			if err := tx.QueryRow(ctx, freshSQL, p.topic, p.number, r.Offset).Scan(&fresh); err != nil {
				return err
			}
		}
	}
	if fresh && !repeats(records) {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"event_log"}, columns, &source{records: records, numbers: numbers})
		return err
	}
	_, err := tx.Exec(ctx, appendSQL, arrays(records, numbers)...)
	return err
}

// repeats reports whether two records are at one place.
func repeats(records []topics.Record) bool {
	ascending := true
	for i := 1; i < len(records) && ascending; i++ {
		a, b := records[i-1], records[i]
		ascending = a.TopicID == b.TopicID && a.Partition == b.Partition && a.Offset < b.Offset
	}
	return !ascending // or not in order, which costs no more than looking
}

const (
	freshSQL = `SELECT NOT EXISTS (SELECT FROM event_log WHERE topic_no = $1 AND partition = $2 AND "offset" >= $3)`

	appendSQL = `
		INSERT INTO event_log ("offset", time, appended_at, sequence, partition, topic_no, key, type, source, event_id, subject, headers, value)
		SELECT * FROM unnest($1::int8[], $2::timestamptz[], $3::timestamptz[], $4::int8[], $5::int4[], $6::int2[], $7::bytea[],
			$8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[], $13::bytea[])
		ON CONFLICT DO NOTHING`

	findTopicSQL = `SELECT no FROM event_log_topics WHERE topic_id = $1 AND topic = $2`
	addTopicSQL  = `
		INSERT INTO event_log_topics (topic_id, topic) VALUES ($1, $2)
		ON CONFLICT (topic_id, topic) DO UPDATE SET topic = EXCLUDED.topic RETURNING no`

	findBeginSQL = `SELECT first_offset FROM event_log_partitions WHERE topic_no = $1 AND partition = $2`
	addBeginSQL  = `
		INSERT INTO event_log_partitions (topic_no, partition, first_offset, first_time) VALUES ($1, $2, $3, $4)
		ON CONFLICT (topic_no, partition) DO UPDATE SET first_offset = EXCLUDED.first_offset, first_time = EXCLUDED.first_time
		WHERE event_log_partitions.first_offset > EXCLUDED.first_offset`
)

// number returns the number of a topic, which it is given when it has none. Only
// what others have committed is remembered: what this transaction adds may come to
// nothing.
func (w *Writer) number(ctx context.Context, tx Tx, t topicName) (int16, error) {
	w.mu.Lock()
	no, known := w.numbers[t]
	w.mu.Unlock()
	if known {
		return no, nil
	}
	err := tx.QueryRow(ctx, findTopicSQL, t.id, t.name).Scan(&no)
	if errors.Is(err, pgx.ErrNoRows) {
		return no, tx.QueryRow(ctx, addTopicSQL, t.id, t.name).Scan(&no)
	}
	if err == nil {
		w.mu.Lock()
		w.numbers[t] = no
		w.mu.Unlock()
	}
	return no, err
}

// begin notes where the log of a partition begins, when that is new.
func (w *Writer) begin(ctx context.Context, tx Tx, p partition, first topics.Record) error {
	w.mu.Lock()
	begins, known := w.begins[p]
	w.mu.Unlock()
	if known && begins <= first.Offset {
		return nil
	}
	err := tx.QueryRow(ctx, findBeginSQL, p.topic, p.number).Scan(&begins)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && begins > first.Offset:
		_, err = tx.Exec(ctx, addBeginSQL, p.topic, p.number, first.Offset, storable(first.Timestamp))
	case err == nil:
		w.mu.Lock()
		w.begins[p] = begins
		w.mu.Unlock()
	}
	return err
}

var columns = []string{
	"offset", "time", "appended_at", "sequence", "partition", "topic_no", "key", "type", "source", "event_id", "subject", "headers", "value",
}

// row is a record as a row of the log.
type row struct {
	offset                       int64
	time, appended               time.Time
	sequence                     int64
	key                          []byte
	kind, source, event, subject *string
	headers, value               []byte
}

func rowOf(r topics.Record) row {
	at := row{offset: r.Offset, appended: storable(r.Timestamp), key: r.Key, headers: EncodeHeaders(r.Headers), value: r.Value}
	at.time = at.appended
	env, err := topics.DecodeRecord(r)
	if err != nil {
		at.subject = subjectOfKey(r.Key)
		return at
	}
	at.kind, at.source, at.event, at.sequence, at.subject = &env.Type, &env.Source, &env.ID, env.Sequence, &env.Subject
	if env.Subject == "" {
		at.subject = subjectOfKey(r.Key)
	}
	if !env.Time.IsZero() {
		at.time = storable(env.Time)
	}
	return at
}

// source feeds records to COPY.
type source struct {
	records []topics.Record
	numbers []int16
	next    int
}

func (s *source) Next() bool { s.next++; return s.next <= len(s.records) }
func (s *source) Err() error { return nil }
func (s *source) Values() ([]any, error) {
	i := s.next - 1
	r := rowOf(s.records[i])
	return []any{r.offset, r.time, r.appended, r.sequence, s.records[i].Partition, s.numbers[i], r.key,
		r.kind, r.source, r.event, r.subject, r.headers, r.value}, nil
}

// arrays are the parameters of appendSQL.
func arrays(records []topics.Record, numbers []int16) []any {
	n := len(records)
	var (
		offset, sequence             = make([]int64, n), make([]int64, n)
		at, appended                 = make([]time.Time, n), make([]time.Time, n)
		partition                    = make([]int32, n)
		key, headers, value          = make([][]byte, n), make([][]byte, n), make([][]byte, n)
		kind, source, event, subject = make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	)
	for i, record := range records {
		r := rowOf(record)
		offset[i], at[i], appended[i], sequence[i], partition[i], key[i] = r.offset, r.time, r.appended, r.sequence, record.Partition, r.key
		kind[i], source[i], event[i], subject[i], headers[i], value[i] = r.kind, r.source, r.event, r.subject, r.headers, r.value
	}
	return []any{offset, at, appended, sequence, partition, numbers, key, kind, source, event, subject, headers, value}
}

// subjectOfKey returns the key as a subject, where an event names none: the key
// is the id of the aggregate too. Nil where the key cannot be stored as text.
func subjectOfKey(key []byte) *string {
	s := string(key)
	if s == "" || len(s) > topics.MaxAttributeBytes || strings.IndexByte(s, 0) >= 0 || strings.ToValidUTF8(s, "") != s {
		return nil
	}
	return &s
}

// storable moves a time that PostgreSQL cannot hold to the nearest year that it
// can. A producer may put any 64-bit number of milliseconds into a record.
func storable(t time.Time) time.Time {
	switch y := t.UTC().Year(); {
	case y < 1:
		return time.Time{}
	case y > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}
