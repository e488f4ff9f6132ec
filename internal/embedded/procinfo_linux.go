package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// isPostmasterOf tells whether pid is a live PostgreSQL in our cluster directory.
func isPostmasterOf(pid int, lay layout) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd")) // fails for a zombie, too
	if err != nil || !sameDir(cwd, lay.cluster()) {
		return false
	}
	// The name the kernel keeps, since the program file may have been replaced by
	// an upgrade and the command line is rewritten by PostgreSQL.
	comm, err := os.ReadFile(filepath.Join(proc, "comm"))
	return err == nil && strings.HasPrefix(string(bytes.TrimSpace(comm)), "postgres")
}

// workersOf returns the ids of all live PostgreSQL processes in our cluster
// directory, the postmaster among them.
func workersOf(lay layout) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && isPostmasterOf(pid, lay) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// sameDir compares by identity: the data directory may lie behind a link.
func sameDir(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
