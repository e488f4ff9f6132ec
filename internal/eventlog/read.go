package eventlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// Stretch is a part of one partition: the offsets from From on and below To.
type Stretch struct {
	// Topic is the name at the broker.
	Topic     string
	TopicID   [16]byte
	Partition int32
	From, To  int64
}

// readPage is how many records one statement of Read returns at most, so that no
// snapshot is held for as long as it takes to read a topic.
const readPage = 5000

const readSQL = `
SELECT "offset", key, headers, value, appended_at FROM event_log
WHERE topic_no = (SELECT no FROM event_log_topics WHERE topic = $1 AND topic_id = $2) AND partition = $3 AND "offset" >= $4 AND "offset" < $5
ORDER BY "offset" LIMIT $6`

// Read calls each for all records of the stretch, in the order of their offsets, as
// fast as that goes. It ends with the first error of each. What the log may keep
// of a record after the call is the record's own.
func Read(ctx context.Context, db Querier, s Stretch, each func(topics.Record) error) error {
	for s.From < s.To {
		n := 0
		rows, err := db.Query(ctx, readSQL, s.Topic, s.TopicID, s.Partition, s.From, s.To, readPage)
		if err != nil {
			return fmt.Errorf("read the event log: partition %d of %s: %w", s.Partition, s.Topic, err)
		}
		var fault error
		r := topics.Record{Topic: s.Topic, TopicID: s.TopicID, Partition: s.Partition}
		var headers []byte
		_, err = pgx.ForEachRow(rows, []any{&r.Offset, &r.Key, &headers, &r.Value, &r.Timestamp}, func() error {
			n++
			s.From = r.Offset + 1
			record := r
			if record.Headers, fault = DecodeHeaders(headers); fault != nil {
				fault = fmt.Errorf("read the event log: offset %d of partition %d of %s: %w", r.Offset, s.Partition, s.Topic, fault)
				return fault
			}
			// Scan makes new slices for each row, so that the record may be kept.
			fault = each(record)
			return fault
		})
		switch {
		case fault != nil:
			return fault
		case err != nil:
			return fmt.Errorf("read the event log: partition %d of %s: %w", s.Partition, s.Topic, err)
		case n < readPage:
			return nil
		}
	}
	return nil
}
