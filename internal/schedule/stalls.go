package schedule

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

const longStallsSQL = `
	SELECT * FROM (
		SELECT DISTINCT ON (s.trigger_uid) s.trigger_id, 'error' AS state, f.cause, f.since, f.attempt
		FROM schedule_firings f JOIN schedules s USING (trigger_uid)
		WHERE f.status = 'due' AND f.cause ->> 'code' <> 'overlap' AND f.since <= ` + nowSQL + ` - s.alert_after AND s.gone_at IS NULL
		ORDER BY s.trigger_uid, f.since
	) AS failing
	UNION ALL
	SELECT trigger_id, 'unowned', NULL, due_at, 0 FROM schedules WHERE due_at <= ` + nowSQL + ` - alert_after
	ORDER BY since LIMIT $2`

// LongStalls returns the triggers of which a firing could not be made, or whose times nobody
// has looked at, for longer than their alert_after; the longest first.
func (s *Store) LongStalls(ctx context.Context, tx pgx.Tx, limit int) ([]report.Stall, error) {
	rows, err := tx.Query(ctx, longStallsSQL, s.skew, limit)
	if err != nil {
		return nil, fmt.Errorf("look for schedules that stand: %w", err)
	}
	stalls, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (report.Stall, error) {
		x := report.Stall{Offset: -1, Cause: trigger.Cause{Code: "unowned", Message: "no process looks at its times"}}
		var cause []byte
		err := r.Scan(&x.Trigger, &x.State, &cause, &x.Since, &x.Attempts)
		if err == nil && cause != nil {
			err = json.Unmarshal(cause, &x.Cause)
		}
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for schedules that stand: %w", err)
	}
	return stalls, nil
}

// LongStalls is that of a store that nothing else is asked of.
func LongStalls(ctx context.Context, tx pgx.Tx, limit int) ([]report.Stall, error) {
	return (&Store{}).LongStalls(ctx, tx, limit)
}
