package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// Verdict says what has become of a firing that was taken.
type Verdict struct {
	Taken
	// Status is Due when it is to be tried again after Wait.
	Status Status
	Wait   time.Duration
	// Target is what was made; Running says that it matters when it ends.
	Target  Target
	Running bool
	// Cause says why nothing was made.
	Cause *trigger.Cause
}

// event returns what the audit says, nil where nothing is settled.
func (v Verdict) event(r *row) topics.Event {
	at := r.at(v.ScheduledAt)
	var why trigger.Cause
	if v.Cause != nil {
		why = *v.Cause
	}
	switch v.Status {
	case Started:
		return topics.ScheduleStarted{ScheduleTime: at, Kind: v.Target.Kind, TargetID: v.Target.ID, Attempts: v.Attempt}
	case Refused:
		return topics.ScheduleRefused{ScheduleTime: at, Reason: why.Code, Message: why.Message}
	case Skipped:
		return topics.ScheduleSkipped{ScheduleTime: at, Reason: why.Code, Message: why.Message}
	default:
		return nil
	}
}

const settleSQL = `
	UPDATE schedule_firings f SET status = u.status, kind = u.kind, target_id = u.target, running = u.running, cause = u.cause::jsonb,
		since = CASE WHEN u.cause IS NULL THEN f.since ELSE coalesce(f.since, $1::timestamptz) END,
		try_at = CASE WHEN u.status = 'due' THEN $1::timestamptz + u.wait END,
		settled_at = CASE WHEN u.status <> 'due' THEN $1::timestamptz END
	FROM unnest($2::text[], $3::timestamptz[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::text[], $10::interval[])
		AS u(uid, at, attempt, status, kind, target, running, cause, wait)
	WHERE f.trigger_uid = u.uid AND f.scheduled_at = u.at AND f.attempt = u.attempt AND f.status = 'due'
	RETURNING f.trigger_uid, f.scheduled_at`

// Settle writes what has become of firings, and tells it. What somebody else has taken
// since is left to them.
func (s *Store) Settle(ctx context.Context, list []Verdict) error {
	if len(list) == 0 {
		return nil
	}
	var counted []Verdict
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		counted = nil
		rows, err := lockRows(ctx, tx, list)
		if err != nil {
			return fmt.Errorf("read schedules: %w", err)
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return fmt.Errorf("read time: %w", err)
		}
		ours, err := settleRows(ctx, tx, now, list)
		if err != nil {
			return fmt.Errorf("write firings: %w", err)
		}
		c := &change{silent: s.config.Silent, now: now}
		told := map[string]*row{}
		for _, v := range list {
			r := rows[v.UID]
			if r == nil || !ours[keyOf(v.UID, v.ScheduledAt)] {
				continue
			}
			if e := v.event(r); e != nil {
				c.event(ctx, r, e)
				told[v.UID] = r
				counted = append(counted, v)
			}
		}
		if err := writeVersions(ctx, tx, told); err != nil {
			return fmt.Errorf("write schedules: %w", err)
		}
		return c.flush(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("settle firings: %w", err)
	}
	crash.At("schedule.settled")
	for _, v := range counted {
		s.metrics.settled.WithLabelValues(string(v.Status)).Inc()
	}
	return nil
}

// lockRows locks the schedules of firings, in one order for all.
func lockRows(ctx context.Context, tx pgx.Tx, list []Verdict) (map[string]*row, error) {
	uids := make([]string, len(list))
	for i, v := range list {
		uids[i] = v.UID
	}
	slices.Sort(uids)
	rows, err := tx.Query(ctx, `SELECT `+rowColumns+` FROM schedules s WHERE s.trigger_uid = ANY($1) ORDER BY s.trigger_uid FOR UPDATE OF s`,
		slices.Compact(uids))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, err
	}
	byUID := make(map[string]*row, len(found))
	for _, r := range found {
		byUID[r.uid] = r
	}
	return byUID, nil
}

// settleRows returns the firings that were still with whoever took them.
func settleRows(ctx context.Context, tx pgx.Tx, now time.Time, list []Verdict) (map[key]bool, error) {
	n := len(list)
	uids, at, attempts := make([]string, n), make([]time.Time, n), make([]int, n)
	statuses, kinds, ids, running := make([]string, n), make([]string, n), make([]string, n), make([]bool, n)
	causes, waits := make([]*string, n), make([]time.Duration, n)
	for i, v := range list {
		uids[i], at[i], attempts[i], statuses[i] = v.UID, v.ScheduledAt, v.Attempt, string(v.Status)
		kinds[i], ids[i], running[i], waits[i] = v.Target.Kind, v.Target.ID, v.Running, v.Wait
		if v.Cause != nil {
			text, err := json.Marshal(v.Cause)
			if err != nil {
				return nil, err
			}
			causes[i] = new(string(text))
		}
	}
	rows, err := tx.Query(ctx, settleSQL, now, uids, at, attempts, statuses, kinds, ids, running, causes, waits)
	if err != nil {
		return nil, err
	}
	ours := make(map[key]bool, n)
	var uid string
	var t time.Time
	_, err = pgx.ForEachRow(rows, []any{&uid, &t}, func() error {
		ours[keyOf(uid, t)] = true
		return nil
	})
	return ours, err
}

func writeVersions(ctx context.Context, tx pgx.Tx, rows map[string]*row) error {
	if len(rows) == 0 {
		return nil
	}
	uids, versions := make([]string, 0, len(rows)), make([]int64, 0, len(rows))
	for uid, r := range rows {
		uids, versions = append(uids, uid), append(versions, r.version)
	}
	_, err := tx.Exec(ctx, `UPDATE schedules s SET version = u.version FROM unnest($1::text[], $2::bigint[]) AS u(uid, version)
		WHERE s.trigger_uid = u.uid`, uids, versions)
	return err
}
