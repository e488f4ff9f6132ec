// Package fleet runs Millrace as processes of their own beside the servers of a benchmark,
// and reads what they take.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/testenv/program"
	"github.com/millrace/millrace/topics"
)

// Build builds Millrace from this tree, into the directory of the run, and returns the path
// of the binary.
func Build(ctx context.Context, r *frame.Run) (string, error) {
	binary := filepath.Join(r.Dir, "millrace-bin")
	out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/millrace").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build millrace (run this from the root of the repository, or give -binary): %w\n%s", err, out)
	}
	return binary, nil
}

// Fleet is processes that share a database and topics, which are theirs alone.
type Fleet struct {
	// DSN is that of the database, Dir where the processes keep their files.
	DSN, Dir string

	run     *frame.Run
	binary  string
	timeout time.Duration
	starts  int
	members []*Member
}

// New prepares a fleet without processes. Its name tells it from the others of the run;
// timeout is how long a process may take to be ready.
func New(ctx context.Context, r *frame.Run, name, binary string, timeout time.Duration) (*Fleet, error) {
	f := &Fleet{run: r, Dir: filepath.Join(r.Dir, name), binary: binary, timeout: timeout}
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return nil, err
	}
	u, err := url.Parse(r.DSN)
	if err != nil {
		return nil, err
	}
	db := strings.Trim(u.Path, "/") + "_" + name
	pool, err := r.Open(ctx, "bench")
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	// It goes with the servers.
	if _, err := pool.Exec(ctx, `CREATE DATABASE "`+db+`"`); err != nil {
		return nil, err
	}
	u.Path = "/" + db
	query := u.Query()
	query.Set("sslmode", "disable") // a server that was started here has no TLS
	u.RawQuery = query.Encode()
	f.DSN = u.String()
	return f, nil
}

// Topic is how a topic is called at the broker: those of other fleets are apart.
func (f *Fleet) Topic(t topics.Topic) string {
	return configs.Default().Topics[t].Name + "_" + f.run.Suffix + "_" + filepath.Base(f.Dir)
}

// Close kills all processes.
func (f *Fleet) Close() {
	for _, m := range f.members {
		_ = m.Process.Kill()
	}
}

// Start starts a process and waits until it is ready. Settings are of the form name=value.
func (f *Fleet) Start(ctx context.Context, name, roles string, settings ...string) (*Member, error) {
	f.starts++
	home := filepath.Join(f.Dir, fmt.Sprintf("%s-%d", name, f.starts))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	args := []string{"serve", "--migrate", "--roles", roles}
	for topic := range configs.Default().Topics {
		args = append(args, "--set", "topics."+string(topic)+".name="+f.Topic(topic))
	}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	process, err := program.Start(program.Launch{
		Binary: f.binary, Args: args, Home: home, Output: filepath.Join(home, "log"), Env: []string{
			"MILLRACE_POSTGRES_DSN=" + f.DSN, "MILLRACE_KAFKA_BROKERS=" + strings.Join(f.run.Brokers, ","), "MILLRACE_API_AUTH_MODE=off",
			"MILLRACE_API_LISTEN=127.0.0.1:0", "MILLRACE_ADMIN_LISTEN=127.0.0.1:0", "MILLRACE_GRPC_LISTEN=127.0.0.1:0", "MILLRACE_DATA_DIR=" + home,
		},
	})
	if err != nil {
		return nil, err
	}
	m := &Member{Name: name, Process: process}
	f.members = append(f.members, m)
	err = Until(ctx, f.timeout, 20*time.Millisecond, name+" is ready", func() (bool, error) {
		if !process.Running() {
			return false, errors.New("it has ended")
		}
		return process.Address("admin") != "", nil
	})
	if err != nil {
		log, _ := process.Log()
		return nil, fmt.Errorf("%w\n%s", err, program.Tail(log, 20))
	}
	return m, nil
}

// Until waits until something has come true, which it asks that often.
func Until(ctx context.Context, timeout, every time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		yes, err := ok()
		if err != nil {
			return fmt.Errorf("until %s: %w", what, err)
		}
		if yes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("until %s: %w", what, ctx.Err())
		}
	}
}
