package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/embedded/child"
)

const (
	// PostgresUser is both the superuser and the database of an embedded
	// PostgreSQL.
	PostgresUser = "millrace"

	// postgresSocketPort only names the socket file when TCP is off.
	postgresSocketPort = 5432

	startTimeoutDefault = 60 * time.Second
	// stopFastWait is for a fast shutdown, which writes a checkpoint.
	stopFastWait = 30 * time.Second
	// stopQuitWait is for an immediate shutdown, which only ends processes.
	stopQuitWait = 5 * time.Second
)

// PostgresConfig configures StartPostgres.
type PostgresConfig struct {
	// DataDir holds the cluster, the password and the server's log; it is created
	// with its parents. Required.
	DataDir string
	// BinDir is the directory of the server programs (postgres, initdb). Empty
	// looks for them on PATH, then where distributions put them, then fetches them.
	BinDir string
	// Port makes the server listen on 127.0.0.1 too. Defaults to 0: the unix
	// socket only.
	Port int
	// PortSetting and DataDirSetting are the names of the settings that change
	// Port and DataDir, for error messages. Empty leaves the hints out.
	PortSetting, DataDirSetting string
	// NoFetch refuses to fetch server programs over the network.
	NoFetch bool
	// FetchCache is where fetched programs are kept. Defaults to a millrace folder
	// in the user's cache directory, and to /var/cache/millrace for root.
	FetchCache string
	// FetchProgress, when set, is told what the fetching of programs is about, as
	// it begins. It runs on the goroutine of StartPostgres.
	FetchProgress func(FetchStep)
	// Settings are server settings that win over those of the configuration files,
	// such as fsync=off for a test.
	Settings map[string]string
	// StartTimeout limits the wait for the server to accept connections, save for
	// crash recovery, which may take as long as ctx allows. Defaults to 60 s.
	StartTimeout time.Duration
	// Log takes one info line per life-cycle change. The server's own log is the
	// file postgres.log in DataDir. Nil discards.
	Log *slog.Logger
}

// Postgres is a running embedded PostgreSQL server.
type Postgres struct {
	cfg      PostgresConfig
	lay      layout
	user     runUser
	bin      binaries
	log      *slog.Logger
	lock     *dirLock
	password string
	proc     *child.Process

	exited  chan error
	watched chan struct{} // closed when the watch goroutine has returned
	endOnce sync.Once
	endErr  error
	mu      sync.Mutex
	ending  bool // somebody stops it; guarded by mu
}

// StartPostgres starts a PostgreSQL server as a child process and returns once
// it accepts connections and has its database. The first start makes the
// cluster.
//
// A cluster of a major version for which no server programs are at hand is
// refused and left alone. As root, which PostgreSQL refuses to run as, it runs as
// the owner of the cluster, else as the user behind sudo, else as nobody.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("start postgres: no data directory given")
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	cfg.DataDir = dir
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, startTimeoutDefault)
	pg := &Postgres{cfg: cfg, lay: layout(dir), log: logger(cfg.Log),
		exited: make(chan error, 1), watched: make(chan struct{})}
	if err := pg.start(ctx); err != nil {
		if pg.lock != nil {
			_ = pg.lock.release()
		}
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	pg.log.InfoContext(ctx, "embedded postgres started", "pid", pg.PID(), "version", pg.bin.version,
		"data_dir", dir, "socket_dir", pg.socketDir())
	return pg, nil
}

func (pg *Postgres) start(ctx context.Context) (err error) {
	if pg.user, err = chooseUser(pg.lay); err != nil {
		return err
	}
	if err := makeDataDir(pg.lay, pg.user); err != nil {
		return err
	}
	if err := pg.user.canEnter(string(pg.lay), pg.cfg.DataDirSetting); err != nil {
		return err
	}
	if pg.lock, err = lockDir(string(pg.lay)); err != nil {
		return err
	}
	if pg.bin, err = pg.findBinaries(ctx); err != nil {
		return err
	}
	if err := stopOrphan(ctx, pg.lay, pg.log); err != nil {
		return err
	}
	if pg.password, err = ensureCluster(ctx, pg.lay, pg.bin, pg.user, pg.cfg.Settings); err != nil {
		return err
	}
	if err := makeSocketDir(pg.lay.socketDir(), pg.user); err != nil {
		return err
	}
	if err := pg.checkPort(ctx); err != nil {
		return err
	}
	return pg.launch(ctx)
}

// launch starts the server and waits until it is of use; when it is not, no
// process is left.
func (pg *Postgres) launch(ctx context.Context) error {
	logFile, logFrom, err := openServerLog(pg.lay)
	if err != nil {
		return err
	}
	defer logFile.Close() // the child has its own handle
	cmd := pg.user.command(pg.bin.path("postgres"), pg.args()...)
	cmd.Dir = pg.lay.cluster()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// SIGINT is PostgreSQL's fast shutdown: a killed parent leaves a clean cluster.
	if pg.proc, err = child.Start(cmd, syscall.SIGINT); err != nil {
		return err
	}
	if err = pg.waitReady(ctx); err == nil {
		err = pg.ensureDatabase(ctx)
	}
	if err != nil {
		if _, stopErr := pg.proc.Stop(context.WithoutCancel(ctx), stopSteps()...); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
		return fmt.Errorf("%w\n%s", err, tailOf(pg.lay.serverLog(), logFrom))
	}
	go pg.watch()
	return nil
}

// args are the settings that must hold whatever the configuration files say.
func (pg *Postgres) args() []string {
	listen := ""
	if pg.cfg.Port != 0 {
		listen = "127.0.0.1"
	}
	args := []string{
		"-D", pg.lay.cluster(),
		"-c", "listen_addresses=" + listen,
		"-c", "port=" + strconv.Itoa(pg.port()),
		"-c", "unix_socket_directories=" + pg.socketDir(),
		"-c", "unix_socket_permissions=0700",
		"-c", "logging_collector=off",
		"-c", "log_destination=stderr",
	}
	for name, value := range pg.cfg.Settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

// PID returns the process id of the server.
func (pg *Postgres) PID() int { return pg.proc.PID() }

// DSN returns a connection string for the database over the unix socket, as the
// superuser. It holds the password. It stays the same over restarts.
func (pg *Postgres) DSN() string {
	return socketDSN(pg.socketDir(), pg.port(), pg.password, PostgresUser)
}

// TCPDSN is DSN over loopback TCP; empty when Port is 0.
func (pg *Postgres) TCPDSN() string {
	if pg.cfg.Port == 0 {
		return ""
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(PostgresUser, pg.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.cfg.Port)), Path: PostgresUser, RawQuery: "sslmode=disable"}
	return u.String()
}

// Exited yields one error when the server ends although nobody stopped it, and
// is closed when the server has ended for whatever reason. There is no restart:
// whoever watches decides.
func (pg *Postgres) Exited() <-chan error { return pg.exited }

func (pg *Postgres) watch() {
	defer close(pg.watched)
	defer close(pg.exited)
	<-pg.proc.Done()
	pg.mu.Lock()
	ending := pg.ending
	pg.mu.Unlock()
	if !ending {
		pg.exited <- fmt.Errorf("postgres ended by itself (%w): see %s", pg.proc.Err(), pg.lay.serverLog())
	}
}

// Kill ends the server with SIGKILL, for tests, and releases the data directory.
// The next start recovers what was committed.
func (pg *Postgres) Kill() error { return pg.end(context.Background()) }

// Stop shuts the server down, ending its connections, and releases the data
// directory. It tries a fast shutdown first, an immediate one after 30 s and
// SIGKILL after 5 s more, each at once when ctx has ended. Committed data is safe
// with all of them. Stopping twice is fine.
func (pg *Postgres) Stop(ctx context.Context) error { return pg.end(ctx, stopSteps()...) }

func (pg *Postgres) end(ctx context.Context, steps ...child.Step) error {
	pg.endOnce.Do(func() {
		pg.mu.Lock()
		pg.ending = true
		pg.mu.Unlock()
		last, err := pg.proc.Stop(ctx, steps...)
		<-pg.watched
		if dir := pg.socketDir(); filepath.Dir(dir) != string(pg.lay) {
			_ = os.Remove(dir) // one in a shared directory; the next start makes it again
		}
		if err = errors.Join(err, pg.lock.release()); err != nil {
			pg.endErr = fmt.Errorf("stop postgres: %w", err)
		}
		pg.log.InfoContext(ctx, "embedded postgres stopped", "pid", pg.PID(), "signal", int(last))
	})
	return pg.endErr
}

func stopSteps() []child.Step {
	return []child.Step{{Signal: syscall.SIGINT, Wait: stopFastWait}, {Signal: syscall.SIGQUIT, Wait: stopQuitWait}}
}

// PostgresDSN returns the connection string of the embedded PostgreSQL that
// another process runs on dataDir, for programs that join it. Only users who may
// read the password file get it.
func PostgresDSN(dataDir string) (string, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return "", fmt.Errorf("find embedded postgres: %w", err)
	}
	lay := layout(dir)
	password, err := os.ReadFile(lay.password())
	if err != nil {
		return "", fmt.Errorf("find embedded postgres: read its password: %w", err)
	}
	pm, err := readPostmaster(lay)
	if err != nil {
		return "", fmt.Errorf("find embedded postgres: %w", err)
	}
	if pm.pid == 0 || !isPostmasterOf(pm.pid, lay) {
		return "", fmt.Errorf("find embedded postgres: none is running on %s", dir)
	}
	return socketDSN(pm.socketDir, pm.port, strings.TrimSpace(string(password)), PostgresUser), nil
}

func socketDSN(dir string, port int, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(PostgresUser, password), Path: "/" + database,
		RawQuery: url.Values{"host": {dir}, "port": {strconv.Itoa(port)}, "sslmode": {"disable"}}.Encode()}
	return u.String()
}

func (pg *Postgres) port() int         { return cmp.Or(pg.cfg.Port, postgresSocketPort) }
func (pg *Postgres) socketDir() string { return pg.lay.socketDir() }

// checkPort fails early and clearly when the TCP port is taken; the server would
// fail as well, in its log.
func (pg *Postgres) checkPort(ctx context.Context) error {
	if pg.cfg.Port == 0 {
		return nil
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.cfg.Port))
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		hint := ""
		if pg.cfg.PortSetting != "" {
			hint = ", or choose another port with " + pg.cfg.PortSetting
		}
		return fmt.Errorf("listen on %s: the port is taken by another program: stop it%s: %w", addr, hint, err)
	}
	if err != nil {
		return err
	}
	return ln.Close()
}

// waitReady connects until the server lets it in.
func (pg *Postgres) waitReady(ctx context.Context) error {
	dsn := socketDSN(pg.socketDir(), pg.port(), pg.password, "postgres")
	deadline := time.Now().Add(pg.cfg.StartTimeout)
	pause := 5 * time.Millisecond
	for {
		err := ping(ctx, dsn)
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.Code == "57P03":
			deadline = time.Now().Add(pg.cfg.StartTimeout) // starting up: recovery takes what it takes
		case errors.As(err, &refused):
			return fmt.Errorf("connect: %w", err) // a wrong password does not become right
		case time.Now().After(deadline):
			return fmt.Errorf("connect within %s: %w", pg.cfg.StartTimeout, err)
		}
		select {
		case <-pg.proc.Done():
			return fmt.Errorf("the server ended (%w), and its log says", pg.proc.Err())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// ensureDatabase makes the database where it is missing.
func (pg *Postgres) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, socketDSN(pg.socketDir(), pg.port(), pg.password, "postgres"))
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", PostgresUser).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{PostgresUser}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}
