// Package exampletest plays examples in tests: their programs and a pipeline, each as
// a process of its own, that find each other by one data directory.
package exampletest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/program"
)

// Patience is how long a scene waits for one of its processes.
const Patience = 2 * time.Minute

// Scene is a data directory, and programs that were built for it.
type Scene struct {
	t *testing.T
	// Dir is the data directory.
	Dir     string
	bin     string
	started int
}

// New builds millrace and the example in the test's working directory.
func New(t *testing.T) *Scene {
	t.Helper()
	return NewOf(t, ".", "../../cmd/millrace")
}

// NewOf builds millrace and an example, which lie in these directories. The example may
// be a module of its own.
func NewOf(t *testing.T, example, millrace string) *Scene {
	t.Helper()
	s := &Scene{t: t, Dir: testenv.DataDir(t), bin: t.TempDir()}
	for _, dir := range []string{example, millrace} {
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", s.bin+"/", ".")
		build.Dir = dir
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return s
}

// launch is how a program of the scene is run.
func (s *Scene) launch(name string, args []string) program.Launch {
	return program.Launch{
		Binary: filepath.Join(s.bin, name), Args: args, Home: s.Dir,
		Env: []string{"MILLRACE_DATA_DIR=" + s.Dir},
	}
}

// Run runs a program to its end and returns what it printed, and its exit code.
func (s *Scene) Run(name string, args ...string) (stdout string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	p := s.Start(name, args...)
	code, err := p.Wait(ctx)
	require.NoError(s.t, err, p.Output())
	stdout, err = p.Stdout()
	require.NoError(s.t, err)
	return strings.TrimSpace(stdout), code
}

// Millrace runs a command of millrace and returns what it printed. What it says may
// come with any exit code.
func (s *Scene) Millrace(args ...string) string {
	s.t.Helper()
	out, _ := s.Run("millrace", args...)
	return out
}

// Up starts a pipeline on free ports and waits until it is ready.
func (s *Scene) Up(args ...string) *Process {
	s.t.Helper()
	up := s.Start("millrace", append([]string{"up",
		"--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}, args...)...)
	up.Says("Millrace is ready")
	return up
}

// Process is a program of the scene that runs beside the test.
type Process struct {
	*program.Process
	t *testing.T
}

// Start starts a program. It ends with the test at the latest.
func (s *Scene) Start(name string, args ...string) *Process {
	s.t.Helper()
	launch := s.launch(name, args)
	s.started++
	launch.Output = filepath.Join(s.bin, fmt.Sprintf("%s-%d", name, s.started))
	running, err := program.Start(launch)
	require.NoError(s.t, err)
	p := &Process{Process: running, t: s.t}
	s.t.Cleanup(func() {
		p.end()
		if s.t.Failed() {
			s.t.Logf("%s wrote:\n%s", strings.Join(append([]string{name}, args...), " "), p.Output())
		}
	})
	return p
}

// end asks the process to end, and ends it when it does not.
func (p *Process) end() {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
	case <-time.After(Patience):
		_ = p.Kill()
	}
}

// Output returns what the process has written so far, to both of its outputs.
func (p *Process) Output() string {
	p.t.Helper()
	printed, err := p.Stdout()
	require.NoError(p.t, err)
	log, err := p.Log()
	require.NoError(p.t, err)
	return printed + log
}

// Says waits until the process has written a text.
func (p *Process) Says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.Output(), text) },
		Patience, 20*time.Millisecond, "waiting for %q", text)
}

// Stop ends the process in order.
func (p *Process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	code, err := p.Wait(ctx)
	require.NoError(p.t, err, "the process does not end:\n%s", p.Output())
	require.Zero(p.t, code, p.Output())
}

// Path returns the absolute path of a file of the example.
func (s *Scene) Path(name string) string {
	s.t.Helper()
	here, err := os.Getwd()
	require.NoError(s.t, err)
	return filepath.Join(here, name)
}
