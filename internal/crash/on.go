//go:build crashpoints && unix

package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// points is the state of this process. It is package state because points are
// passed everywhere, and only a build for tests has it.
var points = struct {
	sync.Mutex
	file   string
	armed  string // what the file held when passed was last counted from 0
	passed int
}{file: os.Getenv("CRASHPOINT_FILE")}

// At ends the process with SIGKILL if the file has armed this passing of the
// point. It does not return then.
func At(name string) {
	if points.file == "" {
		return
	}
	points.Lock()
	defer points.Unlock()
	text, err := os.ReadFile(points.file)
	if err != nil {
		return // not armed
	}
	if string(text) != points.armed {
		points.armed, points.passed = string(text), 0
	}
	point, nth, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if point != name {
		return
	}
	n, err := strconv.Atoi(nth)
	if err != nil {
		n = 1
	}
	if points.passed++; points.passed < n {
		return
	}
	mark := points.file + ".crashed"
	if os.Rename(points.file, mark) != nil {
		return // another process was faster
	}
	if err := os.WriteFile(mark, fmt.Appendf(nil, "%s %d\n", name, os.Getpid()), 0o600); err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // one may always kill oneself
	select {}
}
