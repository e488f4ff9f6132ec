package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// moveAtOnce is up to how many rows of the default partition are moved while
// somebody may be writing to it.
const moveAtOnce = 20_000

// nearly is how long before its beginning and after its end a day may have events
// written to it, for clocks that are set.
const nearly = time.Hour

func (k *Keeper) keepDays(ctx context.Context, report *Report) error {
	status, err := Inspect(ctx, k.pool)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range missing(status) {
		table, err := k.makeDay(ctx, m)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("make partition %s: %w", outboxDays().partition(m.date), err))
		case table != "":
			report.Made = append(report.Made, table)
		}
	}
	oldest := status.Now.Add(-k.cfg.Outbox)
	for _, d := range status.Days {
		if d.Date.Add(day).After(oldest) {
			continue
		}
		switch held, err := k.dropDay(ctx, d.Table); {
		case err != nil:
			errs = append(errs, fmt.Errorf("drop partition %s: %w", d.Table, err))
		case held != "":
			report.Held = append(report.Held, Held{d.Table, held})
		default:
			report.Dropped = append(report.Dropped, d.Table)
		}
	}
	return errors.Join(errs...)
}

// making is a day, or a week, whose partition is to be made.
type making struct {
	date time.Time
	// present: events of that time may be being written at this moment.
	present bool
}

// missing returns the days for which partitions are to be made now.
func missing(s Status) []making {
	today, horizon := s.Today(), s.Today().Add(Ahead*day)
	few := s.StrayRows() <= moveAtOnce
	var list []making
	consider := func(date time.Time, unlessMany bool) {
		m := making{date: date, present: date.Before(s.Now.Add(nearly)) && date.Add(day+nearly).After(s.Now)}
		// Those who write wait while rows of the present are moved.
		if !s.Covers(date) && (few || unlessMany && !m.present) {
			list = append(list, m)
		}
	}
	for _, stray := range s.Strays {
		if stray.Date.Before(today) || stray.Date.After(horizon) {
			// Who writes to the default partition, for lack of another, waits as well.
			consider(stray.Date, s.Covers(today))
		}
	}
	for n := range Ahead + 1 {
		// A partition is attached after a look at all of the default one, so of many
		// days only the next is made while that is large.
		consider(today.Add(time.Duration(n)*day), s.Covers(today) || n == 1)
	}
	return list
}

// makeDay makes the partition of a day, with the rows of it that lie in the default
// one. It returns its name, or nothing when somebody else has made it.
//
// A relay that has just published a row that is being moved may not find it to mark
// it; a later sweep has it published once more.
func (k *Keeper) makeDay(ctx context.Context, m making) (string, error) {
	return k.makePartition(ctx, outboxDays(), m)
}

const (
	// openSQL reports whether a day holds a row that somebody still has to deal with.
	// Both conditions are those of indexes.
	openSQL = `
		SELECT EXISTS (SELECT FROM %[1]s WHERE status = 'PENDING')
			OR EXISTS (SELECT FROM %[1]s WHERE attempts > 0 AND status IN ('PENDING', 'FAILED'))`
	// strangeSQL finds rows as well that only a person can have made. It reads the
	// whole partition.
	strangeSQL = openSQL + ` OR EXISTS (SELECT FROM %[1]s WHERE status NOT IN ('PUBLISHED', 'SKIPPED'))`
	// boundedSQL keeps what is done while everybody waits from taking long: the
	// indexes are used whatever the planner believes, or it is given up.
	boundedSQL = `SET LOCAL enable_seqscan = off; SET LOCAL statement_timeout = '5s'`
)

// dropDay drops the partition of a day, or returns why it is kept.
func (k *Keeper) dropDay(ctx context.Context, table string) (held string, err error) {
	var open bool
	// Without a lock first, so that none is taken for a partition that has to stay.
	err = k.pool.QueryRow(ctx, fmt.Sprintf(strangeSQL, quoted(table))).Scan(&open)
	if err == nil && !open {
		open, err = k.dropUnlessOpen(ctx, table)
	}
	switch {
	case gone(err):
		return "", nil // by somebody else
	case errors.Is(err, errInUse):
		return InUse, nil
	case open:
		return OpenEvents, err
	}
	return "", err
}

func (k *Keeper) dropUnlessOpen(ctx context.Context, table string) (open bool, err error) {
	err = k.attempt(ctx, func(tx pgx.Tx) error {
		// The parent first, as all who come through it do. The lock on the partition
		// is there when everybody who has written to it, retried or skipped has
		// ended; the next statement sees what they left.
		for _, sql := range []string{
			`LOCK TABLE ONLY ` + daysTable + ` IN ACCESS EXCLUSIVE MODE`,
			`LOCK TABLE ` + quoted(table) + ` IN ACCESS EXCLUSIVE MODE`,
			boundedSQL,
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(ctx, fmt.Sprintf(openSQL, quoted(table))).Scan(&open); err != nil || open {
			return err
		}
		_, err := tx.Exec(ctx, `DROP TABLE `+quoted(table))
		return err
	})
	return open, err
}
