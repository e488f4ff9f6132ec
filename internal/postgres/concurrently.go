package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

// What stands in line for a lock of a table stands in the way of everybody behind it,
// also of those who would not wait for its present holder. So a migration waits a moment
// only, lets the others through, and tries again.
const (
	lockPatience = time.Second
	lockPause    = time.Second
	// lockTries is how often it asks until it gives up: for two to three minutes.
	lockTries = 90
)

// noLock reports that a lock was not to be had in time, or only by way of a deadlock.
func noLock(err error) bool {
	code := sqlState(err)
	return code == "55P03" || code == "40P01"
}

// patiently calls fn until it gets its locks.
func patiently(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !noLock(err) {
			return err
		}
		if try == lockTries {
			// It wraps nothing: whoever calls this patiently would begin anew.
			return fmt.Errorf("no lock to be had in %d attempts: pg_stat_activity tells which transaction is open for so long; end it and run this again: %v", try, err) //nolint:errorlint // see above
		}
		if err := sleep(ctx, lockPause); err != nil {
			return err
		}
	}
}

// program is a migration that is not written in SQL alone. It may be interrupted
// anywhere, and is run again then.
type program struct {
	Migration
	up, down func(ctx context.Context, db *sql.DB) error
}

func programs() []program {
	jobs := partitionedIndex{table: "outbox_events", name: "outbox_events_jobs", of: `(id) WHERE aggregate_type = 'job'`}
	return []program{
		// By the id of its row (jobs.dispatch_id) it is known when the record of a job was
		// published.
		{Migration{Version: 20261121145000, Name: "20261121145000_outbox_jobs_index", Needs: 20261121126000}, jobs.create, jobs.drop},
	}
}

func (p program) goose() *goose.Migration {
	return goose.NewGoMigration(p.Version, &goose.GoFunc{RunDB: p.up}, &goose.GoFunc{RunDB: p.down})
}

// partitionedIndex is an index of a partitioned table, which PostgreSQL itself does not make
// without locking out everybody who writes to it, for as long as it reads it.
type partitionedIndex struct {
	table, name string
	// of is what follows the name of the table in CREATE INDEX.
	of string
}

// create makes the index partition by partition while others write.
func (x partitionedIndex) create(ctx context.Context, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	defer func() { err = errors.Join(err, setLockTimeout(context.WithoutCancel(ctx), conn, 0)) }()
	// From here on, new partitions are made with it.
	if err := run(ctx, conn, `CREATE INDEX IF NOT EXISTS `+x.name+` ON ONLY `+x.table+` `+x.of); err != nil {
		return err
	}
	for {
		missing, err := x.missing(ctx, conn)
		if err != nil || len(missing) == 0 {
			return err
		}
		for _, partition := range missing {
			// One that is gone was dropped for its age meanwhile.
			if err := x.createFor(ctx, conn, partition); err != nil && sqlState(err) != "42P01" {
				return fmt.Errorf("index %s of %s: %w", x.name, partition, err)
			}
		}
	}
}

// missing returns the partitions that do not have it.
func (x partitionedIndex) missing(ctx context.Context, conn *sql.Conn) (names []string, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT quote_ident(part.relname) FROM pg_inherits h JOIN pg_class part ON part.oid = h.inhrelid
		WHERE h.inhparent = $1::regclass AND NOT EXISTS (
			SELECT FROM pg_index i JOIN pg_inherits of ON of.inhrelid = i.indexrelid
			WHERE i.indrelid = part.oid AND of.inhparent = $2::regclass)
		ORDER BY part.relname`, x.table, x.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func (x partitionedIndex) createFor(ctx context.Context, conn *sql.Conn, partition string) error {
	index := partition + strings.TrimPrefix(x.name, x.table)
	var broken bool
	err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)`, index).Scan(&broken)
	if err != nil {
		return err
	}
	if broken { // the last attempt was interrupted
		if err := run(ctx, conn, `DROP INDEX CONCURRENTLY IF EXISTS `+index); err != nil {
			return err
		}
	}
	// It waits for transactions, for as long as these take, and nobody waits for it.
	if err := setLockTimeout(ctx, conn, 0); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, `CREATE INDEX CONCURRENTLY IF NOT EXISTS `+index+` ON `+partition+` `+x.of); err != nil {
		return err
	}
	return run(ctx, conn, `ALTER INDEX `+x.name+` ATTACH PARTITION `+index)
}

func (x partitionedIndex) drop(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `DROP INDEX IF EXISTS `+x.name)
	return err
}

// run runs a statement that others wait for.
func run(ctx context.Context, conn *sql.Conn, statement string) error {
	if err := setLockTimeout(ctx, conn, lockPatience); err != nil {
		return err
	}
	return patiently(ctx, func() error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}

// setLockTimeout says how long statements of the session wait for a lock; 0 is as
// configured in the server.
func setLockTimeout(ctx context.Context, conn *sql.Conn, d time.Duration) error {
	set := `RESET lock_timeout`
	if d > 0 {
		set = fmt.Sprintf(`SET lock_timeout = %d`, d.Milliseconds())
	}
	_, err := conn.ExecContext(ctx, set)
	return err
}
