package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/executor/spec"
)

// selfExe is the own binary, also when its file has been replaced or removed
// since it was started.
const selfExe = "/proc/self/exe"

// launch starts the program and returns its pid, or why it could not start.
//
// Without limits the shim forks and executes the program directly. With limits a
// step lies between: the own binary once more, which sets the limits on itself
// and then becomes the program. Setting them from outside would leave the
// program a moment without; setting them in the shim would bind the shim too.
func launch(s startOrder) (int, error) {
	if s.Limits.None() {
		return fork(s.Path, s, s.Argv)
	}
	limits, err := json.Marshal(s.Limits)
	if err != nil {
		return 0, fmt.Errorf("encode limits: %w", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("create pipe: %w", err)
	}
	argv := append([]string{launchName, strconv.Itoa(os.Getpid()), string(limits), s.Path}, s.Argv...)
	pid, err := fork(selfExe, s, argv, uintptr(pipe[1]))
	_ = unix.Close(pipe[1])
	status := os.NewFile(uintptr(pipe[0]), "launch status")
	defer func() { _ = status.Close() }()
	if err != nil {
		return 0, err
	}
	// The pipe closes when the program has taken the place of the launcher.
	text, _ := io.ReadAll(status)
	if len(text) == 0 {
		return pid, nil
	}
	_, _ = unix.Wait4(pid, nil, 0, nil)
	errno, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("set limits: %s", text)
	}
	return 0, syscall.Errno(errno)
}

func fork(path string, s startOrder, argv []string, extra ...uintptr) (int, error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: append([]uintptr{0, 1, 2}, extra...),
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// launchStatusFD is where a launcher writes why it failed: a number of errno, or
// text.
const launchStatusFD = 3

// runLaunch is the main function of the launcher. Its arguments are the shim's
// pid, the limits, the file, and the argv of the program.
func runLaunch(args []string) int {
	runtime.LockOSThread()
	unix.CloseOnExec(launchStatusFD)
	status := os.NewFile(launchStatusFD, "launch status")
	if len(args) < 5 {
		return 2
	}
	// Pdeathsig belongs to a thread, and the Go runtime may have moved this
	// goroutine to another one than the one that the shim forked. If the shim
	// died before, this process has another parent by now.
	err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if err != nil || strconv.Itoa(os.Getppid()) != args[1] {
		return 2
	}
	var limits spec.Limits
	if err := json.Unmarshal([]byte(args[2]), &limits); err != nil {
		_, _ = fmt.Fprintf(status, "read limits: %v", err)
		return 1
	}
	if err := setLimits(limits); err != nil {
		_, _ = fmt.Fprint(status, err.Error())
		return 1
	}
	err = syscall.Exec(args[3], args[4:], os.Environ())
	var errno int
	if e, ok := err.(syscall.Errno); ok { //nolint:errorlint // Exec returns the bare number
		errno = int(e)
	}
	_, _ = fmt.Fprint(status, errno)
	return 1
}

// setLimits sets the limits of this process, soft and hard, each no higher than
// the hard limit that it came with. The address space comes last, because from
// then on this process, too, has little of it.
func setLimits(l spec.Limits) error {
	for _, limit := range []struct {
		name     string
		resource int
		value    *uint64
	}{
		{"cpu_seconds", unix.RLIMIT_CPU, l.CPUSeconds},
		{"open_files", unix.RLIMIT_NOFILE, l.OpenFiles},
		{"file_bytes", unix.RLIMIT_FSIZE, l.FileBytes},
		{"processes", unix.RLIMIT_NPROC, l.Processes},
		{"memory_bytes", unix.RLIMIT_AS, l.MemoryBytes},
	} {
		if limit.value == nil {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(limit.resource, &now); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
		value := min(*limit.value, now.Max)
		set := syscall.Rlimit{Cur: value, Max: value}
		if limit.resource == unix.RLIMIT_CPU && value < now.Max {
			set.Max++ // SIGXCPU at the soft limit, which a program may catch, SIGKILL a second later
		}
		if err := syscall.Setrlimit(limit.resource, &set); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
	}
	return nil
}
