package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestConfigNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://alice:hunter2@db.example:5433/shop",
		"host=db.example port=5433 user=alice password=hunter2 dbname=shop",
		"postgres://alice:hunter2@db.example:5433/shop?sslmode=nonsense",
		"postgres://alice:hunter2@db.example:notaport/shop",
		"postgres://alice:hunter2@[::1/shop",
		"host=db.example password='hunter2",
		"postgres://alice:hunter2@db.example/shop?pool_max_conns=hunter2",
	} {
		cfg := Config{DSN: secret.New(dsn)}
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", cfg)
		_, openErr := Open(t.Context(), Config{DSN: cfg.DSN, ConnectTimeout: 50 * time.Millisecond})
		require.Error(t, openErr, dsn)
		for _, shown := range []string{
			fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %s %q", cfg, cfg, cfg, cfg), logged.String(),
			fmt.Sprint(cfg.Validate()), openErr.Error(),
		} {
			assert.NotContains(t, shown, "hunter2", dsn)
		}
	}
	shown := Config{DSN: secret.New("postgres://alice:hunter2@db.example:5433/shop")}.String()
	assert.Equal(t, "db.example:5433 (user alice, database shop)", shown)
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	err := Config{MaxConns: -1, ConnectTimeout: -1}.Validate()
	require.Error(t, err)
	assert.ErrorContains(t, err, "dsn: is not set")
	assert.ErrorContains(t, err, "max_conns")
	assert.ErrorContains(t, err, "connect_timeout")
	assert.NoError(t, Config{DSN: secret.New("postgres://a@b/c")}.Validate())
}

func TestOpenNamesAddressAndCause(t *testing.T) {
	t.Parallel()
	addr := closedPort(t)
	_, err := Open(t.Context(), Config{DSN: secret.New("postgres://alice:hunter2@" + addr + "/shop?sslmode=disable")})
	require.Error(t, err)
	assert.ErrorContains(t, err, "open postgres at "+addr+" (user alice, database shop)")
	assert.ErrorContains(t, err, "connection refused")
	assert.True(t, IsInfrastructure(err))
}

func TestConnectionsRunInUTC(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	var zone, app string
	var at time.Time
	var list []time.Time
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT current_setting('timezone'), current_setting('application_name'), now(), ARRAY[now()]`).Scan(&zone, &app, &at, &list))
	assert.Equal(t, "UTC", zone)
	assert.Equal(t, ApplicationNameDefault, app)
	assert.Equal(t, time.UTC, at.Location())
	assert.Equal(t, time.UTC, list[0].Location())
}

func TestWaitReadyRetriesUntilTheServerIsThere(t *testing.T) {
	t.Parallel()
	addr := closedPort(t)
	dsn := testenv.TCP(t, testenv.Database(t, nil), addr)
	served := make(chan struct{})
	var attempts int
	pool, err := WaitReady(t.Context(), Config{DSN: secret.New(dsn)}, time.Minute, func(err error, wait time.Duration) {
		assert.ErrorContains(t, err, addr)
		assert.Positive(t, wait)
		if attempts++; attempts == 2 {
			forward(t, addr, testenv.PostgresAddr(t))
			close(served)
		}
	})
	require.NoError(t, err)
	defer pool.Close()
	<-served
	assert.GreaterOrEqual(t, attempts, 2)
}

func TestWaitReadyGivesUpAtTheDeadline(t *testing.T) {
	t.Parallel()
	cfg := Config{DSN: secret.New("postgres://a@" + closedPort(t) + "/x?sslmode=disable")}
	attempts := 0
	_, err := WaitReady(t.Context(), cfg, 250*time.Millisecond, func(error, time.Duration) { attempts++ })
	assert.ErrorContains(t, err, "postgres was not ready within 250ms")
	assert.ErrorContains(t, err, "connection refused")
	assert.Positive(t, attempts)
}

func TestWaitReadyDoesNotRetryWhatWaitingCannotMend(t *testing.T) {
	t.Parallel()
	never := func(error, time.Duration) { t.Error("was retried") }
	_, err := WaitReady(t.Context(), Config{DSN: secret.New("postgres://a@b:notaport/c")}, time.Hour, never)
	require.Error(t, err)

	wrong := testenv.TCP(t, testenv.Database(t, nil), "")
	cfg, err := Config{DSN: secret.New(wrong)}.pool()
	require.NoError(t, err)
	bad := fmt.Sprintf("host=%s port=%d user=nobody_known password=x dbname=postgres sslmode=disable", cfg.ConnConfig.Host, cfg.ConnConfig.Port)
	_, err = WaitReady(t.Context(), Config{DSN: secret.New(bad)}, time.Hour, never)
	require.Error(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = WaitReady(ctx, Config{DSN: secret.New(wrong)}, time.Hour, never)
	require.ErrorIs(t, err, context.Canceled)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	f, err := Inspect(t.Context(), pool)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, f.Major, MinMajor)
	assert.NoError(t, f.Supported())
	assert.True(t, f.CanCreate)
	assert.False(t, f.InRecovery)
	assert.Equal(t, "UTF8", f.Encoding)
	assert.Positive(t, f.UsedConns)
	assert.Positive(t, f.FreeConns())
	assert.Equal(t, int(pool.Config().MaxConns), f.PoolConns)
	assert.Less(t, f.ClockSkew.Abs(), time.Minute, "the server runs on this machine")
	assert.Positive(t, f.RoundTrip)
	assert.Positive(t, f.DatabaseBytes)
	assert.ErrorContains(t, Facts{Major: 14, Version: "14.2"}.Supported(), "14.2")
	assert.Error(t, Facts{Major: 19}.Supported())
}

// closedPort returns a loopback address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return ln.Addr().String()
}

// forward listens on addr and connects whoever comes with target.
func forward(t *testing.T, addr, target string) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if !assert.NoError(t, err) {
		return
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
}

func pipe(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
