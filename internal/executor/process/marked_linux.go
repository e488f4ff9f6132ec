package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// workdirVariable marks every process of an attempt: it is in the environment of
// the program, its value is of this attempt alone, and a spec cannot set it.
const workdirVariable = "MILLRACE_WORKDIR"

// killMarked kills what a shim that was killed itself has left behind: it can no
// longer be found by descent, since orphans were handed to the system's init,
// but by its mark. It gives up on what it cannot kill after some seconds.
func killMarked(dir string) {
	mark := []byte(workdirVariable + "=" + dir + "\x00")
	pause := time.Millisecond
	for give := time.Now().Add(5 * time.Second); time.Now().Before(give); {
		found := false
		for _, pid := range allPIDs() {
			if marked(pid, mark) {
				found = killIfMarked(pid, mark) || found
			}
		}
		if !found {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	at := bytes.Index(env, mark)
	return err == nil && (at == 0 || at > 0 && env[at-1] == 0)
}

// killIfMarked looks again while a pidfd holds on to the process, so that a pid
// that was given to a stranger in between is not signalled.
func killIfMarked(pid int, mark []byte) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if !marked(pid, mark) || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	// A process loses its environment some time before it has ended, so the next
	// look would not find it while it still holds its files.
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Second/time.Millisecond))
	return true
}
