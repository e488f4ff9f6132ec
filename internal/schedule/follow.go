package schedule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// Why a schedule does not fire any more.
const (
	stoppedDisabled = "disabled"
	stoppedDeleted  = "deleted"
	stoppedChanged  = "changed"
	stoppedEnded    = "ended"
)

// TriggerChanged keeps the schedule of a trigger in the transaction that made, changed,
// enabled, disabled or deleted it. Triggers of other types are passed over.
//
// A schedule that is made, enabled, or told other times begins with the first time after now.
// What else changes leaves its times alone. Times that pass while it is disabled are none of
// its times: they are neither made up for nor missed.
func (s *Store) TriggerChanged(ctx context.Context, tx pgx.Tx, t trigger.Stored, deleted bool) error {
	old, err := lockRow(ctx, tx, t.UID)
	if err != nil {
		return fmt.Errorf("read schedule of trigger %s: %w", t.ID, err)
	}
	is := t.Type == trigger.TypeSchedule && t.Schedule != nil
	if old == nil && (!is || deleted) {
		return nil
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return fmt.Errorf("read time: %w", err)
	}
	c := &change{silent: s.config.Silent, now: now}
	next := row{uid: t.UID, id: t.ID, revision: t.Revision}
	if old != nil {
		next.last, next.version, next.spec = old.last, old.version, old.spec
	}
	var due *time.Time
	switch {
	case deleted || !is:
		next.gone = &now
		if old.gone != nil {
			next.gone = old.gone
		}
		next.stop(ctx, c, old, reasonGone(deleted))
	default:
		if due, err = next.aim(ctx, c, old, t, now); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO schedules (trigger_uid, trigger_id, revision, spec, next_at, due_at, last_at, version, gone_at, alert_after)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (trigger_uid) DO UPDATE SET trigger_id = EXCLUDED.trigger_id, revision = EXCLUDED.revision, spec = EXCLUDED.spec,
			next_at = EXCLUDED.next_at, due_at = EXCLUDED.due_at, version = EXCLUDED.version, gone_at = EXCLUDED.gone_at, alert_after = EXCLUDED.alert_after`,
		next.uid, next.id, next.revision, next.spec, next.next, due, next.last, next.version, next.gone,
		cmp.Or(t.AlertAfter.Std(), s.config.AlertAfter))
	if err != nil {
		return fmt.Errorf("write schedule of trigger %s: %w", t.ID, err)
	}
	return c.flush(ctx, tx)
}

func reasonGone(deleted bool) string {
	if deleted {
		return stoppedDeleted
	}
	return stoppedChanged
}

func lockRow(ctx context.Context, tx pgx.Tx, uid string) (*row, error) {
	rows, err := tx.Query(ctx, `SELECT `+rowColumns+` FROM schedules s WHERE s.trigger_uid = $1 FOR UPDATE OF s`, uid)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return found, err
}

// stop tells that the schedule has no next time, if it had one.
func (r *row) stop(ctx context.Context, c *change, old *row, reason string) {
	if old != nil && old.next != nil {
		c.event(ctx, r, topics.ScheduleStopped{Schedule: r.of(), Reason: reason})
	}
}

// aim sets the next time of a schedule, as its trigger is now, and returns when that is due.
func (r *row) aim(ctx context.Context, c *change, old *row, t trigger.Stored, now time.Time) (*time.Time, error) {
	var err error
	if r.spec, err = json.Marshal(t.Schedule); err != nil {
		return nil, fmt.Errorf("write schedule of trigger %s: %w", t.ID, err)
	}
	plan, _, err := r.plan()
	if err != nil {
		return nil, err
	}
	if !t.IsEnabled() {
		r.stop(ctx, c, old, stoppedDisabled)
		return nil, nil
	}
	if old != nil && old.next != nil && old.gone == nil && sameTimes(old.spec, r.spec) {
		r.next = old.next // nothing that passed meanwhile gets lost
		return new(plan.Due(*r.next)), nil
	}
	first := plan.First(now)
	if r.last != nil && !first.After(*r.last) {
		first = plan.Next(*r.last)
	}
	if first.IsZero() {
		r.stop(ctx, c, old, stoppedEnded)
		return nil, nil
	}
	due := plan.Due(first)
	r.next = &first
	c.event(ctx, r, topics.SchedulePlanned{Schedule: r.of(), Revision: r.revision, NextAt: first, DueAt: due})
	return &due, nil
}

// sameTimes reports whether two schedules mean the same times.
func sameTimes(a, b json.RawMessage) bool {
	times := func(spec json.RawMessage) []byte {
		var s trigger.Schedule
		if json.Unmarshal(spec, &s) != nil {
			return nil
		}
		text, err := json.Marshal(trigger.Schedule{Cron: s.Cron, TimeZone: s.TimeZone, At: s.At, From: s.From, Until: s.Until})
		if err != nil {
			return nil
		}
		return text
	}
	x, y := times(a), times(b)
	return x != nil && bytes.Equal(x, y)
}
