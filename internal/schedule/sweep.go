package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

const (
	// sweepBatch is how many schedules fire in one transaction, and sweepFirings how many
	// firings it may grow to before the rest is left to the next one.
	sweepBatch   = 200
	sweepFirings = 2000
)

// fired is a firing that a transaction writes.
type fired struct {
	row     *row
	at, due time.Time
	late    bool
	by      string
	skipped bool
	input   json.RawMessage
	missed  *Missed // the row stands for all of these
}

// Sweep fires what is due, and returns how many schedules it looked at and how many firings
// it made. What another process is at is passed over.
func (s *Store) Sweep(ctx context.Context) (schedules, firings int, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		schedules, firings = 0, 0
		now, err := s.now(ctx, tx)
		if err != nil {
			return fmt.Errorf("read time: %w", err)
		}
		rows, err := tx.Query(ctx, `SELECT `+rowColumns+` FROM schedules s WHERE s.due_at <= $1
			ORDER BY s.due_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED`, now, sweepBatch)
		if err != nil {
			return fmt.Errorf("read due schedules: %w", err)
		}
		due, err := pgx.CollectRows(rows, scanRow)
		if err != nil {
			return fmt.Errorf("read due schedules: %w", err)
		}
		c := &change{silent: s.config.Silent, now: now}
		var list []fired
		var moved, ended []*row
		for _, r := range due {
			of, end, err := r.come(now)
			if err != nil {
				// It cannot be read: a version of the program to come has written it.
				s.log.WarnContext(ctx, "a schedule cannot be read, it is left alone", "trigger_id", r.id, "error", err)
				continue
			}
			moved, list = append(moved, r), append(list, of...)
			if end {
				ended = append(ended, r)
			}
			if len(list) >= sweepFirings {
				break
			}
		}
		if schedules = len(moved); schedules == 0 {
			return nil
		}
		if firings, err = s.fire(ctx, tx, c, list); err != nil {
			return err
		}
		for _, r := range ended {
			c.event(ctx, r, topics.ScheduleStopped{Schedule: r.of(), Reason: stoppedEnded})
		}
		if err := writeRows(ctx, tx, moved); err != nil {
			return err
		}
		if err := c.flush(ctx, tx); err != nil {
			return err
		}
		crash.At("schedule.firing")
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("fire schedules: %w", err)
	}
	if firings > 0 {
		crash.At("schedule.fired")
		s.metrics.fired.Add(float64(firings))
		if s.config.Silent {
			s.wake(WakeName)
		}
	}
	return schedules, firings, nil
}

// come decides about a schedule that is due, and moves it on. It tells the firings, and
// whether no time is left.
func (r *row) come(now time.Time) (list []fired, ended bool, err error) {
	plan, spec, err := r.plan()
	if err != nil {
		return nil, false, err
	}
	d := plan.Decide(*r.next, now)
	if d.Missed != nil {
		list = append(list, fired{row: r, at: d.Missed.Last, due: plan.Due(d.Missed.Last), late: true, missed: d.Missed})
	}
	for i, t := range d.Fire {
		list = append(list, fired{
			row: r, at: t, due: plan.Due(t), late: i < d.CaughtUp, input: spec.Input,
			skipped: r.open+i >= plan.missedMax,
		})
		r.last = &t
	}
	r.next = nil
	if !d.Next.IsZero() {
		r.next = &d.Next
	}
	return list, r.next == nil, nil
}

const fireSQL = `
	INSERT INTO schedule_firings (trigger_uid, scheduled_at, status, due_at, fired_at, late, fired_by, try_at, cause, settled_at,
		missed_first, missed_count, missed_more)
	SELECT uid, at, status, due, $1::timestamptz, late, fired_by, CASE WHEN status = 'due' THEN $1::timestamptz + $2::interval END, cause::jsonb,
		CASE WHEN status <> 'due' THEN $1::timestamptz END, first, count, more
	FROM unnest($3::text[], $4::timestamptz[], $5::text[], $6::timestamptz[], $7::boolean[], $8::text[], $9::text[],
		$10::timestamptz[], $11::integer[], $12::boolean[]) AS u(uid, at, status, due, late, fired_by, cause, first, count, more)
	ON CONFLICT (trigger_uid, scheduled_at) DO NOTHING
	RETURNING trigger_uid, scheduled_at`

// key identifies a firing.
type key struct {
	uid string
	at  int64 // microseconds since 1970
}

func keyOf(uid string, at time.Time) key { return key{uid, at.UnixMicro()} }

// fire writes firings, with their events and tasks, and returns how many of them are due
// now. A time that has fired before is left out.
func (s *Store) fire(ctx context.Context, tx pgx.Tx, c *change, list []fired) (int, error) {
	if len(list) == 0 {
		return 0, nil
	}
	grace := pushGrace
	if s.config.Silent {
		grace = 0
	}
	fresh, err := insertFirings(ctx, tx, c.now, grace, list)
	if err != nil {
		return 0, fmt.Errorf("write firings: %w", err)
	}
	n := 0
	for _, f := range list {
		if !fresh[keyOf(f.row.uid, f.at)] {
			continue
		}
		if m := f.missed; m != nil {
			c.event(ctx, f.row, topics.ScheduleMissed{Schedule: f.row.of(), FirstAt: m.First, LastAt: m.Last, Count: m.Count, More: m.More})
			s.metrics.missed.Add(float64(m.Count))
			continue
		}
		at := f.row.at(f.at)
		c.event(ctx, f.row, topics.ScheduleFired{ScheduleTime: at, DueAt: f.due, FiredAt: c.now, Missed: f.late, By: f.by})
		if f.skipped {
			why := backlogCause()
			c.event(ctx, f.row, topics.ScheduleSkipped{ScheduleTime: at, Reason: why.Code, Message: why.Message})
			s.metrics.settled.WithLabelValues(string(Skipped)).Inc()
			continue
		}
		c.task(ctx, topics.ScheduleTask{ScheduleTime: at, DueAt: f.due, FiredAt: c.now, Input: f.input})
		s.metrics.lateness.Observe(max(0, c.now.Sub(f.due).Seconds()))
		n++
	}
	return n, nil
}

// backlogCause says why a time is skipped when too many are waiting.
func backlogCause() trigger.Cause {
	return trigger.Cause{
		Code: "backlog", Message: "as many firings as missed_max allows are waiting already",
		Hint: "see what holds up the earlier ones",
	}
}

// insertFirings returns those that are new.
func insertFirings(ctx context.Context, tx pgx.Tx, now time.Time, grace time.Duration, list []fired) (map[key]bool, error) {
	n := len(list)
	uids, at, statuses, due := make([]string, n), make([]time.Time, n), make([]string, n), make([]time.Time, n)
	late, by, causes := make([]bool, n), make([]string, n), make([]*string, n)
	firsts, counts, more := make([]*time.Time, n), make([]*int, n), make([]*bool, n)
	backlog, err := json.Marshal(backlogCause())
	if err != nil {
		return nil, err
	}
	for i, f := range list {
		uids[i], at[i], due[i], late[i], by[i] = f.row.uid, f.at, f.due, f.late, f.by
		switch {
		case f.missed != nil:
			statuses[i] = string(Passed)
			firsts[i], counts[i], more[i] = &f.missed.First, &f.missed.Count, &f.missed.More
		case f.skipped:
			statuses[i], causes[i] = string(Skipped), new(string(backlog))
		default:
			statuses[i] = string(Due)
		}
	}
	rows, err := tx.Query(ctx, fireSQL, now, grace, uids, at, statuses, due, late, by, causes, firsts, counts, more)
	if err != nil {
		return nil, err
	}
	fresh := make(map[key]bool, n)
	var uid string
	var t time.Time
	_, err = pgx.ForEachRow(rows, []any{&uid, &t}, func() error {
		fresh[keyOf(uid, t)] = true
		return nil
	})
	return fresh, err
}

// writeRows writes what a sweep changes of schedules.
func writeRows(ctx context.Context, tx pgx.Tx, list []*row) error {
	n := len(list)
	uids, versions := make([]string, n), make([]int64, n)
	next, due, last := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	for i, r := range list {
		uids[i], versions[i], next[i], last[i] = r.uid, r.version, r.next, r.last
		if r.next != nil {
			plan, _, err := r.plan()
			if err != nil {
				return err
			}
			due[i] = new(plan.Due(*r.next))
		}
	}
	_, err := tx.Exec(ctx, `
		UPDATE schedules s SET version = u.version, next_at = u.next, due_at = u.due, last_at = u.last
		FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[]) AS u(uid, version, next, due, last)
		WHERE s.trigger_uid = u.uid`, uids, versions, next, due, last)
	if err != nil {
		return fmt.Errorf("write schedules: %w", err)
	}
	return nil
}

// Fire fires a schedule now, by hand. What it starts is subject to the rules of the schedule.
func (s *Store) Fire(ctx context.Context, uid, by string) (Firing, error) {
	var out Firing
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		r, err := lockRow(ctx, tx, uid)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if r == nil || r.gone != nil {
			return ErrNotFound
		}
		_, spec, err := r.plan()
		if err != nil {
			return err
		}
		c := &change{silent: s.config.Silent, now: now}
		if _, err := s.fire(ctx, tx, c, []fired{{row: r, at: now, due: now, by: by, input: spec.Input}}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE schedules SET version = $2 WHERE trigger_uid = $1`, uid, r.version); err != nil {
			return err
		}
		out = Firing{ScheduledAt: now, Status: Due, DueAt: now, FiredAt: now, By: by}
		return c.flush(ctx, tx)
	})
	if err != nil {
		return Firing{}, fmt.Errorf("fire schedule by hand: %w", err)
	}
	s.metrics.fired.Inc()
	if s.config.Silent {
		s.wake(WakeName)
	}
	return out, nil
}
