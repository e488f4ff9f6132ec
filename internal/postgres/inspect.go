package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The range of PostgreSQL major versions that Millrace is tested with.
const (
	MinMajor = 15
	MaxMajor = 18
)

// Facts is what can be learnt about a server by asking it.
type Facts struct {
	// Version is the server's own text, such as "15.8 (Debian 15.8-0+deb12u1)";
	// Major is its first number.
	Version string
	Major   int
	// Database, User and Schema are what the connection really got. Schema is
	// where new tables go; empty when the search path leads nowhere.
	Database string
	User     string
	Schema   string
	Encoding string
	// MaxConns is max_connections, ReservedConns the part of it kept for
	// superusers, UsedConns what all clients use now.
	MaxConns      int
	ReservedConns int
	UsedConns     int
	// PoolConns is the size of the pool that asked.
	PoolConns int
	// CanCreate: the user may create tables in Schema, as migrations must.
	CanCreate bool
	// InRecovery: the server is a standby and takes no writes.
	InRecovery bool
	// ReadOnly: transactions are read-only by default.
	ReadOnly bool
	// Fsync and FullPageWrites off mean that a crash of the machine can lose or
	// damage what was committed; SynchronousCommit "off" that it can lose the last
	// moments.
	Fsync             bool
	FullPageWrites    bool
	SynchronousCommit string
	// ClockSkew is the server's clock minus ours; it is known up to half of
	// RoundTrip. Leases do not depend on it, the age of events does.
	ClockSkew time.Duration
	RoundTrip time.Duration
	// DatabaseBytes is the size of the database on disk.
	DatabaseBytes int64
}

// Supported returns an error when Millrace is not tested with the version.
func (f Facts) Supported() error {
	if f.Major < MinMajor || f.Major > MaxMajor {
		return fmt.Errorf("postgres %s is not supported: want %d to %d", f.Version, MinMajor, MaxMajor)
	}
	return nil
}

// FreeConns is how many connections an ordinary user can still open.
func (f Facts) FreeConns() int { return max(0, f.MaxConns-f.ReservedConns-f.UsedConns) }

// Inspect asks the server for its facts.
func Inspect(ctx context.Context, pool *pgxpool.Pool) (Facts, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Facts{}, fmt.Errorf("inspect postgres: %w", connectCause(err))
	}
	defer conn.Release()

	f := Facts{PoolConns: int(pool.Config().MaxConns)}
	var number int
	err = conn.QueryRow(ctx, `
		SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
			current_database(), current_user, coalesce(current_schema(), ''), current_setting('server_encoding'),
			current_setting('max_connections')::integer, current_setting('superuser_reserved_connections')::integer,
			(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
			coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
			pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean,
			current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean,
			current_setting('synchronous_commit'), pg_database_size(current_database())`,
	).Scan(&f.Version, &number, &f.Database, &f.User, &f.Schema, &f.Encoding,
		&f.MaxConns, &f.ReservedConns, &f.UsedConns, &f.CanCreate, &f.InRecovery, &f.ReadOnly,
		&f.Fsync, &f.FullPageWrites, &f.SynchronousCommit, &f.DatabaseBytes)
	if err != nil {
		return Facts{}, fmt.Errorf("inspect postgres: %w", err)
	}
	f.Major = number / 10000

	// The clock is read in a round trip of its own, because the one above may have
	// prepared its statement first.
	const now = `SELECT clock_timestamp()`
	for range 3 { // the quickest of a few round trips says most
		var server time.Time
		sent := time.Now()
		if err := conn.QueryRow(ctx, now).Scan(&server); err != nil {
			return Facts{}, fmt.Errorf("inspect postgres: %w", err)
		}
		if trip := time.Since(sent); f.RoundTrip == 0 || trip < f.RoundTrip {
			f.RoundTrip, f.ClockSkew = trip, server.Sub(sent.Add(trip/2))
		}
	}
	return f, nil
}
