package eventlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// Moment is a place in the log by time: that of the record before which a search goes
// on. The zero value is behind the newest.
type Moment struct {
	At        time.Time
	TopicNo   int16
	Partition int32
	Offset    int64
}

// Search returns up to limit events that the filter chooses, the newest first by their
// own time, before a moment, and the moment of the last of them. When fewer than limit
// come back there are no more. Records that are no events are left out. Vectors are
// not looked at.
//
// A search by subject, by one type, or within a short time is served by an index;
// others look at the log from the newest event on until they have found enough.
func Search(ctx context.Context, db Querier, f Filter, before Moment, limit int) ([]Entry, Moment, error) {
	names, err := topicNumbers(ctx, db)
	if err != nil {
		return nil, before, fmt.Errorf("search the event log: %w", err)
	}
	q := query{}
	where := `type IS NOT NULL`
	if len(f.Topics) > 0 {
		var numbers []int16
		for no, t := range names {
			if slices.Contains(f.Topics, t.name) {
				numbers = append(numbers, no)
			}
		}
		where += ` AND topic_no = ANY(` + q.arg(numbers) + `)`
	}
	where += f.times(&q)
	if before != (Moment{}) {
		where += fmt.Sprintf(` AND (time, topic_no, partition, "offset") < (%s, %s, %s, %s)`,
			q.arg(before.At), q.arg(before.TopicNo), q.arg(before.Partition), q.arg(before.Offset))
	}
	if wanted := f.wanted(&q); wanted != "" {
		where += ` AND ` + wanted
	}
	// Planned for what is asked for: one plan for all filters serves none of them.
	args := append([]any{pgx.QueryExecModeExec}, q.args...)
	rows, err := db.Query(ctx, `
		SELECT topic_no, partition, "offset", time, key, headers, value, appended_at, recorded_at FROM event_log
		WHERE `+where+fmt.Sprintf(` ORDER BY time DESC, topic_no DESC, partition DESC, "offset" DESC LIMIT %d`, limit), args...)
	if err != nil {
		return nil, before, fmt.Errorf("search the event log: %w", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		var e Entry
		var headers []byte
		r := &e.Record
		err := row.Scan(&before.TopicNo, &r.Partition, &r.Offset, &before.At, &r.Key, &headers, &r.Value, &r.Timestamp, &e.RecordedAt)
		if err == nil {
			r.Headers, err = DecodeHeaders(headers)
		}
		t := names[before.TopicNo]
		r.Topic, r.TopicID = t.name, t.id
		before.Partition, before.Offset = r.Partition, r.Offset
		return e, err
	})
	if err != nil {
		return nil, before, fmt.Errorf("search the event log: %w", err)
	}
	return entries, before, nil
}

// topicName is a topic as the broker knows it.
type topicName struct {
	id   [16]byte
	name string
}

func topicNumbers(ctx context.Context, db Querier) (map[int16]topicName, error) {
	rows, err := db.Query(ctx, `SELECT no, topic, topic_id FROM event_log_topics`)
	if err != nil {
		return nil, err
	}
	names := map[int16]topicName{}
	var no int16
	var t topicName
	_, err = pgx.ForEachRow(rows, []any{&no, &t.name, &t.id}, func() error {
		names[no] = t
		return nil
	})
	return names, err
}

// Search is Search on the reader's database.
func (r Reader) Search(ctx context.Context, f Filter, before Moment, limit int) ([]Entry, Moment, error) {
	return Search(ctx, r.db, f, before, limit)
}

// Envelope is the event of an entry; an error means that the record is none.
func (e Entry) Envelope() (topics.Envelope, error) { return topics.DecodeRecord(e.Record) }
