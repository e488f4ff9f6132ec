package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
	binaries "github.com/millrace/millrace/internal/testenv/program"
)

// startWithin bounds the start of a process, stopWithin its orderly end; both are
// far beyond the usual second or two.
const (
	startWithin = 90 * time.Second
	stopWithin  = 90 * time.Second
)

// launch says how to run the binary.
type launch struct {
	// name tells the processes of a test apart, in its log files and messages.
	name string
	args []string
	env  []string
	home string
	as   *syscall.Credential // nil: who runs the tests
	tag  string              // of the build; empty for what people run
	// binary is another program; empty: millrace.
	binary string
}

// process is a running millrace. It leads a process group of its own, dies with
// the test binary, and is killed at the end of the test.
type process struct {
	t     testing.TB
	name  string
	token string
	child *binaries.Process
}

var launches atomic.Int64 // numbers the log files

// self is the path of the test binary.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// prepare says how to run the binary.
func (l launch) prepare(t testing.TB, args ...string) binaries.Launch {
	t.Helper()
	if l.binary == "" {
		l.binary = binary(t, l.tag)
	}
	return binaries.Launch{
		Binary: l.binary, Args: append(slices.Clone(l.args), args...), Env: l.env, Home: l.home, As: l.as,
		Output: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%02d-%s", launches.Add(1), l.name)),
	}
}

// start runs the binary in the background.
func start(t testing.TB, l launch) *process {
	t.Helper()
	child, err := binaries.Start(l.prepare(t))
	require.NoError(t, err)
	p := &process{t: t, name: l.name, child: child}
	t.Cleanup(p.cleanup)
	return p
}

func (p *process) cleanup() {
	if err := p.child.Kill(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	for _, sign := range binaries.Alarms(p.log()) {
		p.t.Errorf("%s logged %q", p.name, sign)
	}
	if p.t.Failed() {
		p.t.Logf("--- log of %s (pid %d)\n%s", p.name, p.child.PID(), tail(p.log(), 40))
	}
}

func tail(text string, lines int) string { return binaries.Tail(text, lines) }

func (p *process) log() string    { return p.must(p.child.Log()) }
func (p *process) stdout() string { return p.must(p.child.Stdout()) }

func (p *process) must(text string, err error) string {
	if err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	return text
}

func (p *process) running() bool { return p.child.Running() }

// address returns where the process serves "api" or "admin"; empty as long as it
// does not.
func (p *process) address(server string) string { return p.child.Address(server) }

// ready waits for the last step of the start: the admin server listens.
func (p *process) ready() *process {
	p.t.Helper()
	await(p.t, startWithin, p.name+" is ready", func() bool {
		if p.address("admin") != "" {
			return true
		}
		if !p.running() {
			require.Fail(p.t, p.name+" ended at the start", tail(p.log(), 40))
		}
		return false
	})
	return p
}

// client returns a client of the process's API.
func (p *process) client() *client.Client {
	p.t.Helper()
	address := p.address("api")
	require.NotEmpty(p.t, address, "%s has an API", p.name)
	c, err := client.New(client.Options{URL: address, Token: secret.New(p.token), Timeout: 15 * time.Second})
	require.NoError(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

// get asks the admin server.
func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.address("admin")+path, nil)
	require.NoError(p.t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// sigkill ends the process alone, not its group, and waits for its end.
func (p *process) sigkill() {
	p.t.Helper()
	require.NoError(p.t, p.child.Signal(syscall.SIGKILL))
	p.wait(stopWithin)
}

// sigterm asks the process to stop; wait for it.
func (p *process) sigterm() {
	p.t.Helper()
	require.NoError(p.t, p.child.Signal(syscall.SIGTERM))
}

// wait waits for the end of the process and returns its exit code, -1 for a signal.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	await(p.t, within, p.name+" ends", func() bool { return !p.running() })
	code, err := p.child.Wait(p.t.Context())
	require.NoError(p.t, err, p.name)
	return code
}

// stop stops the process in order.
func (p *process) stop() {
	p.t.Helper()
	p.sigterm()
	require.Equal(p.t, 0, p.wait(stopWithin), "exit code of %s\n%s", p.name, tail(p.log(), 20))
}

// cli runs a command line to its end.
func cli(t testing.TB, l launch, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	ready := l.prepare(t, args...)
	cmd := exec.CommandContext(ctx, ready.Binary, ready.Args...)
	cmd.Dir, cmd.Env = ready.Home, ready.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ready.As}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
