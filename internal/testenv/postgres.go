package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/embedded"
)

// fsyncEnv makes the shared server run with fsync on.
const fsyncEnv = "MILLRACE_TEST_FSYNC"

// Migrate brings an empty database to the schema that a test needs.
type Migrate func(ctx context.Context, dsn string) error

// server is the PostgreSQL of the test binary.
type server struct {
	pg        *embedded.Postgres
	dir       string
	databases atomic.Int64
	mu        sync.Mutex
	templates map[uintptr]*template
}

// template is a migrated database that those of the tests are copied from.
type template struct {
	once sync.Once
	name string
	err  error
}

// sharedServer starts the server of the test binary at the first call.
var sharedServer = sync.OnceValues(func() (*server, error) {
	dir, err := serverDir()
	if err != nil {
		return nil, err
	}
	settings := map[string]string{"max_connections": "300", "max_prepared_transactions": "20"}
	if os.Getenv(fsyncEnv) == "" {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	pg, err := startOnFreePort(context.Background(), embedded.PostgresConfig{
		DataDir: filepath.Join(dir, "pg"), Settings: settings})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	AtExit(func(ctx context.Context) error { return errors.Join(pg.Stop(ctx), os.RemoveAll(dir)) })
	return &server{pg: pg, dir: dir, templates: map[uintptr]*template{}}, nil
})

// Database makes a database for the test and returns its connection string. It is
// dropped when the test ends, with the connections that are left.
//
// migrate may be nil for an empty database. It runs once per test binary, on a
// template that the databases are copied from, which takes some 30 ms; it is
// told apart by its code, so pass a named function, not one that captures
// variables.
func Database(t testing.TB, migrate Migrate) (dsn string) {
	t.Helper()
	s := sharedPostgres(t)
	from := "template1"
	if migrate != nil {
		tmpl := s.template(migrate)
		tmpl.once.Do(func() { tmpl.err = s.prepare(t.Context(), tmpl, migrate) })
		if tmpl.err != nil {
			t.Fatalf("testenv: migrate the template database: %v", tmpl.err)
		}
		from = tmpl.name
	}
	name := s.newName("test")
	if err := s.exec(t.Context(), "CREATE DATABASE "+ident(name)+" TEMPLATE "+ident(from)); err != nil {
		t.Fatalf("testenv: create database: %v", err)
	}
	t.Cleanup(func() {
		if err := s.exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+ident(name)+" WITH (FORCE)"); err != nil {
			t.Errorf("testenv: drop database: %v", err)
		}
	})
	return withDatabase(s.pg.DSN(), name)
}

// TCP returns the connection string that Database returned, changed to go over
// the given loopback address, such as a proxy's. An empty address stands for the
// server's own.
func TCP(t testing.TB, dsn, addr string) string {
	t.Helper()
	tcp := sharedPostgres(t).pg.TCPDSN()
	u, err := url.Parse(tcp)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	if addr != "" {
		u.Host = addr
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return withDatabase(u.String(), config.Database)
}

// PostgresAddr returns the TCP address of the shared server, for a proxy.
func PostgresAddr(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(sharedPostgres(t).pg.TCPDSN())
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return u.Host
}

func sharedPostgres(t testing.TB) *server {
	t.Helper()
	s, err := sharedServer()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return s
}

func (s *server) template(migrate Migrate) *template {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := reflect.ValueOf(migrate).Pointer()
	if s.templates[id] == nil {
		s.templates[id] = &template{name: s.newName("template")}
	}
	return s.templates[id]
}

func (s *server) prepare(ctx context.Context, tmpl *template, migrate Migrate) error {
	if err := s.exec(ctx, "CREATE DATABASE "+ident(tmpl.name)); err != nil {
		return err
	}
	if err := migrate(ctx, withDatabase(s.pg.DSN(), tmpl.name)); err != nil {
		return err
	}
	// A template that anybody is connected to cannot be copied.
	if err := s.exec(ctx, "ALTER DATABASE "+ident(tmpl.name)+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	return s.exec(ctx, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '`+tmpl.name+`'`)
}

func (s *server) newName(kind string) string {
	return fmt.Sprintf("%s_%d", kind, s.databases.Add(1))
}

func (s *server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.pg.DSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// withDatabase replaces the database of a connection string.
func withDatabase(dsn, database string) string {
	base, query, _ := strings.Cut(dsn, "?")
	return base[:strings.LastIndex(base, "/")+1] + url.PathEscape(database) + "?" + query
}

// DataDir makes a directory for a test that a PostgreSQL can work in also when
// root runs the test: t.TempDir lets only its owner pass. It is removed when the
// test ends.
func DataDir(t testing.TB) string {
	t.Helper()
	dir, err := serverDir()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testenv: %v", err)
		}
	})
	return dir
}

// serverDir makes a directory that the user who PostgreSQL runs as may enter;
// as root that is somebody else.
func serverDir() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// startOnFreePort starts a server on a TCP port that was free a moment ago and
// tries another when somebody took it in between.
func startOnFreePort(ctx context.Context, cfg embedded.PostgresConfig) (*embedded.Postgres, error) {
	for attempt := 1; ; attempt++ {
		ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		cfg.Port = ln.Addr().(*net.TCPAddr).Port
		if err := ln.Close(); err != nil {
			return nil, err
		}
		pg, err := embedded.StartPostgres(ctx, cfg)
		taken := errors.Is(err, syscall.EADDRINUSE) || (err != nil && strings.Contains(err.Error(), "Address already in use"))
		if !taken || attempt == 5 {
			return pg, err
		}
	}
}

// PostgresServer is a server of one test, which the test may stop and kill. It
// listens on the same addresses over restarts and has fsync on.
type PostgresServer struct {
	t   testing.TB
	cfg embedded.PostgresConfig
	mu  sync.Mutex
	pg  *embedded.Postgres
}

// OwnPostgres starts a server for this test alone, for tests about PostgreSQL
// going away.
func OwnPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	dir, err := serverDir()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	s := &PostgresServer{t: t, cfg: embedded.PostgresConfig{DataDir: filepath.Join(dir, "pg")}}
	t.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testenv: %v", err)
		}
	})
	if s.pg, err = startOnFreePort(t.Context(), s.cfg); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	u, err := url.Parse(s.pg.TCPDSN())
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	if _, err := fmt.Sscan(u.Port(), &s.cfg.Port); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return s
}

// DSN returns the connection string over the unix socket.
func (s *PostgresServer) DSN() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pg.DSN()
}

// TCPDSN returns the connection string over loopback TCP.
func (s *PostgresServer) TCPDSN() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pg.TCPDSN()
}

// Stop shuts the server down in order; it can be started again.
func (s *PostgresServer) Stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pg == nil {
		return
	}
	if err := s.pg.Stop(context.Background()); err != nil {
		s.t.Errorf("testenv: %v", err)
	}
}

// Kill ends the server with SIGKILL.
func (s *PostgresServer) Kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pg.Kill(); err != nil {
		s.t.Errorf("testenv: %v", err)
	}
}

// Start starts the server again after Stop or Kill, with its data.
func (s *PostgresServer) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	pg, err := embedded.StartPostgres(context.WithoutCancel(s.t.Context()), s.cfg)
	if err != nil {
		s.t.Fatalf("testenv: %v", err)
	}
	s.pg = pg
}
