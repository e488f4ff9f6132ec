package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/e2e/internal/servers"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv/program"
)

const (
	startWithin = 2 * time.Minute
	stopWithin  = 90 * time.Second
)

// version is which of the two programs a process runs.
type version string

const (
	older version = "older"
	newer version = "newer"
)

// member is a process of the installation.
type member struct {
	*program.Process
	name, role string
	version    version
	api        *client.Client // of one with an API, once it is ready
}

// installation is the broker, the database and the processes.
type installation struct {
	options
	db      *pgxpool.Pool
	token   string
	brokers []string
	dsn     string
	servers *servers.Servers

	mu       sync.Mutex
	members  []*member // those that ought to run
	everyone []*member
	starts   int
}

func install(ctx context.Context, o options) (*installation, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	started, err := servers.Start(ctx, servers.Config{
		Dir: o.dir, Embedded: o.embedded, Progress: os.Stdout, Connections: 200, PoolSize: 8,
	})
	if err != nil {
		return nil, err
	}
	return &installation{
		options: o, token: hex.EncodeToString(random[:]), servers: started, db: started.DB, brokers: started.Brokers, dsn: started.DSN,
	}, nil
}

func (in *installation) binary(v version) string {
	if v == older {
		return in.older
	}
	return in.newer
}

func (in *installation) launch(binary, name string, args ...string) program.Launch {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.starts++
	return program.Launch{
		Binary: binary, Args: args, Home: in.dir,
		Env: []string{
			"MILLRACE_KAFKA_BROKERS=" + strings.Join(in.brokers, ","), "MILLRACE_POSTGRES_DSN=" + in.dsn,
			"MILLRACE_API_AUTH_TOKEN=" + in.token, "MILLRACE_TOKEN=" + in.token, "MILLRACE_DATA_DIR=" + filepath.Join(in.dir, "data", name),
		},
		Output: filepath.Join(in.dir, "logs", fmt.Sprintf("%03d-%s", in.starts, name)),
	}
}

// command runs a command line of a version to its end.
func (in *installation) command(ctx context.Context, v version, args ...string) (stdout string, code int, err error) {
	p, err := program.Start(in.launch(in.binary(v), string(v)+"-"+args[0], args...))
	if err != nil {
		return "", 0, err
	}
	if code, err = p.Wait(ctx); err != nil {
		return "", 0, errors.Join(err, p.Kill())
	}
	stdout, err = p.Stdout()
	return stdout, code, err
}

// The settings of every process, of either version: what is lost is taken over soon.
func settings() []string {
	return []string{
		"kafka.session_timeout=6s", "kafka.heartbeat_interval=500ms", "kafka.rebalance_timeout=10s", "postgres.max_conns=8",
		"worker.lease=4s", "worker.heartbeat=1s", "worker.shutdown_grace=3s", "coordinator.start_limit=10s", "coordinator.max_deliveries=1000",
	}
}

// The roles, each a process of its own.
const (
	api         = "api"
	coordinator = "coordinator,maintenance"
	relay       = "relay"
	views       = "projections"
	worker      = "worker"
	engine      = "workflows"
)

// start starts a process and waits until it is ready.
func (in *installation) start(ctx context.Context, v version, role string) error {
	name := string(v) + "-" + strings.ReplaceAll(role, ",", "-")
	args := []string{"serve", "--roles", role, "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	if v == newer {
		args = append(args, "--grpc-listen", "127.0.0.1:0")
	}
	for _, s := range append(settings(), fmt.Sprintf("worker.id=%s.%d", name, len(in.everyone))) {
		args = append(args, "--set", s)
	}
	m := &member{name: name, role: role, version: v}
	return in.join(ctx, m, in.launch(in.binary(v), name, args...), func() (bool, error) { return m.Address("admin") != "", nil })
}

// join starts a process and waits until it is ready; then it belongs to those that ought
// to run.
func (in *installation) join(ctx context.Context, m *member, how program.Launch, isReady func() (bool, error)) (err error) {
	if m.Process, err = program.Start(how); err != nil {
		return err
	}
	in.mu.Lock()
	in.everyone = append(in.everyone, m)
	in.mu.Unlock()
	err = servers.Until(ctx, startWithin, m.name+" is ready", func() (bool, error) {
		if !m.Running() {
			log, _ := m.Log()
			return false, fmt.Errorf("%s ended at its start: %s", m.name, program.Tail(log, 5))
		}
		return isReady()
	})
	if err != nil {
		return err
	}
	if m.role == api {
		if m.api, err = client.New(client.Options{URL: m.Address("api"), Token: secret.New(in.token), Timeout: 20 * time.Second}); err != nil {
			return err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.members = append(in.members, m)
	return nil
}

// leave ends a process: in order, or with SIGKILL. Nobody asks its API any more.
func (in *installation) leave(ctx context.Context, m *member, kill bool) error {
	in.mu.Lock()
	in.members = slices.DeleteFunc(in.members, func(x *member) bool { return x == m })
	in.mu.Unlock()
	if kill {
		if err := m.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		<-m.Done()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := m.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := m.Wait(ctx)
	if err == nil && code != 0 {
		log, _ := m.Log()
		err = fmt.Errorf("%s ended with exit code %d: %s", m.name, code, program.Tail(log, 5))
	}
	return err
}

// alive returns the processes that ought to run; those of a role, unless it is "".
func (in *installation) alive(role string) []*member {
	in.mu.Lock()
	defer in.mu.Unlock()
	var found []*member
	for _, m := range in.members {
		if role == "" || m.role == role {
			found = append(found, m)
		}
	}
	return found
}

// unready returns what the processes say that are not ready.
func (in *installation) unready(ctx context.Context) (said []string) {
	for _, m := range in.alive("") {
		if !m.Running() {
			said = append(said, m.name+" has ended")
			continue
		}
		if m.Address("admin") == "" {
			continue // a users' program
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Address("admin")+"/readyz?verbose", nil)
		if err != nil {
			return []string{err.Error()}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			said = append(said, m.name+": "+err.Error())
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			said = append(said, fmt.Sprintf("%s: %s: %s", m.name, resp.Status, strings.TrimSpace(string(text))))
		}
	}
	return said
}

// close ends everything, the last first.
func (in *installation) close() error {
	var errs []error
	for _, m := range in.everyone {
		errs = append(errs, m.Kill())
	}
	return errors.Join(append(errs, in.servers.Close())...)
}

// count returns a number from the database.
func (in *installation) count(ctx context.Context, sql string, args ...any) (n int64, err error) {
	if err = in.db.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		err = fmt.Errorf("%s: %w", sql, err)
	}
	return n, err
}

// pause waits and reports whether nothing ended the wait.
func pause(ctx context.Context, long time.Duration) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
