package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// series is a table whose partitions are stretches of time of one width, with a
// default partition behind them.
type series struct {
	// table is partitioned by column; the default partition is table_default.
	table, column string
	width         time.Duration
	// options are those of the partitions that the migration made.
	options string
}

// outboxDays: every row is updated once, so autovacuum should come by number of rows
// and not by share of the table.
func outboxDays() series {
	return series{table: daysTable, column: "created_at", width: day, options: `WITH (
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
	autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)`}
}

// logWeeks: rows are inserted, and then left alone.
func logWeeks() series { return series{table: weeksTable, column: "time", width: week} }

// partition is the name of the partition that begins at a date.
func (s series) partition(date time.Time) string { return s.table + "_" + date.Format(nameLayout) }

// begin is when the stretch begins that holds a time: a midnight, or one before a
// Monday, in UTC.
func (s series) begin(t time.Time) time.Time { return t.UTC().Truncate(s.width) }

// makePartition makes the partition that begins at a date, with the rows of it that
// lie in the default one. It returns its name, or nothing when somebody else has made
// it.
//
// An insert that was sent to the default partition, and waits for its lock, fails
// when the partition of its time is attached meanwhile. So where that is the time of
// the events being written now, all who write wait at the table itself, before their
// rows are sent anywhere.
//
// Readers see a row in its old place until the commit and in its new one since.
func (k *Keeper) makePartition(ctx context.Context, s series, m making) (string, error) {
	table, lock := s.partition(m.date), "SHARE UPDATE EXCLUSIVE" // what ATTACH asks for
	if m.present {
		lock = "SHARE ROW EXCLUSIVE"
	}
	from, to := m.date.Format(time.DateOnly)+" 00:00:00+00", m.date.Add(s.width).Format(time.DateOnly)+" 00:00:00+00"
	statements := []string{
		`LOCK TABLE ONLY ` + s.table + ` IN ` + lock + ` MODE`,
		`CREATE TABLE ` + table + ` (LIKE ` + s.table + ` INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES) ` + s.options,
		// No row of that time may be added or changed from here on.
		`LOCK TABLE ` + s.table + `_default IN SHARE ROW EXCLUSIVE MODE`,
		fmt.Sprintf(`WITH moved AS (DELETE FROM %[1]s_default WHERE %[2]s >= '%[3]s' AND %[2]s < '%[4]s' RETURNING *) INSERT INTO %[5]s SELECT * FROM moved`,
			s.table, s.column, from, to, table),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, s.table, table, from, to),
	}
	err := k.attempt(ctx, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if exists(err) {
		return "", nil
	}
	return table, err
}
