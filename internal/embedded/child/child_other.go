//go:build unix && !linux

package child

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// run forks the child and a watchdog: a shell that reads a pipe of which only
// this process holds the other end. The read ends when this process does, and
// the shell signals the child. The watchdog is killed as soon as the child has
// ended, so that it does not hit another process that gets the same id later.
func (p *Process) run(onParentDeath syscall.Signal, started chan<- error) {
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	stopWatchdog, err := startWatchdog(p.cmd.Process.Pid, onParentDeath)
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	stopWatchdog()
	close(p.done)
}

func startWatchdog(pid int, sig syscall.Signal) (stop func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	dog := exec.Command("/bin/sh", "-c", `read -r _; kill -"$0" "$1"`, strconv.Itoa(int(sig)), strconv.Itoa(pid))
	dog.Stdin = r
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := dog.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return func() {
		_ = dog.Process.Kill()
		_ = dog.Wait()
		w.Close()
	}, nil
}
