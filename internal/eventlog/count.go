package eventlog

import (
	"context"
	"fmt"
)

// Count returns how many records the filter chooses, or most when there are more. A
// most of 0 counts all. It reads what it counts, so without a most it lasts as long
// as the log is large.
func Count(ctx context.Context, db Querier, f Filter, most int64) (n int64, err error) {
	logs, err := Logs(ctx, db)
	if err != nil {
		return 0, err
	}
	for _, log := range logs {
		if !f.chooses(log) || most > 0 && n >= most {
			continue
		}
		one, err := f.count(ctx, db, log, most-n)
		if err != nil {
			return n, fmt.Errorf("count the event log: partition %d of %s: %w", log.Partition.Partition, log.Topic, err)
		}
		n += one
	}
	return n, nil
}

// count counts one partition, up to most if that is above 0.
func (f Filter) count(ctx context.Context, db Querier, l Log, most int64) (n int64, err error) {
	s := f.Vectors[l.Partition]
	if s.To != 0 && s.From >= s.To {
		return 0, nil
	}
	q := query{args: []any{l.Topic, l.TopicID, l.Partition.Partition, s.From}}
	sql := `SELECT FROM event_log WHERE topic = $1 AND topic_id = $2 AND partition = $3 AND "offset" >= $4`
	if s.To != 0 {
		sql += ` AND "offset" < ` + q.arg(s.To)
	}
	sql += f.times(&q)
	if wanted := f.wanted(&q); wanted != "" {
		sql += ` AND ` + wanted
	}
	if most > 0 {
		sql += ` LIMIT ` + q.arg(most)
	}
	rows, err := db.Query(ctx, `SELECT count(*) FROM (`+sql+`) AS chosen`, q.args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}
