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
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/embedded/child"
	"github.com/millrace/millrace/internal/secret"
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
}

// process is a running millrace. It leads a process group of its own, dies with
// the test binary, and is killed at the end of the test.
type process struct {
	t        testing.TB
	name     string
	token    string
	child    *child.Process
	out, err string // files
}

var launches atomic.Int64 // numbers the log files

// start runs the binary in the background.
func start(t testing.TB, l launch) *process {
	t.Helper()
	base := filepath.Join(t.ArtifactDir(), fmt.Sprintf("%02d-%s", launches.Add(1), l.name))
	p := &process{t: t, name: l.name, out: base + ".out", err: base + ".err"}
	out, err := os.Create(p.out)
	require.NoError(t, err)
	defer out.Close()
	errs, err := os.Create(p.err)
	require.NoError(t, err)
	defer errs.Close()
	cmd := exec.Command(binary(t, l.tag), l.args...)
	cmd.Dir = l.home
	cmd.Env = environ(l)
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.as}
	p.child, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(p.cleanup)
	return p
}

// environ is everything that a process sees of the surroundings: no setting of
// the machine gets into a test.
func environ(l launch) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.home, "LANG=C.UTF-8"}
	return append(env, l.env...)
}

func (p *process) cleanup() {
	if err := p.child.Kill(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	for _, sign := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if strings.Contains(p.log(), sign) {
			p.t.Errorf("%s logged %q", p.name, sign)
		}
	}
	if p.t.Failed() {
		p.t.Logf("--- log of %s (pid %d)\n%s", p.name, p.child.PID(), tail(p.log(), 40))
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *process) log() string    { return p.read(p.err) }
func (p *process) stdout() string { return p.read(p.out) }

func (p *process) read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	return string(text)
}

func (p *process) running() bool {
	select {
	case <-p.child.Done():
		return false
	default:
		return true
	}
}

var listening = regexp.MustCompile(`msg="http server listening" server=(\w+) address=(\S+)`)

// address returns where the process serves "api" or "admin"; empty as long as it
// does not.
func (p *process) address(server string) string {
	for _, m := range listening.FindAllStringSubmatch(p.log(), -1) {
		if m[1] == server {
			return "http://" + m[2]
		}
	}
	return ""
}

// ready waits for the last step of the start: the admin server listens.
func (p *process) ready() *process {
	p.t.Helper()
	await(p.t, startWithin, p.name+" is ready", func() bool {
		if p.address("admin") != "" {
			return true
		}
		if !p.running() {
			p.t.Fatalf("%s ended at the start: %v\n%s", p.name, p.child.Err(), tail(p.log(), 40))
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
	var exit *exec.ExitError
	if err := p.child.Err(); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	return 0
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
	cmd := exec.CommandContext(ctx, binary(t, l.tag), append(slices.Clone(l.args), args...)...)
	cmd.Dir, cmd.Env = l.home, environ(l)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.as}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
