package world

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/testenv/program"
)

// stopWithin bounds an orderly stop: it is what docs/operations.md promises.
const stopWithin = 2 * time.Minute

// The parts that members play.
const (
	API         = "api"
	Relay       = "relay"
	Coordinator = "coordinator"
	Worker      = "worker"
	Projections = "projections"
	Consumer    = "consumer"
)

// Member is one process of the installation, which is started again and again.
type Member struct {
	Name string
	// Part is what it is there for; Link is how it reaches the servers.
	Part, Link string
	// Fixed members run from the start; others join when a case wants them to.
	Fixed bool

	world  *World
	launch program.Launch
	// busy is held by whoever hurts the member, so that cases that run at the same
	// time do not meet.
	busy sync.Mutex

	mu       sync.Mutex
	proc     *program.Process
	starts   int
	failed   int // starts in a row that came to nothing
	wanted   bool
	logFiles []string
}

// Take reserves the member for a case and reports whether it was free. Release it.
func (m *Member) Take() bool { return m.busy.TryLock() }

// Release gives the member back.
func (m *Member) Release() { m.busy.Unlock() }

// Start starts the process, unless it runs.
func (m *Member) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = true
	if m.proc != nil && m.proc.Running() {
		return nil
	}
	return m.startLocked()
}

func (m *Member) startLocked() error {
	m.starts++
	l := m.launch
	l.Output = filepath.Join(m.world.Dir, "logs", fmt.Sprintf("%s-%03d", m.Name, m.starts))
	p, err := program.Start(l)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.proc = p
	m.logFiles = append(m.logFiles, p.LogFile())
	m.world.background.Go(func() { m.watch(p) })
	return nil
}

// watch starts the process again when it ends although it is wanted.
func (m *Member) watch(p *program.Process) {
	<-p.Done()
	m.mu.Lock()
	unexpected := m.wanted && m.proc == p
	m.mu.Unlock()
	if !unexpected {
		return
	}
	m.mu.Lock()
	if m.failed++; p.Address("admin") != "" {
		m.failed = 0
	}
	m.mu.Unlock()
	m.world.ended(m, p)
	select {
	case <-m.world.closing:
		return
	case <-time.After(time.Second):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted && m.proc == p {
		if err := m.startLocked(); err != nil {
			m.world.note("%v", err)
		}
	}
}

// process is the one that runs, or nil.
func (m *Member) process() *program.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil || !m.proc.Running() {
		return nil
	}
	return m.proc
}

// Running reports whether a process of the member runs.
func (m *Member) Running() bool { return m.process() != nil }

// Ready reports whether the process has started completely.
func (m *Member) Ready() bool {
	p := m.process()
	return p != nil && p.Address("admin") != ""
}

// AdminURL is where the process serves metrics and profiles; empty if it does not.
func (m *Member) AdminURL() string {
	if p := m.process(); p != nil {
		return p.Address("admin")
	}
	return ""
}

// PID is that of the process, or 0.
func (m *Member) PID() int {
	if p := m.process(); p != nil {
		return p.PID()
	}
	return 0
}

// LogFiles are the logs of all processes that the member has had.
func (m *Member) LogFiles() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.logFiles...)
}

// givenUp is after how many starts in a row a member is taken for one that cannot
// start.
const givenUp = 10

// AwaitReady waits until the process has started.
func (m *Member) AwaitReady(ctx context.Context) error {
	for !m.Ready() {
		m.mu.Lock()
		failed := m.failed
		m.mu.Unlock()
		if failed >= givenUp {
			return fmt.Errorf("%s cannot start; its last log is %s", m.Name, m.LogFiles()[len(m.LogFiles())-1])
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", m.Name, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// Kill ends the process with SIGKILL; Start brings the next.
func (m *Member) Kill() error {
	p := m.give()
	if p == nil {
		return nil
	}
	m.world.Kills.Add(1)
	return p.Kill()
}

// give takes the process out of supervision.
func (m *Member) give() *program.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = false
	return m.proc
}

// Signal sends a signal, such as SIGSTOP and SIGCONT.
func (m *Member) Signal(s syscall.Signal) error {
	if p := m.process(); p != nil {
		return p.Signal(s)
	}
	return nil
}

// Stop asks the process to end, which it must do in order and in time: otherwise
// the error says so. Start brings the next.
func (m *Member) Stop(ctx context.Context) error {
	p := m.give()
	if p == nil || !p.Running() {
		return nil
	}
	begun := p.Address("admin") != ""
	if err := errors.Join(p.Signal(syscall.SIGCONT), p.Signal(syscall.SIGTERM)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("stop %s: %w", m.Name, err), p.Signal(syscall.SIGQUIT), p.Kill())
	}
	if code != 0 && begun {
		log, _ := p.Log()
		return fmt.Errorf("stop %s: it ended with exit code %d:\n%s", m.Name, code, program.Tail(log, 5))
	}
	return nil
}
