// Package program runs a binary of this project as a process of its own, for tests
// and drills from outside: with a log file, signals, and the addresses that it
// says it listens on.
//
// # Crash behaviour
//
// A process leads a process group of its own and is killed with the program that
// started it.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/embedded/child"
)

// Launch says how to run a binary.
type Launch struct {
	// Binary is the path of the program. Required.
	Binary string
	Args   []string
	// Env is added to PATH, HOME and LANG, which are all that the process sees of
	// its surroundings: no setting of the machine gets into a test.
	Env []string
	// Home is the working directory and HOME.
	Home string
	// Output is the path of its files without their ends, .out and .err.
	Output string
	// As is who runs it. Defaults to who runs this program.
	As *syscall.Credential
}

// Environ is the whole environment of the process.
func (l Launch) Environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.Home, "LANG=C.UTF-8"}, l.Env...)
}

// Process is a running binary. Its methods may be called from any goroutine.
type Process struct {
	child    *child.Process
	out, err string // files
}

// Start runs the binary in the background.
func Start(l Launch) (*Process, error) {
	p := &Process{out: l.Output + ".out", err: l.Output + ".err"}
	out, err := os.Create(p.out)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own handle
	errs, err := os.Create(p.err)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	cmd := exec.Command(l.Binary, l.Args...)
	cmd.Dir = l.Home
	cmd.Env = l.Environ()
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.As}
	if p.child, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.child.PID() }

// LogFile is where the process writes its log, which is its standard error.
func (p *Process) LogFile() string { return p.err }

// Log returns what it has logged so far.
func (p *Process) Log() (string, error) { return read(p.err) }

// Stdout returns what it has printed so far.
func (p *Process) Stdout() (string, error) { return read(p.out) }

func read(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.child.Done():
		return false
	default:
		return true
	}
}

// listening is the line with which a program says that a server is up. There is one
// server of gRPC, which goes without a name.
const listening = `msg="(?:http|grpc) server listening"(?: server=(\w+))? address=(\S+)`

// Address returns the base URL of the server "api", "admin" or "grpc"; empty as long as
// the process has not said that it listens there. The admin server is the last
// step of a start.
func (p *Process) Address(server string) string {
	log, err := p.Log()
	if err != nil {
		return ""
	}
	for _, m := range regexp.MustCompile(listening).FindAllStringSubmatch(log, -1) {
		if cmp.Or(m[1], "grpc") == server {
			return "http://" + m[2]
		}
	}
	return ""
}

// Signal sends a signal to the process alone, not to its group. One that has ended
// is no error.
func (p *Process) Signal(s syscall.Signal) error { return p.child.Signal(s) }

// Kill ends the process and its group with SIGKILL and waits for its end.
func (p *Process) Kill() error { return p.child.Kill() }

// Wait waits for the end of the process and returns its exit code, -1 for a signal.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.child.Done():
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d has not ended: %w", p.PID(), ctx.Err())
	}
	var exit *exec.ExitError
	switch err := p.child.Err(); {
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case err != nil:
		return 0, err
	}
	return 0, nil
}

// Err tells how the process ended: nil for exit code 0. It must not be called
// before Done is closed.
func (p *Process) Err() error { return p.child.Err() }

// Alarms returns the signs of a defect in a log: panics, fatal errors of the
// runtime, data races.
func Alarms(log string) []string {
	var found []string
	for _, sign := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if strings.Contains(log, sign) {
			found = append(found, sign)
		}
	}
	return found
}

// Tail returns the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
