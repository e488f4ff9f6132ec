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
	"regexp"
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
	// Needs is the version that a program has to know in order to go on where this one is
	// applied without being known: usually the newest one of the release before. 0 says
	// that it has to know this one.
	Needs int64
	// Applied is when it was applied. Zero means it is pending.
	Applied time.Time
	// Newer says that the binary does not have it and goes on with it all the same.
	Newer bool
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
	// Unknown are versions that only a newer binary knows, and that this one cannot go on
	// without knowing.
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

// Migrate applies what is missing, each migration in a transaction of its own (or
// piece by piece, where a transaction would lock others out), and returns what it
// applied, also when a later one fails. Several processes may call it at once: one works
// and the others wait, for as long as ctx allows, and find nothing left to do.
//
// It is meant to run while others work. No statement stands in line for a lock for
// longer than a second; it gives up then, and tries again, for some minutes in all.
//
// The lock belongs to the session, so the DSN must lead to PostgreSQL itself and
// not to a pooler in transaction mode.
func Migrate(ctx context.Context, pool *pgxpool.Pool) ([]Applied, error) {
	var applied []Applied
	err := withProvider(pool, func(p *goose.Provider, known migrations) error {
		return patiently(ctx, func() error {
			results, err := p.Up(ctx)
			if partial, ok := errors.AsType[*goose.PartialError](err); ok {
				results, err = partial.Applied, known.failed(partial)
			}
			for _, r := range results {
				applied = append(applied, Applied{Version: r.Source.Version, Name: known.name(r.Source.Version), Duration: r.Duration})
			}
			return err
		})
	})
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

func (list migrations) failed(e *goose.PartialError) error {
	if e.Failed == nil || e.Failed.Source == nil {
		return e.Err
	}
	return fmt.Errorf("%s: %w", list.name(e.Failed.Source.Version), e.Err)
}

// MigrateDown takes back every migration above version, the newest first, with
// the data that they hold. Version 0 takes back all.
func MigrateDown(ctx context.Context, pool *pgxpool.Pool, version int64) error {
	err := withProvider(pool, func(p *goose.Provider, known migrations) error {
		_, err := p.DownTo(ctx, version)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			err = known.failed(partial)
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
		known[i].Applied = applied[m.Version].at
		delete(applied, m.Version)
	}
	for version, a := range applied {
		known = append(known, Migration{Version: version, Needs: a.needs, Applied: a.at, Newer: known.known(a.needs)})
	}
	slices.SortFunc(known, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return known, nil
}

// CheckCurrent returns a *SchemaError when migrations are pending or the database
// has ones that this binary does not know and has to (Migration.Needs). It is cheap and
// writes nothing, so it fits a readiness check.
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
		case m.Name == "" && !m.Newer:
			fault.Unknown = append(fault.Unknown, m.Version)
		}
	}
	if len(fault.Pending)+len(fault.Unknown) == 0 {
		return nil
	}
	return fault
}

// needs is the line of a migration's file that says what a program has to know in order
// to go on with it.
var needs = regexp.MustCompile(`(?m)^-- \+millrace needs ([0-9]+)$`)

// embedded returns the migrations of this binary, by version.
func embedded() (migrations, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make(migrations, 0, len(files))
	for _, f := range files {
		m := Migration{Name: path.Base(f)}
		digits, _, _ := strings.Cut(m.Name, "_")
		if m.Version, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return nil, fmt.Errorf("migration %s: the name does not begin with a version", m.Name)
		}
		text, err := fs.ReadFile(migrationFiles, f)
		if err != nil {
			return nil, err
		}
		if found := needs.FindSubmatch(text); found != nil {
			if m.Needs, err = strconv.ParseInt(string(found[1]), 10, 64); err != nil {
				return nil, fmt.Errorf("migration %s: %w", m.Name, err)
			}
		}
		list = append(list, m)
	}
	for _, p := range programs() {
		list = append(list, p.Migration)
	}
	slices.SortFunc(list, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

func withProvider(pool *pgxpool.Pool, use func(*goose.Provider, migrations) error) error {
	known, err := embedded()
	if err != nil {
		return err
	}
	compatible := map[int64]int64{}
	for _, m := range known {
		if m.Needs != 0 {
			compatible[m.Version] = m.Needs
		}
	}
	var written []*goose.Migration
	for _, p := range programs() {
		written = append(written, p.goose())
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	// Closing db does not close the pool beneath it.
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(versions{needs: compatible}),
		goose.WithGoMigrations(written...),
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
	return use(provider, known)
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
			return setLockTimeout(ctx, conn, lockPatience)
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
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, migrationLock)
	if err = errors.Join(err, setLockTimeout(ctx, conn, 0)); err != nil {
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
