package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/testenv"
)

// actEnv makes the test binary act as one that gets killed in the middle of a
// test, or that leaves a goroutine behind.
const actEnv = "MILLRACE_TEST_TESTENV_ACT"

func TestMain(m *testing.M) { testenv.Run(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// migrations counts how often migrateOne ran.
var migrations atomic.Int64

func migrateOne(ctx context.Context, dsn string) error {
	migrations.Add(1)
	return migrateTo(ctx, dsn, "CREATE TABLE one (n int); INSERT INTO one VALUES (1)")
}

func migrateTwo(ctx context.Context, dsn string) error {
	return migrateTo(ctx, dsn, "CREATE TABLE two (n int)")
}

func migrateBadly(context.Context, string) error { return errors.New("no such luck") }

func migrateTo(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func TestDatabasesAreMigratedOnceAndApart(t *testing.T) {
	t.Parallel()
	var names []string
	t.Run("tests", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				conn := connect(t, testenv.Database(t, migrateOne))
				require.Equal(t, 1, query[int](t, conn, "SELECT sum(n)::int FROM one"), "nobody else's rows")
				_, err := conn.Exec(t.Context(), "INSERT INTO one VALUES (41)")
				require.NoError(t, err)
			})
		}
	})
	assert.EqualValues(t, 1, migrations.Load())
	conn := connect(t, testenv.Database(t, migrateTwo))
	assert.Equal(t, 0, query[int](t, conn, "SELECT count(*)::int FROM two"))

	// The databases of the finished tests are gone, connections or not.
	rows, err := conn.Query(t.Context(), "SELECT datname FROM pg_database WHERE datname LIKE 'test%'")
	require.NoError(t, err)
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Less(t, len(names), 8)
}

func TestEmptyDatabaseOverSocketAndTCP(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, nil)
	conn := connect(t, dsn)
	name := query[string](t, conn, "SELECT current_database()")
	assert.Equal(t, 0, query[int](t, conn, "SELECT count(*)::int FROM pg_tables WHERE schemaname = 'public'"))
	for _, addr := range []string{"", testenv.PostgresAddr(t)} {
		tcp := connect(t, testenv.TCP(t, dsn, addr))
		assert.Equal(t, name, query[string](t, tcp, "SELECT current_database()"))
		assert.True(t, query[bool](t, tcp, "SELECT inet_server_port() IS NOT NULL"))
	}
	fsync := query[string](t, conn, "SHOW fsync")
	if os.Getenv("MILLRACE_TEST_FSYNC") == "" {
		assert.Equal(t, "off", fsync)
	} else {
		assert.Equal(t, "on", fsync)
	}
}

// recorder is a test that notes how it would fail.
type recorder struct {
	*testing.T
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	panic(r)
}

func TestMigrationThatFailsFailsTheTest(t *testing.T) {
	t.Parallel()
	for range 2 { // the second does not get a half-made template either
		r := &recorder{T: t}
		func() {
			defer func() { require.Same(t, r, recover()) }()
			testenv.Database(r, migrateBadly)
		}()
		assert.Contains(t, r.fatal, "no such luck")
	}
}

func TestOwnPostgresComesBackWithItsData(t *testing.T) {
	t.Parallel()
	s := testenv.OwnPostgres(t)
	dsn, tcp := s.DSN(), s.TCPDSN()
	conn := connect(t, tcp)
	assert.Equal(t, "on", query[string](t, conn, "SHOW fsync"))
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept (n int)")
	require.NoError(t, err)

	s.Kill()
	_, err = pgx.Connect(t.Context(), tcp)
	require.Error(t, err)
	s.Start()
	assert.Equal(t, dsn, s.DSN())
	assert.Equal(t, tcp, s.TCPDSN())
	assert.Equal(t, 0, query[int](t, connect(t, dsn), "SELECT count(*)::int FROM kept"))
	s.Stop()
	s.Start()
	assert.Equal(t, 0, query[int](t, connect(t, tcp), "SELECT count(*)::int FROM kept"))
}

func TestBrokersAreApart(t *testing.T) {
	t.Parallel()
	topics := func(addrs []string) *kadm.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return kadm.NewClient(cl)
	}
	one, two := topics(testenv.Broker(t)), topics(testenv.Broker(t))
	_, err := one.CreateTopic(t.Context(), 1, 1, nil, "events")
	require.NoError(t, err)
	listed, err := two.ListTopics(t.Context())
	require.NoError(t, err)
	assert.Empty(t, listed.Names())

	dir := t.TempDir()
	b := testenv.StartBroker(t, testenv.WithBrokerDir(dir),
		testenv.WithBrokerConfig(func(cfg *embedded.BrokerConfig) { cfg.Sync = true }))
	_, err = topics(b.Addrs()).CreateTopic(t.Context(), 1, 1, nil, "kept")
	require.NoError(t, err)
	require.NoError(t, b.Close())
	listed, err = topics(testenv.Broker(t, testenv.WithBrokerDir(dir))).ListTopics(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"kept"}, listed.Names())
}

// TestActing is no test of its own: it is what the re-executed binary does.
func TestActing(t *testing.T) {
	switch act := os.Getenv(actEnv); act {
	case "":
		t.Skip("run by other tests, in a process of its own")
	case "leak":
		go func() { select {} }()
	default:
		require.NoError(t, os.WriteFile(act, []byte(testenv.Database(t, nil)), 0o600))
		require.NoError(t, os.Rename(act, act+".done"))
		select {}
	}
}

func acting(t *testing.T, act string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestActing$")
	cmd.Env = append(os.Environ(), actEnv+"="+act)
	return cmd
}

func TestServerEndsWithAKilledTestBinary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dsn")
	cmd := acting(t, file)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	require.Eventually(t, func() bool { _, err := os.Stat(file + ".done"); return err == nil }, time.Minute, 20*time.Millisecond)
	dsn, err := os.ReadFile(file + ".done")
	require.NoError(t, err)
	require.NoError(t, connect(t, string(dsn)).Ping(t.Context()))
	u, err := url.Parse(string(dsn))
	require.NoError(t, err)
	dir := filepath.Dir(filepath.Dir(u.Query().Get("host")))
	require.True(t, strings.HasPrefix(filepath.Base(dir), "millrace-test-"), dir)

	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "pg", "cluster", "postmaster.pid"))
		return errors.Is(err, os.ErrNotExist)
	}, time.Minute, 20*time.Millisecond, "an orderly shutdown removes the note")
	require.NoError(t, os.RemoveAll(dir), "a killed binary leaves its directory")
}

func TestRunFailsOverALeakedGoroutine(t *testing.T) {
	t.Parallel()
	out, err := acting(t, "leak").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "goroutines leaked")
}
