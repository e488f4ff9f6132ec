package retention

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/outbox"
)

func dayTable(date time.Time) string { return "outbox_events_" + date.Format(nameLayout) }

func TestMigrationsMakeTheFirstWeek(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	assert.Equal(t, Ahead, b.status().AheadDays(), "nothing depends on a keeper having run")
	report := b.keep()
	assert.Empty(t, report.Made)
	assert.Empty(t, report.Dropped)
	assert.Empty(t, report.Held)
	assert.Equal(t, dayTable(b.today()), b.tableOf(b.insert(b.pool, b.today(), "PENDING", 1)))
	assert.Equal(t, dayTable(b.today()), b.tableOf(b.insert(b.pool, b.today().Add(-1000*day), "PENDING", 1)), "the first day has all before it")
	assert.Equal(t, defaultTable, b.tableOf(b.insert(b.pool, b.today().Add(8*day), "PENDING", 1)))
}

func TestMissingDaysAreMadeAndTheirRowsMoved(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	today := b.today()
	past, table := b.oldDay(3)
	b.exec(`DROP TABLE ` + table)
	b.exec(`DROP TABLE ` + dayTable(today))
	b.exec(`DROP TABLE ` + dayTable(today.Add(5*day)))
	var rows []int64
	for _, date := range []time.Time{past, today, today.Add(5 * day), today.Add(20 * day)} {
		for _, status := range []string{"PENDING", "PUBLISHED", "FAILED", "SKIPPED"} {
			rows = append(rows, b.insert(b.pool, date, status, 3))
		}
	}
	assert.Equal(t, -1, b.status().AheadDays())
	assert.EqualValues(t, 48, b.status().StrayRows())
	before := b.dump()

	report := b.keep()
	assert.ElementsMatch(t, []string{dayTable(past), dayTable(today), dayTable(today.Add(5 * day)), dayTable(today.Add(20 * day))}, report.Made)
	assert.Equal(t, Ahead, report.Status.AheadDays())
	assert.Zero(t, report.Status.StrayRows())
	assert.Equal(t, before, b.dump(), "moved and not changed")
	for i, date := range []time.Time{past, today, today.Add(5 * day), today.Add(20 * day)} {
		assert.Equal(t, dayTable(date), b.tableOf(rows[4*i]))
	}
	assert.Empty(t, b.keep().Made)
}

// dump is all of the outbox, whatever partition it is in.
func (b *testBundle) dump() []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT o::text FROM outbox_events o ORDER BY seq`)
	require.NoError(b.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return all
}

func TestDaysWithManyRowsAreMadeWhenTheyAreOver(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 15, 0, 0, 0, time.UTC)
	today := now.Truncate(day)
	with := func(strays []Stray, covered ...int) Status {
		s := Status{Now: now, Strays: strays}
		for _, n := range covered {
			s.Days = append(s.Days, Day{Date: today.Add(time.Duration(n) * day)})
		}
		return s
	}
	plus := func(ns ...int) []time.Time {
		var dates []time.Time
		for _, n := range ns {
			dates = append(dates, today.Add(time.Duration(n)*day))
		}
		return dates
	}
	many := []Stray{{today.Add(-day), 10}, {today, moveAtOnce + 1}}
	assert.Equal(t, plus(1), dates(with(many)), "today's writers are not kept waiting")
	assert.Empty(t, dates(with(many, 1)))
	assert.Equal(t, plus(-1, 2, 3, 4, 5, 6, 7), dates(with([]Stray{{today.Add(-day), moveAtOnce + 1}}, 0, 1)), "a day that is over")
	assert.Equal(t, plus(-1, 0, 1, 2, 3, 4, 5, 6, 7), dates(with([]Stray{{today.Add(-day), 10}, {today, 10}})), "few are moved at once")
	assert.Equal(t, plus(7), dates(with(nil, 0, 1, 2, 3, 4, 5, 6)))

	assert.Equal(t, []making{{today, true}, {today.Add(day), false}}, missing(with(nil, 2, 3, 4, 5, 6, 7)))
	late := with(nil, 0, 2, 3, 4, 5, 6, 7)
	late.Now = today.Add(day - time.Minute)
	assert.Equal(t, []making{{today.Add(day), true}}, missing(late), "about to begin")
	early := with([]Stray{{today.Add(-day), moveAtOnce + 1}}, 0, 1, 2, 3, 4, 5, 6, 7)
	early.Now = today.Add(time.Minute)
	assert.Empty(t, missing(early), "hardly over")
}

func dates(s Status) (list []time.Time) {
	for _, m := range missing(s) {
		list = append(list, m.date)
	}
	return list
}

// TestAppendsGoOnWhileDaysAreMade: rows of a day that is missing are written while
// it is made, again and again.
func TestAppendsGoOnWhileDaysAreMade(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	date := b.today()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var written atomic.Int64
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				b.insert(b.pool, date, "PENDING", 1)
				written.Add(1)
			}
		})
	}
	for range 4 {
		// Its rows go to the default partition, and so do those to come.
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `LOCK TABLE ONLY outbox_events IN ACCESS EXCLUSIVE MODE;
			ALTER TABLE outbox_events DETACH PARTITION `+dayTable(date)+`;
			INSERT INTO outbox_events SELECT * FROM `+dayTable(date)+`; DROP TABLE `+dayTable(date))
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		before := written.Load()
		require.Eventually(t, func() bool { return written.Load() > before }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool {
			_, err := b.keeper.Keep(t.Context())
			return err == nil && b.status().AheadDays() == Ahead
		}, time.Minute, time.Millisecond)
	}
	stop()
	wg.Wait()
	assert.Zero(t, b.status().StrayRows())
	assert.Len(t, b.dump(), int(written.Load()))
}

func TestOldDaysAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	done, doneTable := b.oldDay(31)
	kept, keptTable := b.oldDay(30)
	b.insert(b.pool, done, "PUBLISHED", 50)
	b.insert(b.pool, done, "SKIPPED", 5)
	young := b.insert(b.pool, kept, "PUBLISHED", 5)
	report := b.keep()
	assert.Equal(t, []string{doneTable}, report.Dropped)
	assert.Empty(t, report.Held)
	assert.Equal(t, keptTable, b.tableOf(young), "not all of it is 30 days old")
	assert.Len(t, b.dump(), 5)
	assert.Empty(t, b.keep().Dropped)
}

func TestDayWithAnOpenEventIsKept(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"PENDING", "FAILED"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := setup(t, thirty())
			date, table := b.oldDay(40)
			b.insert(b.pool, date, "PUBLISHED", 10)
			seq := b.insert(b.pool, date, status, 1)
			report := b.keep()
			assert.Empty(t, report.Dropped)
			assert.Equal(t, []Held{{table, OpenEvents}}, report.Held)
			assert.Equal(t, table, b.tableOf(seq))
			b.exec(`UPDATE outbox_events SET status = 'SKIPPED' WHERE seq = $1`, seq)
			assert.Equal(t, []string{table}, b.keep().Dropped, "when somebody has dealt with it")
		})
	}
}

// TestLateCommitKeepsItsDay: nothing open is to be seen in the partition, but a
// transaction that is still running has put something there.
func TestLateCommitKeepsItsDay(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	date, table := b.oldDay(40)
	b.insert(b.pool, date, "PUBLISHED", 10)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	seq := b.insert(tx, date, "PENDING", 1)
	assert.Equal(t, []Held{{table, InUse}}, b.keep().Held)
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, []Held{{table, OpenEvents}}, b.keep().Held)
	assert.Equal(t, table, b.tableOf(seq))
}

func TestRetryKeepsItsDay(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	date, table := b.oldDay(40)
	seq := b.insert(b.pool, date, "FAILED", 1)
	require.NoError(t, outbox.NewOperator(b.pool, nil).Retry(t.Context(), seq, outbox.Author{Name: "op"}))
	assert.Equal(t, []Held{{table, OpenEvents}}, b.keep().Held)
	b.exec(`UPDATE outbox_events SET status = 'PUBLISHED' WHERE seq = $1`, seq)
	assert.Equal(t, []string{table}, b.keep().Dropped)
}

// TestNothingOpenIsEverDropped writes events of an old day and publishes them, as
// transactions would that began on that day, while its partition is dropped and
// made all the time.
func TestNothingOpenIsEverDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	date, table := b.oldDay(40)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 60 {
				tx, err := b.pool.Begin(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				seq := b.insert(tx, date, "PENDING", 1)
				assert.NoError(t, tx.Commit(t.Context()))
				tag, err := b.pool.Exec(t.Context(), `UPDATE outbox_events SET status = 'PUBLISHED' WHERE seq = $1 AND status = 'PENDING'`, seq)
				assert.NoError(t, err)
				assert.EqualValues(t, 1, tag.RowsAffected(), "it was there")
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	for done := false; !done; {
		select {
		case <-finished:
			done = true
		default:
		}
		open, err := b.keeper.dropUnlessOpen(t.Context(), table)
		switch {
		case gone(err), err == nil && !open:
			_, err = b.keeper.makeDay(t.Context(), making{date: date, present: true})
			if !errors.Is(err, errInUse) {
				require.NoError(t, err)
			}
		case err != nil:
			require.ErrorIs(t, err, errInUse)
		}
	}
}

func TestPartitionInUseIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, thirty())
	date, table := b.oldDay(40)
	b.insert(b.pool, date, "PUBLISHED", 1)
	reader, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SELECT count(*) FROM outbox_events`)
	require.NoError(t, err)
	assert.Equal(t, []Held{{table, InUse}}, b.keep().Held)
	b.insert(b.pool, b.today(), "PENDING", 1) // nobody is kept waiting afterwards
	require.NoError(t, reader.Rollback(t.Context()))
	assert.Equal(t, []string{table}, b.keep().Dropped)
}
