// Package child runs a server as a child process that does not outlive this one.
//
// # Crash behaviour
//
// When this process ends for whatever reason, SIGKILL and a panic included, the
// child receives the death signal it was started with. On Linux the kernel sends
// it (PR_SET_PDEATHSIG); elsewhere a watchdog shell does, which notices the end
// of a pipe.
//
// The kernel ties PR_SET_PDEATHSIG to the thread that forked, not to the process:
// when that thread ends, the child is signalled although the program lives on.
// The Go runtime ends a thread when a goroutine that locked it returns, and any
// goroutine may have been running on it before. So each child has one goroutine
// that is locked to its thread from the fork until the child has ended.
//
// # Signals
//
// A child leads a process group of its own, so that a Ctrl-C at the terminal
// reaches this program only, which then stops its children in its own order.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a running child. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // written before done is closed
}

// Step is one escalation of Stop: a signal and how long to wait for the child
// to end before the next step.
type Step struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// Start starts cmd, which receives onParentDeath when this process ends. It
// takes over cmd: the caller must neither start nor wait for it. Fields of
// cmd.SysProcAttr that this package does not need, such as Credential, are kept.
//
// A child should write to files, not to pipes of this process: a pipe breaks
// when this process dies, just when the child wants to say how it shut down.
func Start(cmd *exec.Cmd, onParentDeath syscall.Signal) (*Process, error) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Setpgid = true
	cmd.SysProcAttr = &attr

	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(onParentDeath, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID returns the process id, which is also that of the process group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the child ended: nil for exit status 0, *exec.ExitError for
// anything else. It must not be called before Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends sig to the child. A child that has ended is no error: whoever
// signals it wanted it to end or cannot tell the difference.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID(), err)
	}
	return nil
}

// Stop ends the child: it takes the steps in turn, waiting after each signal for
// the child to end, and then kills its whole process group. When ctx ends it
// skips the waits that are left, so a caller in a hurry still leaves no process
// behind. It returns the last signal it had to send; zero when the child had
// already ended.
func (p *Process) Stop(ctx context.Context, steps ...Step) (syscall.Signal, error) {
	var last syscall.Signal
	for _, step := range steps {
		select {
		case <-p.done:
			return last, nil
		default:
		}
		last = step.Signal
		if err := p.Signal(step.Signal); err != nil {
			return last, err
		}
		if p.endedWithin(ctx, step.Wait) {
			return last, nil
		}
	}
	return syscall.SIGKILL, p.Kill()
}

// Kill sends SIGKILL to the process group of the child and waits for its end.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	// The group, since a child may have forked; it exists as long as its leader
	// is not reaped, and the leader is signalled first through its handle.
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil &&
		!errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("kill process group %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

// endedWithin waits for the child to end; it gives up after d or when ctx ends.
func (p *Process) endedWithin(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
