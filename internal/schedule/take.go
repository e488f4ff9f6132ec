package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// Taken is a firing that this process has for a while, to make its target.
type Taken struct {
	UID         string
	ScheduledAt time.Time
	DueAt       time.Time
	FiredAt     time.Time
	By          string
	// Attempt counts from 1: what is said of the firing counts while it is the last.
	Attempt int
}

const takenColumns = `f.trigger_uid, f.scheduled_at, f.due_at, f.fired_at, f.fired_by, f.attempt`

func collectTaken(rows pgx.Rows) ([]Taken, error) {
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (t Taken, err error) {
		err = r.Scan(&t.UID, &t.ScheduledAt, &t.DueAt, &t.FiredAt, &t.By, &t.Attempt)
		return t, err
	})
}

// TakePushed takes the firings of tasks that nobody has taken before. Those that somebody
// has, or had, are settled or found in the table.
func (s *Store) TakePushed(ctx context.Context, tasks []topics.ScheduleTask) ([]Taken, error) {
	uids, at := make([]string, len(tasks)), make([]time.Time, len(tasks))
	for i, t := range tasks {
		uids[i], at[i] = t.TriggerUID, t.ScheduledAt
	}
	rows, err := s.pool.Query(ctx, `
		UPDATE schedule_firings f SET attempt = 1, try_at = `+nowSQL+` + $2::interval
		FROM (
			SELECT trigger_uid, scheduled_at FROM schedule_firings
			WHERE (trigger_uid, scheduled_at) IN (SELECT * FROM unnest($3::text[], $4::timestamptz[])) AND status = 'due' AND attempt = 0
			FOR UPDATE SKIP LOCKED
		) AS u
		WHERE f.trigger_uid = u.trigger_uid AND f.scheduled_at = u.scheduled_at
		RETURNING `+takenColumns, s.skew, takenFor, uids, at)
	if err != nil {
		return nil, fmt.Errorf("take firings: %w", err)
	}
	taken, err := collectTaken(rows)
	if err != nil {
		return nil, fmt.Errorf("take firings: %w", err)
	}
	return taken, nil
}

// TakeDue takes firings whose time to be tried has come, at most max.
func (s *Store) TakeDue(ctx context.Context, max int) ([]Taken, error) {
	rows, err := s.pool.Query(ctx, `
		UPDATE schedule_firings f SET attempt = f.attempt + 1, try_at = `+nowSQL+` + $2::interval
		FROM (
			SELECT trigger_uid, scheduled_at FROM schedule_firings WHERE status = 'due' AND try_at <= `+nowSQL+`
			ORDER BY try_at, scheduled_at LIMIT $3 FOR UPDATE SKIP LOCKED
		) AS u
		WHERE f.trigger_uid = u.trigger_uid AND f.scheduled_at = u.scheduled_at
		RETURNING `+takenColumns, s.skew, takenFor, max)
	if err != nil {
		return nil, fmt.Errorf("take due firings: %w", err)
	}
	taken, err := collectTaken(rows)
	if err != nil {
		return nil, fmt.Errorf("take due firings: %w", err)
	}
	return taken, nil
}

// waits tells how long it is until a schedule is due, and until a firing may be taken. Nil
// when there is none.
func (s *Store) waits(ctx context.Context) (schedule, firing *time.Duration, err error) {
	err = s.pool.QueryRow(ctx, `SELECT
		(SELECT due_at FROM schedules WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1) - `+nowSQL+`,
		(SELECT try_at FROM schedule_firings WHERE status = 'due' ORDER BY try_at LIMIT 1) - `+nowSQL, s.skew).Scan(&schedule, &firing)
	if err != nil {
		return nil, nil, fmt.Errorf("look for due schedules: %w", err)
	}
	return schedule, firing, nil
}
