package crowd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// installation is the broker, the database and the processes of a drill.
type installation struct {
	Options
	db      *pgxpool.Pool
	token   string
	brokers []string
	dsn     string
	servers *servers.Servers // nil until they are started

	mu      sync.Mutex
	members map[string]*program.Process
	starts  int
}

func install(ctx context.Context, o Options) (*installation, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	in := &installation{Options: o, token: hex.EncodeToString(random[:]), members: map[string]*program.Process{}}
	if err := in.open(ctx); err != nil {
		return nil, errors.Join(err, in.close())
	}
	return in, nil
}

func (in *installation) open(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(in.Dir, "logs"), 0o755); err != nil {
		return err
	}
	started, err := servers.Start(ctx, servers.Config{
		Dir: in.Dir, Embedded: !in.Real, Progress: in.Log, DSN: in.DSN, Connections: 150, PoolSize: 4,
	})
	if err != nil {
		return err
	}
	in.servers = started
	in.db, in.brokers, in.dsn = started.DB, started.Brokers, started.DSN
	if err := os.WriteFile(in.file(), []byte(settings()), 0o600); err != nil {
		return err
	}
	if err := in.run(ctx, "migrate", "migrate", "up"); err != nil {
		return err
	}
	if err := in.start("front", "api,relay,projections"); err != nil {
		return err
	}
	for i := range in.Coordinators {
		if err := in.start(coordinator(i), "coordinator,maintenance"); err != nil {
			return err
		}
	}
	for i, w := range workers() {
		name := fmt.Sprintf("worker-%d", i+1)
		if err := in.start(name, "worker", "--worker-slots", strconv.Itoa(w.slots), "--worker-classes", w.class); err != nil {
			return err
		}
	}
	for name := range in.members {
		if err := in.ready(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func coordinator(i int) string { return fmt.Sprintf("coordinator-%d", i+1) }

func (in *installation) file() string { return filepath.Join(in.Dir, "millrace.yaml") }

func (in *installation) launch(name string, args ...string) program.Launch {
	in.starts++
	return program.Launch{
		Binary: in.Millrace, Args: args, Home: in.Dir,
		Env: []string{
			"MILLRACE_KAFKA_BROKERS=" + strings.Join(in.brokers, ","), "MILLRACE_POSTGRES_DSN=" + in.dsn,
			"MILLRACE_API_AUTH_TOKEN=" + in.token, "MILLRACE_DATA_DIR=" + filepath.Join(in.Dir, "data", name),
		},
		Output: filepath.Join(in.Dir, "logs", fmt.Sprintf("%s-%03d", name, in.starts)),
	}
}

// run runs a command to its end.
func (in *installation) run(ctx context.Context, name string, args ...string) error {
	p, err := program.Start(in.launch(name, args...))
	if err != nil {
		return err
	}
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		log, _ := p.Log()
		err = fmt.Errorf("%v: exit code %d: %s", args, code, program.Tail(log, 5))
	}
	return err
}

// start starts a process, or starts it again.
func (in *installation) start(name, roles string, flags ...string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	args := []string{"serve", "--roles", roles, "--config", in.file(), "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"}
	// Each start has a name of its own: the one before may still have leases.
	args = append(args, "--set", fmt.Sprintf("worker.id=%s.%d", name, in.starts))
	p, err := program.Start(in.launch(name, append(args, flags...)...))
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	in.members[name] = p
	return nil
}

func (in *installation) member(name string) *program.Process {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.members[name]
}

// ready waits until a process has started completely.
func (in *installation) ready(ctx context.Context, name string) error {
	p := in.member(name)
	err := servers.Until(ctx, startWithin, name+" is ready", func() (bool, error) {
		if !p.Running() {
			log, _ := p.Log()
			return false, fmt.Errorf("%s ended: %s", name, program.Tail(log, 5))
		}
		return p.Address("admin") != "", nil
	})
	return err
}

func (in *installation) client() (*client.Client, error) {
	return client.New(client.Options{URL: in.member("front").Address("api"), Token: secret.New(in.token), Timeout: 30 * time.Second})
}

// stop stops all processes in order.
func (in *installation) stop(ctx context.Context) error {
	var errs []error
	for name, p := range in.members {
		if err := signal(p, termination); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", name, err))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	for name, p := range in.members {
		code, err := p.Wait(ctx)
		if err == nil && code != 0 {
			log, _ := p.Log()
			err = fmt.Errorf("exit code %d: %s", code, program.Tail(log, 5))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// close ends everything, the last first.
func (in *installation) close() error {
	var errs []error
	for _, p := range in.members {
		errs = append(errs, p.Kill())
	}
	if in.servers != nil {
		errs = append(errs, in.servers.Close())
	}
	return errors.Join(errs...)
}
