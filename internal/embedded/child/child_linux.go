package child

import (
	"runtime"
	"syscall"
)

// run forks the child and waits for it, all on one thread: see the package
// comment for why the thread must not be given back before the child has ended.
func (p *Process) run(onParentDeath syscall.Signal, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// The os package sets this after it has changed the user id, which would
	// clear it, and lets the child end at once if the parent is already gone.
	p.cmd.SysProcAttr.Pdeathsig = onParentDeath
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}
