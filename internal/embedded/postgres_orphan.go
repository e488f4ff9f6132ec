package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postmaster is what a server notes about itself in postmaster.pid.
type postmaster struct {
	pid       int
	port      int
	socketDir string
}

// readPostmaster reads the note; the zero value means that there is none.
func readPostmaster(lay layout) (postmaster, error) {
	text, err := os.ReadFile(lay.postmaster())
	if errors.Is(err, fs.ErrNotExist) {
		return postmaster{}, nil
	}
	if err != nil {
		return postmaster{}, fmt.Errorf("read postmaster.pid: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	// pid, data directory, start time, port, socket directory, ... A server that
	// was killed while it wrote leaves fewer lines; those it has are still right.
	var pm postmaster
	pid, fault := strconv.Atoi(strings.TrimSpace(lines[0]))
	if fault != nil || pid <= 1 {
		return postmaster{}, nil
	}
	pm.pid = pid
	if len(lines) > 4 {
		pm.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
		pm.socketDir = lines[4]
	}
	return pm, nil
}

// stopOrphan ends what an earlier run has left running on the cluster. We hold
// the lock of the data directory, so nobody else owns it.
//
// A process id in a file proves nothing: ids are used again, soonest in a
// container that counts from 1 at each start. So a process is only taken for ours
// when it is a PostgreSQL that works in our cluster directory. When it is not, the
// note is stale and removed, for the new server would refuse to start over any
// live process of that id.
//
// An orphan is stopped, not adopted: it has the settings of the earlier run and
// does not die with this process.
func stopOrphan(ctx context.Context, lay layout, log *slog.Logger) error {
	pm, err := readPostmaster(lay)
	if err != nil {
		return err
	}
	if pm.pid != 0 && isPostmasterOf(pm.pid, lay) {
		log.InfoContext(ctx, "stopping the postgres of an earlier run", "pid", pm.pid)
		if err := stopProcess(ctx, pm.pid, lay); err != nil {
			return err
		}
	}
	// When the postmaster was killed, the processes it had forked notice and end
	// by themselves. Until then they may write to the cluster.
	if !waitUntil(ctx, stopFastWait, func() bool { return len(workersOf(lay)) == 0 }) {
		return fmt.Errorf("processes %v of an earlier PostgreSQL still work on %s: end them first", workersOf(lay), lay.cluster())
	}
	if err := os.Remove(lay.postmaster()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return nil
}

// stopProcess takes the steps of Stop with a process that is not our child.
func stopProcess(ctx context.Context, pid int, lay layout) error {
	gone := func() bool { return !isPostmasterOf(pid, lay) }
	for _, step := range stopSteps() {
		if gone() {
			return nil
		}
		if err := syscall.Kill(pid, step.Signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop process %d, a PostgreSQL of an earlier run on %s: %w", pid, lay.cluster(), err)
		}
		if waitUntil(ctx, step.Wait, gone) {
			return nil
		}
	}
	return fmt.Errorf("process %d, a PostgreSQL of an earlier run on %s, does not stop: end it first", pid, lay.cluster())
}

// waitUntil asks until the answer is yes; false when time or ctx is over first.
func waitUntil(ctx context.Context, limit time.Duration, done func() bool) bool {
	deadline := time.Now().Add(limit)
	for !done() {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}
