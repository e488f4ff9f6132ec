package report

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/trigger"
)

// Stall is a trigger, or a partition of one, that has stood for longer than its definition
// allows for.
type Stall struct {
	Trigger string
	// Topic is empty where it is a member, or all of the trigger, that stands.
	Topic     string
	Partition int32
	// Offset is that of the message that cannot be taken.
	Offset   int64
	Owner    string
	State    trigger.State
	Cause    trigger.Cause
	Since    time.Time
	Attempts int
}

// What a member said of itself counts until somebody says that it runs, also while it goes
// from one process to another; and a trigger stands as well when no process has any of its
// members.
const longStalls = `
WITH live AS (
    SELECT m.uid FROM trigger_members m JOIN leases l ON l.name = m.lease
    WHERE l.expires_at > clock_timestamp() - interval '1 minute'
), failing AS (
    SELECT DISTINCT ON (uid) trigger, '' AS topic, 0 AS partition, -1::bigint AS position, owner, 'error' AS state, cause, failing_since AS since, attempts
    FROM trigger_members m
    WHERE failing_since <= clock_timestamp() - alert_after AND uid IN (SELECT uid FROM live)
    ORDER BY uid, failing_since
), unowned AS (
    SELECT trigger, '', 0, -1::bigint, max(m.owner), 'unowned', NULL::jsonb, max(l.expires_at) AS since, 0
    FROM trigger_members m JOIN leases l ON l.name = m.lease
    WHERE uid NOT IN (SELECT uid FROM live)
    GROUP BY uid, trigger HAVING max(l.expires_at) <= clock_timestamp() - min(alert_after)
), stalled AS (
    SELECT m.trigger, p.topic, p.partition, p.position, m.owner, 'error', p.cause, p.stalled_since AS since, p.attempts
    FROM trigger_partitions p JOIN trigger_members m USING (uid, member)
    WHERE p.stalled_since <= clock_timestamp() - m.alert_after AND uid IN (SELECT uid FROM live)
)
SELECT * FROM (SELECT * FROM failing UNION ALL SELECT * FROM unowned UNION ALL SELECT * FROM stalled) AS all_of_them
ORDER BY since LIMIT $1`

// LongStalls returns what has stood for longer than its trigger's alert_after, the longest
// first. It goes on when the owner dies, and for the next one that finds the same.
func LongStalls(ctx context.Context, tx pgx.Tx, limit int) ([]Stall, error) {
	rows, err := tx.Query(ctx, longStalls, limit)
	if err != nil {
		return nil, fmt.Errorf("look for triggers that stand: %w", err)
	}
	stalls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Stall, error) {
		var s Stall
		var cause []byte
		err := row.Scan(&s.Trigger, &s.Topic, &s.Partition, &s.Offset, &s.Owner, &s.State, &cause, &s.Since, &s.Attempts)
		if err == nil && cause != nil {
			err = json.Unmarshal(cause, &s.Cause)
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for triggers that stand: %w", err)
	}
	return stalls, nil
}
