package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/testenv/program"
)

// engine is a running engine and its database.
type engine struct {
	*contract
	// grpc is where it serves gRPC, as far as it was told where.
	grpc    string
	name    string
	process *program.Process
	db      *pgx.Conn
	drop    func(context.Context) error
}

func (e *engine) stop(ctx context.Context) error {
	return errors.Join(e.process.Kill(), e.db.Close(ctx), e.drop(ctx))
}

// commits is how many transactions the engine's database has committed.
func (e *engine) commits(ctx context.Context) (n int64, err error) {
	err = e.db.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

func (e *engine) cpu() time.Duration { return measure.CPU(e.process.PID()) }

// launch starts an engine on a database of its own and waits until it answers.
func (b *bench) launch(ctx context.Context, name, binary string, args []string, env func(dsn, address, grpc string) []string) (*engine, error) {
	dsn, drop, err := b.database(ctx, name)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	grpc, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(b.Dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	e := &engine{contract: newContract("http://"+address, b.callers+b.workers), grpc: grpc, name: name, drop: drop}
	if e.db, err = pgx.Connect(ctx, dsn); err != nil {
		return nil, err
	}
	if e.process, err = program.Start(program.Launch{
		Binary: binary, Args: args, Env: env(dsn, address, grpc), Home: home, Output: filepath.Join(home, "log"),
	}); err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		text, _ := e.process.Log()
		return nil, errors.Join(fmt.Errorf("%s: %w:\n%s", name, err, last(text, 2000)), e.stop(ctx))
	}
	return e, nil
}

func last(text string, n int) string { return text[max(len(text)-n, 0):] }

func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// database creates a database on the server of the run. It speaks without TLS, which a
// server that was started here does not have.
func (b *bench) database(ctx context.Context, name string) (dsn string, drop func(context.Context) error, err error) {
	u, err := url.Parse(b.DSN)
	if err != nil {
		return "", nil, err
	}
	db := strings.Trim(u.Path, "/") + "_" + strings.ReplaceAll(name, "-", "_")
	admin, err := pgx.Connect(ctx, b.DSN)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{db}.Sanitize()); err != nil {
		return "", nil, err
	}
	u.Path = "/" + db
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), func(ctx context.Context) error {
		admin, err := pgx.Connect(ctx, b.DSN)
		if err != nil {
			return err
		}
		defer func() { _ = admin.Close(ctx) }()
		_, err = admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{db}.Sanitize()+" WITH (FORCE)")
		return err
	}, nil
}

// ready waits until the engine takes the definition of the load.
func (e *engine) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := e.http.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode < http.StatusInternalServerError {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("does not answer: %w", ctx.Err())
		case <-e.process.Done():
			return errors.New("ended before it was ready")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// build builds Millrace from this tree, unless a binary was named.
func (b *bench) build(ctx context.Context) (string, error) {
	if b.binary != "" {
		return b.binary, nil
	}
	path := filepath.Join(b.Dir, "millrace-bin")
	out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/millrace").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build millrace (run this from the root of the repository, or give -binary): %w\n%s", err, out)
	}
	return path, nil
}

// startPeer starts the other engine, in its default mode.
func (b *bench) startPeer(ctx context.Context) (*engine, error) {
	return b.launch(ctx, "peer", b.peer, nil, func(dsn, address, grpc string) []string {
		_, port, _ := net.SplitHostPort(address)
		metrics, _ := freeAddress(ctx)
		_, grpcPort, _ := net.SplitHostPort(grpc)
		_, metricsPort, _ := net.SplitHostPort(metrics)
		return []string{
			"WE_POSTGRES_DSN=" + dsn, "WE_REST_PORT=" + port, "WE_GRPC_PORT=" + grpcPort,
			"WE_METRICS_PORT=" + metricsPort, "WE_LOG_LEVEL=warn",
		}
	})
}

// startMillrace starts Millrace with the roles, all if there are none; lifecycle says
// whether the events of instances go to Kafka. Settings are further ones, as variables of
// the environment.
func (b *bench) startMillrace(ctx context.Context, name, binary, roles string, lifecycle bool, settings ...string) (*engine, error) {
	return b.launch(ctx, name, binary, []string{"serve", "--migrate"}, func(dsn, address, grpc string) []string {
		env := append([]string{
			"MILLRACE_POSTGRES_DSN=" + dsn, "MILLRACE_KAFKA_BROKERS=" + strings.Join(b.Brokers, ","),
			"MILLRACE_API_LISTEN=" + address, "MILLRACE_API_AUTH_MODE=off", "MILLRACE_ADMIN_LISTEN=127.0.0.1:0",
			"MILLRACE_GRPC_LISTEN=" + grpc, "MILLRACE_LOG_LEVEL=warn",
			fmt.Sprintf("MILLRACE_WORKFLOWS_LIFECYCLE=%t", lifecycle),
		}, settings...)
		if roles != "" {
			env = append(env, "MILLRACE_ROLES="+roles)
		}
		return env
	})
}

// drain waits until everything that was committed is published.
func (e *engine) drain(ctx context.Context) error {
	for {
		var table, left bool
		if err := e.db.QueryRow(ctx, `SELECT to_regclass('outbox_events') IS NOT NULL`).Scan(&table); err != nil || !table {
			return err
		}
		if err := e.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox_events WHERE status = 'PENDING')`).Scan(&left); err != nil || !left {
			return err
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// forget has the server count statements anew.
func (b *bench) forget(ctx context.Context, e *engine) error {
	if b.statements == 0 {
		return nil
	}
	_, err := e.db.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	if err == nil {
		_, err = e.db.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	}
	return err
}

// tellStatements lists what the server spent most time on, per instance.
func (b *bench) tellStatements(ctx context.Context, e *engine, row string, instances int64) error {
	if b.statements == 0 {
		return nil
	}
	rows, err := e.db.Query(ctx, `
		SELECT calls / $2::float8, (total_exec_time + total_plan_time) * 1000 / $2, rows / $2::float8, plans / $2::float8, total_plan_time * 1000 / $2, wal_bytes / $2::float8, regexp_replace(query, '\s+', ' ', 'g')
		FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY total_exec_time + total_plan_time DESC LIMIT $1`, b.statements, instances)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: calls, µs, rows, plans, µs of planning, WAL bytes per instance\n", row)
	var calls, micros, count, plans, planning, wal float64
	var text string
	_, err = pgx.ForEachRow(rows, []any{&calls, &micros, &count, &plans, &planning, &wal, &text}, func() error {
		fmt.Fprintf(os.Stderr, "%8.2f %8.1f %8.2f %8.2f %8.1f %8.0f  %.110s\n", calls, micros, count, plans, planning, wal, text)
		return nil
	})
	return err
}
