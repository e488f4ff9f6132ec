// Package eventlog owns the table event_log: the lasting copy of what went
// through the event topics, each record byte for byte with the place where it
// lay. Histories are listed from it, projections rebuilt, replays fed.
//
// # Ordering
//
// Records may be appended in any order. BySubject returns the events of one
// aggregate by their sequence, and events that carry none in the order of their
// partition.
//
// # Delivery and crash
//
// Append is idempotent by (topic, topic id, partition, offset): a batch that is
// delivered again after a crash adds nothing. An event that was published twice
// lies at two offsets and is kept twice, because the log is what happened;
// BySubject returns it once.
package eventlog

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/topics"
)

// Execer is the part of a transaction that Append needs.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Querier is the part of a pool or a transaction that BySubject needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const appendSQL = `
INSERT INTO event_log (topic, topic_id, partition, "offset", key, type, source, event_id, subject, sequence,
                       time, appended_at, headers, value)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::int4[], $4::int8[], $5::bytea[], $6::text[], $7::text[], $8::text[],
                     $9::text[], $10::int8[], $11::timestamptz[], $12::timestamptz[], $13::bytea[], $14::bytea[])
ON CONFLICT DO NOTHING`

// Append adds records to the log. Those that it has already are left as they
// are. A record that is no event is logged with what is known of it: its place,
// key, headers, value and time.
func Append(ctx context.Context, tx Execer, records []topics.Record) error {
	n := len(records)
	if n == 0 {
		return nil
	}
	var (
		topic, kind, source, id, subject = make([]string, n), make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
		topicID                          = make([][16]byte, n)
		partition                        = make([]int32, n)
		offset, sequence                 = make([]int64, n), make([]int64, n)
		key, headers, value              = make([][]byte, n), make([][]byte, n), make([][]byte, n)
		at, appended                     = make([]time.Time, n), make([]time.Time, n)
	)
	for i, r := range records {
		topic[i], topicID[i], partition[i], offset[i] = r.Topic, r.TopicID, r.Partition, r.Offset
		key[i], headers[i], value[i] = r.Key, EncodeHeaders(r.Headers), r.Value
		appended[i] = storable(r.Timestamp)
		at[i] = appended[i]
		env, err := topics.DecodeRecord(r)
		if err != nil {
			subject[i] = subjectOfKey(r.Key)
			continue
		}
		kind[i], source[i], id[i], sequence[i] = &env.Type, &env.Source, &env.ID, env.Sequence
		subject[i] = &env.Subject
		if env.Subject == "" {
			subject[i] = subjectOfKey(r.Key)
		}
		if !env.Time.IsZero() {
			at[i] = storable(env.Time)
		}
	}
	_, err := tx.Exec(ctx, appendSQL, topic, topicID, partition, offset, key, kind, source, id, subject, sequence,
		at, appended, headers, value)
	if err != nil {
		return fmt.Errorf("append %d records to the event log: %w", n, err)
	}
	return nil
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

// Cursor is a place in the history of one subject: behind the event that it
// names. The zero value is the beginning.
type Cursor struct {
	Sequence  int64
	TopicID   [16]byte
	Partition int32
	Offset    int64
}

// After returns the cursor behind all events up to the given sequence.
func After(sequence int64) Cursor {
	c := Cursor{Sequence: sequence, Partition: math.MaxInt32, Offset: math.MaxInt64}
	for i := range c.TopicID {
		c.TopicID[i] = 0xff
	}
	return c
}

// Entry is one row of the log.
type Entry struct {
	// Record is the record as it lay in the topic.
	Record topics.Record
	// RecordedAt is when it was copied.
	RecordedAt time.Time
}

// cursor returns the place behind the entry, given the sequence of its event.
func (e Entry) cursor(sequence int64) Cursor {
	r := e.Record
	return Cursor{Sequence: sequence, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset}
}

// A duplicate of an event has the same sequence, so the search for an earlier one
// touches only the few rows of that sequence.
const bySubjectSQL = `
SELECT topic, topic_id, partition, "offset", key, headers, value, appended_at, sequence, recorded_at
FROM event_log AS e
WHERE subject = $1 AND type IS NOT NULL
  AND (sequence, topic_id, partition, "offset") > ($2, $3, $4, $5)
  AND NOT EXISTS (
      SELECT 1 FROM event_log AS earlier
      WHERE earlier.subject = e.subject AND earlier.sequence = e.sequence
        AND earlier.source = e.source AND earlier.event_id = e.event_id
        AND (earlier.topic_id, earlier.partition, earlier."offset") < (e.topic_id, e.partition, e."offset"))
ORDER BY sequence, topic_id, partition, "offset"
LIMIT $6`

// BySubject returns up to limit events of one aggregate behind the cursor, by
// sequence and then by offset, each event once, and the cursor behind the last of
// them. Records that are no events are left out. When fewer than limit come back,
// there are no more for now.
func BySubject(ctx context.Context, db Querier, subject string, after Cursor, limit int) ([]Entry, Cursor, error) {
	if strings.IndexByte(subject, 0) >= 0 {
		return nil, after, nil // nothing can be stored under it
	}
	if after == (Cursor{}) {
		after.Sequence = math.MinInt64
	}
	rows, err := db.Query(ctx, bySubjectSQL, subject, after.Sequence, after.TopicID, after.Partition,
		after.Offset, limit)
	if err != nil {
		return nil, after, fmt.Errorf("read the events of %s: %w", subject, err)
	}
	defer rows.Close()
	var entries []Entry
	for rows.Next() {
		var (
			e        Entry
			headers  []byte
			sequence int64
		)
		r := &e.Record
		err := rows.Scan(&r.Topic, &r.TopicID, &r.Partition, &r.Offset, &r.Key, &headers, &r.Value, &r.Timestamp,
			&sequence, &e.RecordedAt)
		if err != nil {
			return nil, after, fmt.Errorf("read the events of %s: %w", subject, err)
		}
		if r.Headers, err = DecodeHeaders(headers); err != nil {
			return nil, after, fmt.Errorf("read the events of %s: offset %d of partition %d: %w",
				subject, r.Offset, r.Partition, err)
		}
		entries = append(entries, e)
		after = e.cursor(sequence)
	}
	if err := rows.Err(); err != nil {
		return nil, after, fmt.Errorf("read the events of %s: %w", subject, err)
	}
	return entries, after, nil
}

// Reader reads the event log of one database.
type Reader struct{ db Querier }

// NewReader returns a reader on the pool.
func NewReader(db Querier) Reader { return Reader{db} }

// Events is BySubject on the reader's database.
func (r Reader) Events(ctx context.Context, subject string, after Cursor, limit int) ([]Entry, Cursor, error) {
	return BySubject(ctx, r.db, subject, after, limit)
}
