package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	daysTable    = "outbox_events"
	defaultTable = daysTable + "_default"
	nameLayout   = "20060102"
)

// Day is a partition of the outbox, or of the event log, where it is a week.
type Day struct {
	Table string
	// Date is the (last) day that it holds: its beginning in UTC.
	Date time.Time
	// Oldest: it holds all days before, too.
	Oldest bool
}

// Stray is how many rows of a day lie in the default partition.
type Stray struct {
	Date time.Time
	Rows int64
}

// Generation is a partition of the inbox.
type Generation struct {
	Number int64
	// Began is when it became the newest; Ended is zero while it is.
	Began, Ended time.Time
}

// Status is how the partitions are.
type Status struct {
	// Now is the database's time, which is the one that counts.
	Now time.Time
	// Days are the partitions of the outbox, from the oldest; Strays what lies in
	// the default partition.
	Days   []Day
	Strays []Stray
	// Generations are the partitions of the inbox, from the oldest.
	Generations []Generation
	// Weeks are the partitions of the event log, from the oldest; Timeless is how many
	// rows lie in its default one, because no week is made for the time that they claim.
	Weeks    []Day
	Timeless int64
}

const (
	daysSQL = `
		SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid) LIKE '%(MINVALUE)%'
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = $1::text::regclass AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT' ORDER BY 1`

	straysSQL = `
		SELECT (created_at AT TIME ZONE 'UTC')::date, count(*) FROM outbox_events_default
		WHERE created_at >= '2000-01-01Z' AND created_at < '9999-01-01Z' GROUP BY 1 ORDER BY 1`

	generationsSQL = `
		SELECT number, began_at, coalesce(lead(began_at) OVER (ORDER BY number), '0001-01-01Z') FROM processed_generations ORDER BY number`
)

// Inspect asks the database how its partitions are. It changes nothing.
func Inspect(ctx context.Context, pool *pgxpool.Pool) (Status, error) {
	var s Status
	err := pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&s.Now)
	if err == nil {
		s.Days, err = inspectPartitions(ctx, pool, daysTable)
	}
	if err == nil {
		s.Weeks, err = inspectPartitions(ctx, pool, weeksTable)
	}
	if err == nil {
		err = pool.QueryRow(ctx, `SELECT count(*) FROM event_log_default`).Scan(&s.Timeless)
	}
	if err == nil {
		s.Strays, err = collect[Stray](ctx, pool, straysSQL)
	}
	if err == nil {
		s.Generations, err = collect[Generation](ctx, pool, generationsSQL)
	}
	if err != nil {
		return Status{}, fmt.Errorf("inspect partitions: %w", err)
	}
	return s, nil
}

func inspectPartitions(ctx context.Context, pool *pgxpool.Pool, table string) ([]Day, error) {
	rows, err := pool.Query(ctx, daysSQL, table)
	if err != nil {
		return nil, err
	}
	var days []Day
	var d Day
	_, err = pgx.ForEachRow(rows, []any{&d.Table, &d.Oldest}, func() error {
		date, err := time.Parse(nameLayout, strings.TrimPrefix(d.Table, table+"_"))
		if err != nil {
			return nil //nolint:nilerr // somebody's own partition, which is none of our business
		}
		d.Date = date
		days = append(days, d)
		return nil
	})
	return days, err
}

func collect[T any](ctx context.Context, pool *pgxpool.Pool, sql string) ([]T, error) {
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// Today is the beginning of the database's day, in UTC.
func (s Status) Today() time.Time { return s.Now.UTC().Truncate(day) }

// Covers reports whether the outbox has a partition for the day.
func (s Status) Covers(date time.Time) bool {
	for _, d := range s.Days {
		if d.Date.Equal(date) || d.Oldest && !date.After(d.Date) {
			return true
		}
	}
	return false
}

// AheadDays is how many days after today have a partition, without a gap; -1: not
// even today has.
func (s Status) AheadDays() int {
	n := -1
	for s.Covers(s.Today().Add(time.Duration(n+1) * day)) {
		n++
	}
	return n
}

func (s Status) coversWeek(date time.Time) bool {
	for _, w := range s.Weeks {
		if w.Date.Equal(date) {
			return true
		}
	}
	return false
}

// AheadWeeks is how many weeks after this one the event log has partitions for,
// without a gap; -1: not even for this one.
func (s Status) AheadWeeks() int {
	n := -1
	for s.coversWeek(logWeeks().begin(s.Now).Add(time.Duration(n+1) * week)) {
		n++
	}
	return n
}

// StrayRows is how many rows lie in the default partition.
func (s Status) StrayRows() (n int64) {
	for _, stray := range s.Strays {
		n += stray.Rows
	}
	return n
}
