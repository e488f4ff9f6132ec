package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	weeksTable = "event_log"
	week       = 7 * day
	// WeeksAhead is for how many weeks after this one the event log has partitions.
	WeeksAhead = 2
	// forgetAtOnce is how many rows of the default partition are deleted at once.
	forgetAtOnce = 5000
)

// keepWeeks makes and drops the weeks of the event log. Weeks are made as far back as
// events are kept, since a topic may be recorded that is older than the recorder.
func (k *Keeper) keepWeeks(ctx context.Context, report *Report) error {
	status, err := Inspect(ctx, k.pool)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range missingWeeks(status, k.cfg.Events) {
		switch table, err := k.makePartition(ctx, logWeeks(), m); {
		case errors.Is(err, errInUse):
			report.Held = append(report.Held, Held{logWeeks().partition(m.date), InUse})
		case err != nil:
			errs = append(errs, fmt.Errorf("make partition %s: %w", logWeeks().partition(m.date), err))
		case table != "":
			report.Made = append(report.Made, table)
		}
	}
	if k.cfg.Events == 0 {
		return errors.Join(errs...)
	}
	oldest := status.Now.Add(-k.cfg.Events)
	for _, w := range status.Weeks {
		if w.Date.Add(week).After(oldest) {
			continue
		}
		switch err := k.dropWeek(ctx, w); {
		case errors.Is(err, errInUse):
			report.Held = append(report.Held, Held{w.Table, InUse})
		case err != nil:
			errs = append(errs, fmt.Errorf("drop partition %s: %w", w.Table, err))
		default:
			report.Dropped = append(report.Dropped, w.Table)
		}
	}
	if err := k.forget(ctx, oldest); err != nil {
		errs = append(errs, fmt.Errorf("empty %s_default: %w", weeksTable, err))
	}
	return errors.Join(errs...)
}

// missingWeeks returns the weeks for which the event log is to have partitions and
// has none. What claims to be older or to come later stays in the default partition.
func missingWeeks(s Status, keep time.Duration) []making {
	var list []making
	last := logWeeks().begin(s.Now).Add(WeeksAhead * week)
	for date := logWeeks().begin(s.Now.Add(-keep)); !date.After(last); date = date.Add(week) {
		if !s.coversWeek(date) {
			list = append(list, making{
				date: date, present: date.Before(s.Now.Add(nearly)) && date.Add(week+nearly).After(s.Now),
			})
		}
	}
	return list
}

// dropWeek drops a week of the event log, and notes for the topics that it held
// something of since when they are complete (eventlog.Horizon).
func (k *Keeper) dropWeek(ctx context.Context, w Day) error {
	err := k.attempt(ctx, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`LOCK TABLE ONLY ` + weeksTable + ` IN ACCESS EXCLUSIVE MODE`,
			`LOCK TABLE ` + quoted(w.Table) + ` IN ACCESS EXCLUSIVE MODE`,
			boundedSQL,
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`
			UPDATE event_log_topics SET dropped_before = greatest(dropped_before, $1)
			WHERE EXISTS (SELECT FROM %s WHERE topic_no = no)`, quoted(w.Table)), w.Date.Add(week))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DROP TABLE `+quoted(w.Table))
		return err
	})
	if gone(err) {
		return nil // by somebody else
	}
	return err
}

// forget deletes what was recorded before a time and lies in no week, whatever time
// it claims for itself.
func (k *Keeper) forget(ctx context.Context, before time.Time) error {
	for {
		tag, err := k.pool.Exec(ctx, `
			DELETE FROM event_log_default WHERE ctid = ANY(ARRAY(
				SELECT ctid FROM event_log_default WHERE recorded_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`, before, forgetAtOnce)
		if err != nil || tag.RowsAffected() < forgetAtOnce {
			return err
		}
	}
}
