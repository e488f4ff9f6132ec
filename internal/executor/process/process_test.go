//go:build linux

package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/process"
)

// TestMain lets the test binary be the programs that attempts run, and a worker
// that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "program" {
		os.Exit(runProgram(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

// runProgram is the main function of a program under test.
func runProgram(name string, args []string) int {
	switch name {
	case "flood":
		n, _ := strconv.Atoi(args[0])
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(i)
		}
		if _, err := os.Stdout.Write(p); err != nil {
			return 1
		}
	case "beat":
		beat()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		beat()
	case "tree":
		return growTree()
	case "worker":
		return runWorker(args[0], time.Hour)
	case "leased-worker":
		return runWorker(args[0], 2*time.Second)
	case "limits":
		for _, resource := range args {
			n, _ := strconv.Atoi(resource)
			var limit syscall.Rlimit
			_ = syscall.Getrlimit(n, &limit)
			fmt.Println(limit.Cur, limit.Max)
		}
	}
	return 0
}

func beat() {
	for {
		fmt.Println("beat")
		time.Sleep(5 * time.Millisecond)
	}
}

// growTree starts descendants in every way in which one can get away, prints
// their pids on one line, and then beats: a child, a child in a session of its
// own, and a daemon that forked twice and cleared its environment.
func growTree() int {
	plain := exec.Command("sleep", "3600")
	session := exec.Command("sleep", "3600")
	session.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	daemon := exec.Command("env", "-i", "/bin/sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The first two keep standard output open, as careless programs do.
	plain.Stdout, session.Stdout = os.Stdout, os.Stdout
	if plain.Start() != nil || session.Start() != nil {
		return 1
	}
	orphan, err := daemon.Output()
	if err != nil {
		return 1
	}
	fmt.Println("tree", os.Getpid(), plain.Process.Pid, session.Process.Pid, strings.TrimSpace(string(orphan)), "grown")
	beat()
	return 0
}

// program is the spec of a program of the test binary.
func program(args ...string) json.RawMessage {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return command(append([]string{self, "program"}, args...)...)
}

// command is the spec of any program.
func command(words ...string) json.RawMessage {
	return with(map[string]any{}, words...)
}

// shell is the spec of a shell script.
func shell(script string) json.RawMessage { return command("sh", "-c", script) }

// with is the spec of a program with further members.
func with(members map[string]any, words ...string) json.RawMessage {
	members["command"] = words
	raw, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return raw
}

// newExecutor returns an executor with a root of its own, and that root. At the
// end of the test nothing may be left in it.
func newExecutor(t *testing.T) (*process.Executor, string) {
	t.Helper()
	root := t.TempDir()
	e, err := process.New(process.Config{WorkRoot: root, Grace: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Empty(t, listAttempts(t, root))
	})
	return e, root
}

// living asks for the processes that the program "tree" names.
func living(t *testing.T, line string) func() []string {
	t.Helper()
	tree := treeOf(t, line)
	return func() (alive []string) {
		for _, p := range tree {
			if p.alive() {
				alive = append(alive, strconv.Itoa(p.pid))
			}
		}
		return alive
	}
}

func TestConformance(t *testing.T) {
	executortest.Run(t, executortest.Subject{
		New: func(t *testing.T) executor.Executor {
			e, _ := newExecutor(t)
			return e
		},
		Succeed:       shell("echo one; echo three >&2; echo two"),
		Fail:          shell("exit 3"),
		FailReason:    "exit_code",
		Crash:         shell("kill -SEGV $$"),
		CrashReason:   "signal",
		Missing:       command("no-such-program-anywhere"),
		MissingReason: "start_failed",
		Invalid:       []json.RawMessage{[]byte(`{"command":[]}`), []byte(`{"command":"true"}`), []byte(`{"command":["true"],"dir":"/"}`)},
		Flood:         func(n int) json.RawMessage { return program("flood", strconv.Itoa(n)) },
		Environment:   command("env"),
		Grow:          program("tree"),
		Living:        living,
		Beat:          program("beat"),
		Stubborn:      program("stubborn"),
		Report: shell(`cat "$MILLRACE_CHECKPOINT"
			echo '{"done":3,"total":12,"message":"files"}' >"$MILLRACE_REPORT"
			echo '{"checkpoint":"row 3"}' >"$MILLRACE_REPORT"`),
	})
}
