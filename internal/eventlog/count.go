package eventlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
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
	q := query{args: []any{l.no, l.Partition.Partition, s.From}}
	sql := `SELECT FROM event_log WHERE topic_no = $1 AND partition = $2 AND "offset" >= $3`
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
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
}

// End returns the offset behind the last record that the log holds of a partition.
func End(ctx context.Context, db Querier, l Log) (end int64, err error) {
	rows, err := db.Query(ctx, `SELECT coalesce(max("offset") + 1, 0) FROM event_log WHERE topic_no = $1 AND partition = $2`, l.no, l.Partition.Partition)
	if err == nil {
		end, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return 0, fmt.Errorf("find the end of the event log: partition %d of %s: %w", l.Partition.Partition, l.Topic, err)
	}
	return end, nil
}
