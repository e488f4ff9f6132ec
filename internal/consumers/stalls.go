package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LongStall is a partition that has been stalled for long.
type LongStall struct {
	Consumer, Group, Topic string
	Partition              int32
	State                  State
	Instance               string
	Cause                  Cause
	Offset                 *int64
	Since                  time.Time
	Tries                  int
}

// What counts is what the present, or else the last, owner has said.
const longStalls = `
SELECT consumer, consumer_group, topic, partition, state, instance, coalesce(cause_class, ''), coalesce(cause_code, ''),
    coalesce(cause_error, ''), blocked_offset, stalled_since, tries
FROM (
    SELECT DISTINCT ON (r.consumer, r.topic, r.partition) r.*, c.consumer_group
    FROM consumer_reports r JOIN consumer_instances i USING (instance) JOIN consumers c ON c.name = r.consumer AND c.topic = r.topic
    ORDER BY r.consumer, r.topic, r.partition, (i.seen_at >= clock_timestamp() - make_interval(secs => $2)) DESC, r.epoch DESC, r.reported_at DESC
) AS last
WHERE state <> 'running' AND stalled_since <= clock_timestamp() - make_interval(secs => $1)
ORDER BY stalled_since LIMIT $3`

// LongStalls returns the partitions that have been stalled for at least that long,
// the longest first. A stall goes on when its owner dies, and for the next one that
// stalls at the same record.
func LongStalls(ctx context.Context, tx pgx.Tx, atLeast time.Duration, limit int) ([]LongStall, error) {
	rows, err := tx.Query(ctx, longStalls, atLeast.Seconds(), StaleAfter.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("look for stalled partitions: %w", err)
	}
	stalls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (LongStall, error) {
		var s LongStall
		err := row.Scan(&s.Consumer, &s.Group, &s.Topic, &s.Partition, &s.State, &s.Instance, &s.Cause.Class, &s.Cause.Code,
			&s.Cause.Error, &s.Offset, &s.Since, &s.Tries)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for stalled partitions: %w", err)
	}
	return stalls, nil
}
