package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
//
// Nobody else may append records of the same partitions meanwhile; the owner of a
// partition is alone with it while its position is locked.
func Append(ctx context.Context, tx Tx, records []topics.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := appendAll(ctx, tx, records); err != nil {
		return fmt.Errorf("append %d records to the event log: %w", len(records), err)
	}
	return nil
}

// place is a partition of a topic as the broker knows it.
type place struct {
	topic     [16]byte
	name      string
	partition int32
}

func appendAll(ctx context.Context, tx Tx, records []topics.Record) error {
	first := map[place]topics.Record{}
	for _, r := range records {
		p := place{r.TopicID, r.Topic, r.Partition}
		if f, seen := first[p]; !seen || r.Offset < f.Offset {
			first[p] = r
		}
	}
	known := make(map[place]int16, len(first))
	fresh := !repeats(records)
	for p, r := range first {
		no, isFresh, err := locate(ctx, tx, r)
		if err != nil {
			return err
		}
		known[p], fresh = no, fresh && isFresh
	}
	numbers := make([]int16, len(records))
	for i, r := range records {
		numbers[i] = known[place{r.TopicID, r.Topic, r.Partition}]
	}
	if fresh {
		// What is not there now does not come in between: see Append.
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"event_log"}, columns, &source{records: records, numbers: numbers})
		return err
	}
	_, err := tx.Exec(ctx, appendSQL, arrays(records, numbers)...)
	return err
}

// locate returns the number of the topic of a record, which is the first of its
// partition in a batch, and whether the log holds nothing of the partition from there
// on. It notes where the log of the partition begins, when that is new. Nothing is
// remembered from one batch to the next: what a transaction adds may come to nothing.
func locate(ctx context.Context, tx Tx, r topics.Record) (no int16, fresh bool, err error) {
	var begins *int64
	err = tx.QueryRow(ctx, locateSQL, r.TopicID, r.Topic, r.Partition, r.Offset).Scan(&no, &begins, &fresh)
	if errors.Is(err, pgx.ErrNoRows) {
		fresh = true
		err = tx.QueryRow(ctx, addTopicSQL, r.TopicID, r.Topic).Scan(&no)
	}
	if err == nil && (begins == nil || *begins > r.Offset) {
		_, err = tx.Exec(ctx, beginSQL, no, r.Partition, r.Offset, storable(r.Timestamp))
	}
	return no, fresh, err
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
	locateSQL = `
		SELECT t.no, p.first_offset, NOT EXISTS (SELECT FROM event_log WHERE topic_no = t.no AND partition = $3 AND "offset" >= $4)
		FROM event_log_topics t LEFT JOIN event_log_partitions p ON p.topic_no = t.no AND p.partition = $3
		WHERE t.topic_id = $1 AND t.topic = $2`

	// Who adds the same topic at the same time waits, and gets its number.
	addTopicSQL = `
		INSERT INTO event_log_topics (topic_id, topic) VALUES ($1, $2)
		ON CONFLICT (topic_id, topic) DO UPDATE SET topic = EXCLUDED.topic RETURNING no`

	beginSQL = `
		INSERT INTO event_log_partitions (topic_no, partition, first_offset, first_time) VALUES ($1, $2, $3, $4)
		ON CONFLICT (topic_no, partition) DO UPDATE SET first_offset = EXCLUDED.first_offset, first_time = EXCLUDED.first_time
		WHERE event_log_partitions.first_offset > EXCLUDED.first_offset`

	appendSQL = `
		INSERT INTO event_log ("offset", time, appended_at, sequence, partition, topic_no, key, type, source, event_id, subject, headers, value)
		SELECT * FROM unnest($1::int8[], $2::timestamptz[], $3::timestamptz[], $4::int8[], $5::int4[], $6::int2[], $7::bytea[],
			$8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[], $13::bytea[])
		ON CONFLICT DO NOTHING`
)

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
