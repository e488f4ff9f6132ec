package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of processor times in /proc: USER_HZ, which is 100
// on every Linux that Go runs on.
const ticksPerSecond = 100

// stat is what /proc says of one process.
type stat struct {
	pid, parent int
	name        string
	// own is its processor time, waited that of children it has waited for.
	own, waited time.Duration
}

// readStat parses /proc/<pid>/stat. The name stands in brackets and may itself
// hold brackets and blanks, so the fields are counted from the last bracket.
func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	text := string(raw)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("read the stat of process %d: no name in it", pid)
	}
	fields := strings.Fields(text[end+1:])
	const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14 // counted from the state
	if len(fields) <= cstime {
		return stat{}, fmt.Errorf("read the stat of process %d: %d fields", pid, len(fields))
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field], 10, 64)
		return n
	}
	ticks := func(n int64) time.Duration { return time.Duration(n) * time.Second / ticksPerSecond }
	return stat{
		pid: pid, parent: int(number(parent)), name: text[open+1 : end],
		own: ticks(number(utime) + number(stime)), waited: ticks(number(cutime) + number(cstime)),
	}, nil
}

// Children returns the direct children of this process that run the program of
// that name, at most 15 letters of which count.
func Children(name string) []int {
	var found []int
	for _, s := range processes() {
		if s.parent == os.Getpid() && s.name == name {
			found = append(found, s.pid)
		}
	}
	return found
}

func processes() []stat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []stat
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// tree returns the process and all that descend from it.
func tree(root int) []stat {
	children := map[int][]stat{}
	var found []stat
	for _, s := range processes() {
		children[s.parent] = append(children[s.parent], s)
		if s.pid == root {
			found = append(found, s)
		}
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// CPU returns the processor time of processes and all that descend from them,
// those that have ended included.
func CPU(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		for _, s := range tree(pid) {
			sum += s.own + s.waited
		}
	}
	return sum
}

// OwnCPU returns the processor time of this process without its children.
func OwnCPU() time.Duration {
	s, err := readStat(os.Getpid())
	if err != nil {
		return 0
	}
	return s.own
}

// Freeze stops processes, and all that descend from them, with SIGSTOP. The
// function that it returns lets them go on.
func Freeze(pids ...int) (thaw func() error, err error) {
	var frozen []int
	thaw = func() error {
		var errs []error
		for _, pid := range frozen {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	for _, root := range pids {
		for _, s := range tree(root) {
			switch err := syscall.Kill(s.pid, syscall.SIGSTOP); {
			case errors.Is(err, syscall.ESRCH): // has ended meanwhile
			case err != nil:
				return nil, errors.Join(fmt.Errorf("stop process %d: %w", s.pid, err), thaw())
			default:
				frozen = append(frozen, s.pid)
			}
		}
	}
	return thaw, nil
}
