//go:build unix && !linux

package embedded

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// isPostmasterOf tells whether pid is a live PostgreSQL that was started on our
// cluster directory, by its command line.
func isPostmasterOf(pid int, lay layout) bool { return slices.Contains(workersOf(lay), pid) }

// workersOf returns the ids of the postmasters on our cluster directory. The
// processes that they fork show other command lines; PostgreSQL itself refuses to
// start while one holds its shared memory.
func workersOf(lay layout) []int {
	list, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(list)) {
		id, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(command, "postgres") || !strings.Contains(command, "-D "+lay.cluster()+" ") {
			continue
		}
		if pid, err := strconv.Atoi(id); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
