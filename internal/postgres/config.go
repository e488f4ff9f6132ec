package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/secret"
)

// Defaults of Config.
const (
	ConnectTimeoutDefault  = 5 * time.Second
	ApplicationNameDefault = "millrace"
	minPoolConns           = 10
	connsPerCore           = 4
)

// Bounds of the pause between two attempts of WaitReady.
const (
	readyBackoffMin = 100 * time.Millisecond
	readyBackoffMax = 5 * time.Second
)

// Config says which database to use and with how many connections. Printing a
// Config shows host, user and database, never the password.
type Config struct {
	// DSN is a URL (postgres://user:password@host:5432/database) or a list of
	// keywords (host=... user=...). What it leaves out comes from the usual
	// environment variables (PGHOST, PGPASSWORD, ...).
	DSN secret.Secret
	// MaxConns bounds the pool. Defaults to 4 per core, at least 10. A process
	// opens one further connection for Signals.
	MaxConns int32
	// MinConns is how many connections stay open at least. Defaults to none.
	MinConns int32
	// ConnectTimeout bounds one attempt to connect. Defaults to 5 s.
	ConnectTimeout time.Duration
	// ApplicationName is what pg_stat_activity shows. Defaults to "millrace". A
	// name in the DSN wins.
	ApplicationName string
}

func (c Config) withDefaults() Config {
	c.MaxConns = cmp.Or(c.MaxConns, max(minPoolConns, int32(min(runtime.NumCPU(), 1024)*connsPerCore)))
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, ConnectTimeoutDefault)
	c.ApplicationName = cmp.Or(c.ApplicationName, ApplicationNameDefault)
	return c
}

// Validate reports every fault of the configuration, joined into one error.
func (c Config) Validate() error {
	var errs []error
	if c.DSN.IsZero() {
		errs = append(errs, errors.New("dsn: is not set"))
	} else if _, err := c.pool(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxConns < 0 {
		errs = append(errs, fmt.Errorf("max_conns: is %d, want 1 or more", c.MaxConns))
	}
	if most := c.withDefaults().MaxConns; c.MinConns < 0 || c.MaxConns >= 0 && c.MinConns > most {
		errs = append(errs, fmt.Errorf("min_conns: is %d, want 0 to max_conns (%d)", c.MinConns, most))
	}
	if c.ConnectTimeout < 0 {
		errs = append(errs, fmt.Errorf("connect_timeout: is %s, want a positive duration", c.ConnectTimeout))
	}
	return errors.Join(errs...)
}

// Address says in words which database the configuration means: host, port, user
// and database name, and no password.
func (c Config) Address() string {
	pool, err := c.pool()
	if err != nil {
		return "an invalid address"
	}
	return address(&pool.ConnConfig.Config)
}

// String is Address.
func (c Config) String() string { return c.Address() }

// GoString keeps %#v from printing fields one by one.
func (c Config) GoString() string { return "postgres.Config{" + c.Address() + "}" }

// LogValue implements slog.LogValuer.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.Address()) }

func address(c *pgconn.Config) string {
	hosts := []string{hostPort(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		// A host is listed once more as the fallback without TLS.
		if h := hostPort(f.Host, f.Port); h != hosts[len(hosts)-1] {
			hosts = append(hosts, h)
		}
	}
	return fmt.Sprintf("%s (user %s, database %s)", strings.Join(hosts, ","), c.User, cmp.Or(c.Database, c.User))
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// pool translates the configuration into the driver's.
func (c Config) pool() (*pgxpool.Config, error) {
	c = c.withDefaults()
	pool, err := pgxpool.ParseConfig(c.DSN.Reveal())
	if err != nil {
		return nil, dsnError(err)
	}
	pool.MaxConns = c.MaxConns
	pool.MinConns = c.MinConns
	conn := pool.ConnConfig
	conn.ConnectTimeout = c.ConnectTimeout
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = c.ApplicationName
	}
	conn.RuntimeParams["timezone"] = "UTC"
	pool.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		readTimesInUTC(conn.TypeMap())
		carryUUIDs(conn.TypeMap())
		return nil
	}
	return pool, nil
}

// dsnError drops the text of the DSN from a parser's error. The driver redacts
// what it recognises as a password, but a DSN that cannot be parsed is just where
// it may not recognise one.
func dsnError(err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		rest := strings.TrimPrefix(parse.Error(), "cannot parse `")
		if _, reason, found := strings.Cut(rest, "`: "); found && parse.Unwrap() == nil {
			return fmt.Errorf("dsn: %s", reason)
		}
		return errors.New("dsn: cannot be parsed; want postgres://user:password@host:5432/database or keywords such as host=localhost user=millrace")
	}
	return errors.New("dsn: a pool setting in it cannot be parsed")
}

// readTimesInUTC makes timestamptz come back in UTC rather than in the zone of
// the machine, so that what is printed does not depend on where it runs.
func readTimesInUTC(m *pgtype.Map) {
	t := &pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}}
	m.RegisterType(t)
	m.RegisterType(&pgtype.Type{Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: t}})
}

// Open connects to the database and returns a pool that has been used once. The
// error names the address and the cause.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	poolConfig, err := cfg.pool()
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().ConnectTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open postgres at %s: %w", cfg.Address(), connectCause(err))
	}
	return pool, nil
}

// connectCause takes the driver's own preamble off, which repeats the address.
func connectCause(err error) error {
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok && connect.Unwrap() != nil {
		return connect.Unwrap()
	}
	return err
}

// WaitReady calls Open until it succeeds, for at most the given time. Between
// attempts it waits 100 ms, 200 ms ... 5 s, and tells onAttempt (which may be
// nil) what went wrong and how long it will wait. An invalid configuration and a
// refused login end it at once, since waiting does not mend them.
func WaitReady(ctx context.Context, cfg Config, within time.Duration, onAttempt func(err error, wait time.Duration)) (*pgxpool.Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	deadline := time.Now().Add(within)
	for wait := readyBackoffMin; ; wait = min(wait*2, readyBackoffMax) {
		pool, err := Open(ctx, cfg)
		if err == nil {
			return pool, nil
		}
		if ctx.Err() != nil || refusedLogin(err) {
			return nil, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, fmt.Errorf("postgres was not ready within %s: %w", within, err)
		}
		pause := min(wait+rand.N(wait/4), left)
		if onAttempt != nil {
			onAttempt(err, pause)
		}
		if sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}

func refusedLogin(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "28")
}

// sleep waits for d or until ctx ends, and returns the error of ctx then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
