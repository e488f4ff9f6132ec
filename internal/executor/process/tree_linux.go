package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tree is the program with all its descendants. root is the shim, to which the
// kernel hands every orphan among them, so nothing leaves the tree but by dying.
type tree struct {
	root, main int
	// sandboxed says that main is bubblewrap, outside of the sandbox: it would end at
	// once when it is asked to, and take the program with it.
	sandboxed bool
	// killing says that kill has begun, which then reaps by itself.
	killing atomic.Bool
}

// watchMain reaps orphans and closes the channel when the program has ended. The
// program itself stays unreaped, so that its pid and its process group cannot
// become somebody else's before kill has signalled them.
func (t *tree) watchMain() <-chan struct{} {
	exited := make(chan struct{})
	go func() {
		for !t.killing.Load() {
			pid, err := waitAny()
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return
			case pid == t.main:
				close(exited)
				return
			default:
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}()
	return exited
}

// waitAny blocks until a child has ended, and returns its pid without reaping
// it.
func waitAny() (int, error) {
	// A siginfo_t: three ints, then, aligned like a pointer, the pid.
	var info [128]byte
	const word = unsafe.Sizeof(uintptr(0))
	const offset = (12 + word - 1) / word * word
	err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, nil)
	if err != nil {
		return 0, err
	}
	return int(*(*int32)(unsafe.Pointer(&info[offset]))), nil
}

// terminate sends SIGTERM to the whole tree, and SIGCONT, since a process that
// is stopped would sleep through it.
func (t *tree) terminate() {
	if t.sandboxed {
		for _, p := range descendants(t.root) {
			if p.pid != t.main {
				p.signal(unix.SIGTERM)
				p.signal(unix.SIGCONT)
			}
		}
		return
	}
	_ = unix.Kill(-t.main, unix.SIGTERM)
	_ = unix.Kill(-t.main, unix.SIGCONT)
	for _, p := range descendants(t.root) {
		if p.group != t.main {
			p.signal(unix.SIGTERM)
			p.signal(unix.SIGCONT)
		}
	}
}

// kill ends the tree and returns how the program ended and how many other
// processes had to be killed. It returns when the kernel says that the shim has
// no child any more. A process in uninterruptible sleep holds it up.
func (t *tree) kill() (unix.WaitStatus, int) {
	t.killing.Store(true)
	// The signal to a group is atomic towards fork: no child slips through.
	_ = unix.Kill(-t.main, unix.SIGKILL)

	var (
		status unix.WaitStatus
		strays = make(map[int]bool)
		pause  = 100 * time.Microsecond
	)
	for !t.reap(&status) {
		for _, p := range descendants(t.root) {
			if p.pid != t.main && p.alive() && p.signal(unix.SIGKILL) {
				// The sandbox's own first process is nothing that the program has left.
				if !t.sandboxed || p.name != sandboxProgram {
					strays[p.pid] = true
				}
				pause = 100 * time.Microsecond
			}
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
	return status, len(strays)
}

// reap takes in every child that has ended. It says whether none is left, and
// keeps the status of the program.
func (t *tree) reap(status *unix.WaitStatus) bool {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true
		case pid == 0:
			return false
		case pid == t.main:
			*status = ws
		}
	}
}

// relative is a process as its entry in /proc described it.
type relative struct {
	pid, parent, group int
	state              byte
	name               string
}

func (p relative) alive() bool { return p.state != 'Z' && p.state != 'X' }

// signal sends sig, if the pid still names a child of the same parent, or an
// orphan handed to this process. A pidfd holds on to the process while that is
// checked, so a pid that was given to a stranger in between is never signalled.
func (p relative) signal(sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Kill(p.pid, sig) == nil // before Linux 5.3, or forbidden by seccomp
	}
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	now, ok := stat(p.pid)
	if !ok || now.parent != p.parent && now.parent != os.Getpid() {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// descendants lists the children of root, theirs, and so on. It is a snapshot of
// something that moves; callers repeat it until there is nothing left.
func descendants(root int) []relative {
	if list, ok := descendantsByChildren(root); ok {
		return list
	}
	return descendantsByScan(root)
}

// descendantsByChildren follows the lists of children that most kernels keep:
// its cost is that of the tree, not of the machine.
func descendantsByChildren(root int) ([]relative, bool) {
	var list []relative
	queue := []int{root}
	for i := 0; i < len(queue); i++ {
		tasks := "/proc/" + strconv.Itoa(queue[i]) + "/task"
		threads, _ := os.ReadDir(tasks)
		for _, thread := range threads {
			text, err := os.ReadFile(tasks + "/" + thread.Name() + "/children")
			if err != nil && queue[i] == root {
				return nil, false
			}
			for _, field := range strings.Fields(string(text)) {
				pid, _ := strconv.Atoi(field)
				if p, ok := stat(pid); ok {
					list = append(list, p)
					queue = append(queue, pid)
				}
			}
		}
	}
	return list, true
}

// descendantsByScan reads the parent of each process of the machine.
func descendantsByScan(root int) []relative {
	children := make(map[int][]relative)
	for _, pid := range allPIDs() {
		if p, ok := stat(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	list := children[root]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].pid]...)
	}
	return list
}

// allPIDs lists the processes of the machine.
func allPIDs() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat reads state, parent and group of a process.
func stat(pid int) (relative, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return relative{}, false
	}
	// pid (name) state ppid pgrp ...; the name may hold blanks and brackets.
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if begin < 0 || end < begin {
		return relative{}, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 3 {
		return relative{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return relative{pid: pid, parent: parent, group: group, state: fields[0][0], name: string(text[begin+1 : end])}, err1 == nil && err2 == nil
}
