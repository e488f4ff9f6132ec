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

	"github.com/millrace/millrace/topics"
)

// Querier is the part of a pool or a transaction that BySubject needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
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

// A copy of an event has the same sequence, so what the page begins with bounds the
// search for an earlier one too.
const bySubjectSQL = `
SELECT t.topic, t.topic_id, e.partition, e."offset", e.key, e.headers, e.value, e.appended_at, e.sequence, e.recorded_at
FROM event_log AS e JOIN event_log_topics AS t ON t.no = e.topic_no
WHERE e.subject = $1 AND e.type IS NOT NULL AND e.sequence >= $2
  AND (e.sequence, t.topic_id, e.partition, e."offset") > ($2, $3, $4, $5)
  AND NOT EXISTS (
      SELECT FROM event_log AS earlier JOIN event_log_topics AS et ON et.no = earlier.topic_no
      WHERE earlier.subject = e.subject AND earlier.sequence = e.sequence AND earlier.sequence >= $2
        AND earlier.source = e.source AND earlier.event_id = e.event_id
        AND (et.topic_id, earlier.partition, earlier."offset") < (t.topic_id, e.partition, e."offset"))
ORDER BY e.sequence, t.topic_id, e.partition, e."offset"
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
