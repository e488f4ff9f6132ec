package kubelet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// container is one container of a pod, run once.
type container struct {
	name            string
	command         []string
	env             []string
	workingDir      string
	root            string // where its root is built
	mounts          []mount
	readOnlyRoot    bool
	noNewPrivileges bool
	beside          bool // another process than the command is the first one
	asRoot          bool // this process is root, so that uid and gid can be taken on
	uid, gid        int64
	log             *journal
	messagePath     string // on this machine

	mu      sync.Mutex
	process *os.Process
	dead    bool
	// doomed is set when it was killed before its process was there.
	doomed bool
	// quit takes the exit code with which a hollow container ends; nil for others.
	quit chan int
	// reason is why it was killed from outside, such as OOMKilled.
	reason string
}

// runHollow stands in for run where there are no processes.
func (c *container) runHollow(life time.Duration, started func()) ending {
	defer c.log.end()
	quit := make(chan int, 1)
	c.mu.Lock()
	c.quit = quit
	if c.doomed {
		quit <- 128 + int(syscall.SIGKILL)
	}
	c.mu.Unlock()
	end := ending{began: time.Now(), reason: "Completed"}
	started()
	timer := time.NewTimer(life)
	defer timer.Stop()
	select {
	case <-timer.C:
	case end.code = <-quit:
		end.reason = "Error"
	}
	c.mu.Lock()
	c.dead = true
	if c.reason != "" {
		end.reason = c.reason
	}
	c.mu.Unlock()
	end.ended = time.Now()
	return end
}

// ending is how a container has ended.
type ending struct {
	code            int
	reason, message string
	began, ended    time.Time
}

// startError says why a command could not be started at all.
type startError struct{ message string }

func (e *startError) Error() string { return e.message }

// run runs the container until it has ended. started is called once the command runs.
func (c *container) run(k *Kubelet, started func()) (ending, error) {
	defer c.log.end()
	cmd := exec.Command(k.tools.sh, append([]string{"-c", c.rootScript(k.tools), "sh"}, c.command...)...)
	cmd.Env = c.env
	cmd.Dir = "/"
	cmd.SysProcAttr = k.attributes()
	status, err := c.pipes(cmd)
	if err != nil {
		return ending{}, err
	}
	defer status.Close()
	var readers sync.WaitGroup
	if err := k.spawn(cmd); err != nil {
		status.closeAll()
		return ending{}, fmt.Errorf("start container: %w", err)
	}
	status.closeTheirs()
	c.mu.Lock()
	c.process = cmd.Process
	if c.doomed {
		_ = c.process.Kill()
	}
	c.mu.Unlock()
	for stream, r := range map[byte]*os.File{'o': status.stdout, 'e': status.stderr} {
		readers.Go(func() {
			if err := c.log.copyFrom(stream, r); err != nil {
				k.config.Logger.Error("Reading the output of a container broke off", "container", c.name, "error", err)
			}
		})
	}
	trouble, _ := io.ReadAll(status.report)
	end := ending{began: time.Now()}
	if len(trouble) == 0 {
		started()
	}
	waitErr := cmd.Wait()
	c.mu.Lock()
	c.dead = true
	end.reason = c.reason
	c.mu.Unlock()
	readers.Wait()
	end.ended = time.Now()
	if len(trouble) > 0 {
		return ending{}, &startError{strings.TrimSpace(string(trouble))}
	}
	var exit *exec.ExitError
	switch {
	case waitErr == nil:
	case errors.As(waitErr, &exit):
		end.code = exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			end.code = 128 + int(ws.Signal())
		}
	default:
		return ending{}, waitErr
	}
	if end.reason == "" {
		end.reason = "Completed"
		if end.code != 0 {
			end.reason = "Error"
		}
	}
	if message, err := os.ReadFile(c.messagePath); err == nil {
		end.message = string(message[:min(len(message), 4096)])
	}
	return end, nil
}

// signal sends a signal to the first process of the container, and so to nobody else
// unless it is SIGKILL, which ends all of them.
func (c *container) signal(s syscall.Signal, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil && c.quit == nil {
		c.doomed = c.doomed || s == syscall.SIGKILL
		return
	}
	if c.dead {
		return
	}
	if reason != "" {
		c.reason = reason
	}
	if c.quit != nil {
		select {
		case c.quit <- 128 + int(s):
		default:
		}
		return
	}
	_ = c.process.Signal(s)
}

// ends are the ends of the pipes of a container.
type ends struct {
	stdout, stderr, report *os.File
	theirs                 []*os.File
}

func (e *ends) Close() {
	for _, f := range []*os.File{e.stdout, e.stderr, e.report} {
		f.Close()
	}
}

func (e *ends) closeTheirs() {
	for _, f := range e.theirs {
		f.Close()
	}
}

func (e *ends) closeAll() {
	e.closeTheirs()
	e.Close()
}

// pipes makes the pipes of a container. They belong to whom the command runs as, so that
// it can open /dev/stdout.
func (c *container) pipes(cmd *exec.Cmd) (*ends, error) {
	e := new(ends)
	for _, into := range []**os.File{&e.stdout, &e.stderr, &e.report} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err)
		}
		if c.asRoot {
			_ = w.Chown(int(c.uid), int(c.gid))
		}
		*into = r
		e.theirs = append(e.theirs, w)
	}
	cmd.Stdout, cmd.Stderr = e.theirs[0], e.theirs[1]
	cmd.ExtraFiles = []*os.File{e.theirs[2]}
	return e, nil
}
