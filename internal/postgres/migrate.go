package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/millrace/millrace/internal/secret"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// versionTable remembers which migrations have been applied.
	versionTable = "millrace_migrations"
	// migrationLock is the key of the advisory lock under which migrations run
	// ("millrace" in ASCII, as a number).
	migrationLock     int64 = 0x6d696c6c72616365
	migrationLockPoll       = 50 * time.Millisecond
)

// Migration is one migration and whether the database has it.
type Migration struct {
	// Version is the number at the beginning of the file's name, the time at which
	// it was written.
	Version int64
	// Name is the file's name. Empty for a migration that this binary does not have.
	Name string
	// Applied is when it was applied. Zero means it is pending.
	Applied time.Time
}

// Applied is one migration that Migrate has applied.
type Applied struct {
	Version  int64
	Name     string
	Duration time.Duration
}

// SchemaError says how the schema of a database differs from what this binary
// expects.
type SchemaError struct {
	// Pending are migrations that the database does not have.
	Pending []string
	// Unknown are versions that only a newer binary knows.
	Unknown []int64
}

// Error names the migrations and says what to do.
func (e *SchemaError) Error() string {
	var parts []string
	if len(e.Pending) > 0 {
		parts = append(parts, fmt.Sprintf("%d pending (%s): run millrace migrate up", len(e.Pending), strings.Join(e.Pending, ", ")))
	}
	if len(e.Unknown) > 0 {
		versions := make([]string, len(e.Unknown))
		for i, v := range e.Unknown {
			versions[i] = strconv.FormatInt(v, 10)
		}
		parts = append(parts, fmt.Sprintf("the database is newer than this binary (%s)", strings.Join(versions, ", ")))
	}
	return "schema is not current: " + strings.Join(parts, "; ")
}

// Migrate applies what is missing, each migration in a transaction of its own,
// and returns what it applied, also when a later one fails. Several processes may
// call it at once: one works and the others wait, for as long as ctx allows, and
// find nothing left to do.
//
// The lock belongs to the session, so the DSN must lead to PostgreSQL itself and
// not to a pooler in transaction mode.
func Migrate(ctx context.Context, pool *pgxpool.Pool) ([]Applied, error) {
	var applied []Applied
	err := withProvider(pool, func(p *goose.Provider) error {
		results, err := p.Up(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			results, err = partial.Applied, migrationFailed(partial)
		}
		for _, r := range results {
			applied = append(applied, Applied{Version: r.Source.Version, Name: path.Base(r.Source.Path), Duration: r.Duration})
		}
		return err
	})
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

func migrationFailed(e *goose.PartialError) error {
	if e.Failed == nil || e.Failed.Source == nil {
		return e.Err
	}
	return fmt.Errorf("%s: %w", path.Base(e.Failed.Source.Path), e.Err)
}

// MigrateDown takes back every migration above version, the newest first, with
// the data that they hold. Version 0 takes back all.
func MigrateDown(ctx context.Context, pool *pgxpool.Pool, version int64) error {
	err := withProvider(pool, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, version)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			err = migrationFailed(partial)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

// MigrationStatus returns every migration that this binary or the database
// knows, by version. It writes nothing.
func MigrationStatus(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	known, err := embedded()
	if err != nil {
		return nil, err
	}
	applied, err := appliedVersions(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	for i, m := range known {
		known[i].Applied = applied[m.Version]
		delete(applied, m.Version)
	}
	for version, at := range applied {
		known = append(known, Migration{Version: version, Applied: at})
	}
	slices.SortFunc(known, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return known, nil
}

// CheckCurrent returns a *SchemaError when migrations are pending or the database
// has ones that this binary does not know. It is cheap and writes nothing, so it
// fits a readiness check.
func CheckCurrent(ctx context.Context, pool *pgxpool.Pool) error {
	status, err := MigrationStatus(ctx, pool)
	if err != nil {
		return err
	}
	fault := &SchemaError{}
	for _, m := range status {
		switch {
		case m.Applied.IsZero():
			fault.Pending = append(fault.Pending, m.Name)
		case m.Name == "":
			fault.Unknown = append(fault.Unknown, m.Version)
		}
	}
	if len(fault.Pending)+len(fault.Unknown) == 0 {
		return nil
	}
	return fault
}

// embedded returns the migrations of this binary, by version.
func embedded() ([]Migration, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make([]Migration, 0, len(files))
	for _, f := range files {
		name := path.Base(f)
		digits, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: the name does not begin with a version", name)
		}
		list = append(list, Migration{Version: version, Name: name})
	}
	slices.SortFunc(list, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// appliedVersions reads the version table without the migration library, which
// would create it.
func appliedVersions(ctx context.Context, pool *pgxpool.Pool) (map[int64]time.Time, error) {
	applied := make(map[int64]time.Time)
	rows, err := pool.Query(ctx, `SELECT version_id, tstamp AT TIME ZONE 'UTC' FROM `+versionTable+` WHERE is_applied AND version_id > 0`)
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var version int64
			var at time.Time
			if err := rows.Scan(&version, &at); err != nil {
				return nil, err
			}
			applied[version] = at
		}
		err = rows.Err()
	}
	if sqlState(err) == "42P01" { // undefined_table: nothing was ever applied
		return applied, nil
	}
	return applied, err
}

func withProvider(pool *pgxpool.Pool, use func(*goose.Provider) error) error {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	// Closing db does not close the pool beneath it.
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(sessionLocker{}),
		goose.WithDisableGlobalRegistry(true),
		// Migrations are named by the time at which they were written. Of two branches
		// the one with the earlier time may be merged later, and its migration is then
		// applied after the other's.
		goose.WithAllowOutofOrder(true),
	)
	if err != nil {
		return err
	}
	return use(provider)
}

// sessionLocker is an advisory lock of the session that runs the migrations. The
// server frees it when the session ends, however it ends. It polls every 50 ms:
// a statement that waits for the lock inside the server would hold a snapshot, for
// which a CREATE INDEX CONCURRENTLY of the lock's holder waits in turn.
type sessionLocker struct{}

// SessionLock implements lock.SessionLocker of the migration library.
func (sessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var locked bool
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, migrationLock).Scan(&locked); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if locked {
			return nil
		}
		if err := sleep(ctx, migrationLockPoll); err != nil {
			return fmt.Errorf("wait for another process that migrates: %w", err)
		}
	}
}

// SessionUnlock implements lock.SessionLocker of the migration library.
func (sessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, migrationLock); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// MigrateDSN opens a connection to the database, brings its schema up to date and
// closes it again: what a test or a command that does nothing else needs.
func MigrateDSN(ctx context.Context, dsn string) error {
	pool, err := Open(ctx, Config{DSN: secret.New(dsn), MaxConns: 2})
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = Migrate(ctx, pool)
	return err
}
