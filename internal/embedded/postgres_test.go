package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/embedded"
)

func startPostgres(t *testing.T, cfg embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	cfg.NoFetch = true
	if cfg.Settings == nil {
		cfg.Settings = map[string]string{"fsync": "off"} // these tests kill processes, not the machine
	}
	pg, err := embedded.StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.Background())) })
	return pg
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func TestPostgresIsSafeAndReadyToUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	pg := startPostgres(t, embedded.PostgresConfig{DataDir: dir, Settings: map[string]string{}})
	conn := connect(t, pg.DSN())
	assert.Equal(t, embedded.PostgresUser, query[string](t, conn, "SELECT current_database()"))
	assert.Equal(t, "on", query[string](t, conn, "SHOW fsync"))
	assert.Equal(t, "on", query[string](t, conn, "SHOW synchronous_commit"))
	assert.Equal(t, "on", query[string](t, conn, "SHOW data_checksums"))
	assert.Equal(t, "UTF8", query[string](t, conn, "SHOW server_encoding"))
	assert.Equal(t, "UTC", query[string](t, conn, "SHOW timezone"))
	assert.Equal(t, "200", query[string](t, conn, "SHOW max_connections"))
	assert.Empty(t, query[string](t, conn, "SHOW listen_addresses"), "no TCP unless asked for")
	assert.Empty(t, pg.TCPDSN())

	info, err := os.Stat(filepath.Join(dir, "password"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	wrong, err := pgx.ParseConfig(pg.DSN())
	require.NoError(t, err)
	wrong.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), wrong)
	require.ErrorContains(t, err, "password authentication failed")
}

func TestPostgresKeepsItsDataAndItsDSNOverARestart(t *testing.T) {
	t.Parallel()
	cfg := embedded.PostgresConfig{DataDir: filepath.Join(openDir(t), "pg")}
	pg := startPostgres(t, cfg)
	dsn := pg.DSN()
	conn := connect(t, dsn)
	exec1(t, conn, "CREATE TABLE kept (n int)")
	exec1(t, conn, "INSERT INTO kept SELECT generate_series(1, 1000)")
	require.NoError(t, pg.Stop(t.Context()), "with a connection open")
	_, running := <-pg.Exited()
	assert.False(t, running, "a stop is no unexpected end")
	_, err := pgx.Connect(t.Context(), dsn)
	require.Error(t, err)

	pg = startPostgres(t, cfg)
	assert.Equal(t, dsn, pg.DSN())
	assert.Equal(t, 1000, query[int](t, connect(t, dsn), "SELECT count(*) FROM kept"))
	found, err := embedded.PostgresDSN(cfg.DataDir)
	require.NoError(t, err)
	assert.Equal(t, dsn, found)
}

func TestPostgresDiesWithItsKilledParentAndKeepsCommits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	for life := range 2 {
		dsn, kill := startKillable(t, "postgres", dir)
		conn := connect(t, dsn)
		exec1(t, conn, "CREATE TABLE IF NOT EXISTS kept (n int)")
		exec1(t, conn, fmt.Sprintf("INSERT INTO kept VALUES (%d)", life))
		kill()
	}
	// The server of the second life may still be on its way down: the start waits.
	pg := startPostgres(t, embedded.PostgresConfig{DataDir: dir})
	assert.Equal(t, 2, query[int](t, connect(t, pg.DSN()), "SELECT count(*) FROM kept"))
}

func TestPostgresStopsAnOrphan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	dsn, kill := startKillable(t, "postgres", dir)
	orphan := query[int](t, connect(t, dsn+"&application_name=probe"), "SELECT pg_backend_pid()")
	require.NotZero(t, orphan)
	postmaster := postmasterPID(t, dir)
	// Stopped by the signal, it cannot act on the death of its parent, as on a
	// platform where nobody tells it.
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGSTOP))
	kill()
	var out bytes.Buffer
	resumed := make(chan error, 1)
	cfg := embedded.PostgresConfig{DataDir: dir, Log: slog.New(onMessage{
		Handler: slog.NewTextHandler(&out, nil), message: "stopping the postgres of an earlier run",
		do: func() { resumed <- syscall.Kill(postmaster, syscall.SIGCONT) },
	})}
	pg := startPostgres(t, cfg)
	require.NoError(t, <-resumed)
	assert.Contains(t, out.String(), "pid="+strconv.Itoa(postmaster))
	assert.NotEqual(t, postmaster, pg.PID())
	require.NoError(t, connect(t, pg.DSN()).Ping(t.Context()))
}

// onMessage is a log handler that does something when it sees a message.
type onMessage struct {
	slog.Handler
	message string
	do      func()
}

func (h onMessage) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

func postmasterPID(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cluster", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.Split(string(text), "\n")[0])
	require.NoError(t, err)
	return pid
}

// A process id is used again by somebody else, who must not be harmed, and whose
// being alive must not keep the server from starting.
func TestPostgresLeavesTheProcessBehindAStalePidAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	pg := startPostgres(t, embedded.PostgresConfig{DataDir: dir})
	note, err := os.ReadFile(filepath.Join(dir, "cluster", "postmaster.pid"))
	require.NoError(t, err)
	require.NoError(t, pg.Stop(t.Context()))

	stranger := exec.Command("sleep", "600")
	require.NoError(t, stranger.Start())
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	_, rest, _ := bytes.Cut(note, []byte("\n"))
	stale := fmt.Sprintf("%d\n%s", stranger.Process.Pid, rest)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cluster", "postmaster.pid"), []byte(stale), 0o600))

	_, err = embedded.PostgresDSN(dir)
	require.ErrorContains(t, err, "none is running")
	pg = startPostgres(t, embedded.PostgresConfig{DataDir: dir})
	require.NoError(t, connect(t, pg.DSN()).Ping(t.Context()))
	select {
	case err := <-ended:
		t.Fatalf("the stranger was ended: %v", err)
	default:
	}
	require.NoError(t, stranger.Process.Kill())
	<-ended
}

func TestPostgresReportsThatItEndedByItself(t *testing.T) {
	t.Parallel()
	cfg := embedded.PostgresConfig{DataDir: filepath.Join(openDir(t), "pg")}
	pg := startPostgres(t, cfg)
	conn := connect(t, pg.DSN())
	exec1(t, conn, "CREATE TABLE kept (n int)")
	exec1(t, conn, "INSERT INTO kept VALUES (1)")
	require.NoError(t, syscall.Kill(pg.PID(), syscall.SIGKILL))
	require.ErrorContains(t, <-pg.Exited(), "ended by itself (signal: killed)")
	_, more := <-pg.Exited()
	assert.False(t, more)
	require.NoError(t, pg.Stop(t.Context()))

	pg = startPostgres(t, cfg) // crash recovery
	assert.Equal(t, 1, query[int](t, connect(t, pg.DSN()), "SELECT n FROM kept"))
}

func TestPostgresRefusesADirectoryThatIsHeld(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	_, _ = startKillable(t, "postgres", dir)
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{DataDir: dir, NoFetch: true})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.ErrorContains(t, err, dir)
	require.Regexp(t, `held by process \d+`, err.Error())
}

func TestPostgresRefusesAClusterOfAnotherMajorVersionAndKeepsIt(t *testing.T) {
	t.Parallel()
	for _, major := range []string{"12", "99"} {
		dir := filepath.Join(openDir(t), "pg")
		cfg := embedded.PostgresConfig{DataDir: dir, DataDirSetting: "--data-dir"}
		require.NoError(t, startPostgres(t, cfg).Stop(t.Context()))
		version := filepath.Join(dir, "cluster", "PG_VERSION")
		original, err := os.ReadFile(version)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(version, []byte(major+"\n"), 0o600))

		_, err = embedded.StartPostgres(t.Context(), cfg)
		require.ErrorContains(t, err, "was made by PostgreSQL "+major)
		require.ErrorContains(t, err, "choose another data directory with --data-dir")

		require.NoError(t, os.WriteFile(version, original, 0o600))
		startPostgres(t, cfg) // nothing is lost
	}
}

func TestPostgresSaysWhichVersionAClusterNeeds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "cluster"), 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(dir, "cluster"), 65534, 65534))
	}
	// No machine has all versions; this one lacks at least one of them.
	for major := embedded.PostgresMajorMin; major <= embedded.PostgresMajorMax; major++ {
		version := filepath.Join(dir, "cluster", "PG_VERSION")
		require.NoError(t, os.WriteFile(version, fmt.Appendln(nil, major), 0o644))
		_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{DataDir: dir, NoFetch: true})
		require.Error(t, err, "the cluster is empty")
		if strings.Contains(err.Error(), fmt.Sprintf("install PostgreSQL %d", major)) {
			return
		}
	}
	t.Fatal("no version was missed")
}

func TestPostgresRecoversFromAnInterruptedInitdb(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	leftover := filepath.Join(dir, "cluster.new-1", "cluster")
	require.NoError(t, os.MkdirAll(leftover, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(leftover, "PG_VERSION"), []byte("15\n"), 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel() // in the middle of initdb: its directory has appeared
		for ctx.Err() == nil {
			if made, _ := filepath.Glob(filepath.Join(dir, "cluster.new-*", "cluster", "base")); len(made) > 0 {
				return
			}
		}
	}()
	_, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{DataDir: dir, NoFetch: true})
	require.ErrorIs(t, err, context.Canceled)

	pg := startPostgres(t, embedded.PostgresConfig{DataDir: dir})
	require.NoError(t, connect(t, pg.DSN()).Ping(t.Context()))
	assert.NoDirExists(t, filepath.Dir(leftover))
}

func TestPostgresSocketOfALongDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), strings.Repeat("long-name/", 12), "pg")
	cfg := embedded.PostgresConfig{DataDir: dir}
	pg := startPostgres(t, cfg)
	require.NoError(t, connect(t, pg.DSN()).Ping(t.Context()))
	config, err := pgx.ParseConfig(pg.DSN())
	require.NoError(t, err)
	assert.NotContains(t, config.Host, "long-name")
	info, err := os.Stat(config.Host)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, pg.Stop(t.Context()))
	assert.NoDirExists(t, config.Host)

	// Somebody else makes the directory first, for all to use.
	require.NoError(t, os.Mkdir(config.Host, 0o700))
	t.Cleanup(func() { _ = os.Remove(config.Host) })
	require.NoError(t, os.Chmod(config.Host, 0o777))
	_, err = embedded.StartPostgres(t.Context(), cfg)
	require.ErrorContains(t, err, config.Host+" exists but is not a private directory")
}

func TestPostgresOnLoopbackTCP(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	cfg := embedded.PostgresConfig{DataDir: filepath.Join(openDir(t), "pg"), Port: port, PortSetting: "postgres.port"}
	_, err = embedded.StartPostgres(t.Context(), cfg)
	require.ErrorContains(t, err, fmt.Sprintf("listen on 127.0.0.1:%d: the port is taken", port))
	require.ErrorContains(t, err, "choose another port with postgres.port")
	require.NoError(t, ln.Close())

	pg := startPostgres(t, cfg)
	require.NoError(t, connect(t, pg.DSN()).Ping(t.Context()))
	require.NoError(t, connect(t, pg.TCPDSN()).Ping(t.Context()))
}

func TestPostgresNamesTheDirectoryThatItsUserCannotEnter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as another user")
	}
	closed := filepath.Join(openDir(t), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{
		DataDir: filepath.Join(closed, "pg"), NoFetch: true, DataDirSetting: "--data-dir"})
	require.ErrorContains(t, err, "who cannot enter "+closed+" (mode 0700)")
	require.ErrorContains(t, err, "with --data-dir")
}

func TestPostgresShowsTheServersLogWhenItDoesNotStart(t *testing.T) {
	t.Parallel()
	cfg := embedded.PostgresConfig{DataDir: filepath.Join(openDir(t), "pg"), NoFetch: true,
		Settings: map[string]string{"shared_buffers": "lots"}}
	_, err := embedded.StartPostgres(t.Context(), cfg)
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers"`)
}

func TestPostgresNeedsADirectoryAndPrograms(t *testing.T) {
	t.Parallel()
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	require.ErrorContains(t, err, "no data directory given")
	dir := openDir(t)
	_, err = embedded.StartPostgres(t.Context(), embedded.PostgresConfig{DataDir: filepath.Join(dir, "pg"), BinDir: dir})
	require.ErrorContains(t, err, "server programs in "+dir)
	assert.NoDirExists(t, filepath.Join(dir, "pg", "cluster"))
}

// A start that is called off finds no programs, and must not fetch any for that.
func TestPostgresFetchesNothingForAStartThatWasCalledOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cache := t.TempDir()
	_, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{DataDir: filepath.Join(openDir(t), "pg"), FetchCache: cache})
	require.ErrorIs(t, err, context.Canceled)
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestPostgresDSNOfADirectoryWithoutServer(t *testing.T) {
	t.Parallel()
	_, err := embedded.PostgresDSN(t.TempDir())
	require.ErrorContains(t, err, "read its password")
}
