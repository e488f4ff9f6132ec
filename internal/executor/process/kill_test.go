//go:build linux

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/process"
)

// proc is a process that a test expects to die, told from a later one with the
// same pid by the time of its start.
type proc struct {
	pid   int
	start string
}

// statFields are the fields of /proc/pid/stat from the state on.
func statFields(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

func find(t *testing.T, pid int) proc {
	t.Helper()
	fields := statFields(pid)
	require.NotNil(t, fields, "process %d does not run", pid)
	return proc{pid: pid, start: fields[19]}
}

func (p proc) alive() bool {
	fields := statFields(p.pid)
	return fields != nil && fields[19] == p.start && fields[0] != "Z"
}

func requireDead(t *testing.T, procs []proc) {
	t.Helper()
	for _, p := range procs {
		require.Eventually(t, func() bool { return !p.alive() }, executortest.Patience, 5*time.Millisecond, "process %d lives on", p.pid)
	}
}

// treeOf reads the line that the program "tree" prints.
func treeOf(t *testing.T, line string) []proc {
	t.Helper()
	var procs []proc
	for _, field := range strings.Fields(line) {
		if pid, err := strconv.Atoi(field); err == nil {
			procs = append(procs, find(t, pid))
		}
	}
	require.Len(t, procs, 4, line)
	return procs
}

// grow starts the program "tree" and waits until it stands.
func grow(t *testing.T) (*executortest.Attempt, []proc) {
	t.Helper()
	e, _ := newExecutor(t)
	a := executortest.Start(t, e, program("tree"), time.Hour, 1<<20)
	a.WaitStdout(t, "grown")
	line, _, _ := strings.Cut(a.Stdout(), "\n")
	return a, treeOf(t, line)
}

// parent is the pid of the shim of a program.
func parent(t *testing.T, p proc) proc {
	t.Helper()
	pid, err := strconv.Atoi(statFields(p.pid)[1])
	require.NoError(t, err)
	return find(t, pid)
}

func listAttempts(t *testing.T, root string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root, "worker-*", "attempt-*"))
	require.NoError(t, err)
	return list
}

// When Run returns, the whole tree is dead already, for whatever reason it was
// stopped.
func TestTheWholeTreeDies(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*executortest.Attempt, []proc){
		"cancelled":       func(a *executortest.Attempt, _ []proc) { a.Cancel(executor.ErrCancelled) },
		"lease lost":      func(a *executortest.Attempt, _ []proc) { a.Cancel(executor.ErrLeaseLost) },
		"lease ends":      func(a *executortest.Attempt, _ []proc) { a.Lease.Extend(0) },
		"program is gone": func(_ *executortest.Attempt, tree []proc) { _ = syscall.Kill(tree[0].pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tree := grow(t)
			stop(a, tree)
			a.Wait(t)
			for i, p := range tree {
				assert.False(t, p.alive(), "process %d of the tree lives on", i)
			}
		})
	}
}

func TestBackgroundProcessesDoNotOutliveTheProgram(t *testing.T) {
	t.Parallel()
	e, _ := newExecutor(t)
	a := executortest.Start(t, e, shell("sleep 3600 & sleep 3600 & echo started; exit 0"), time.Hour, 1<<20)
	result := a.Wait(t)
	assert.Equal(t, executor.Completed, result.Outcome)
	assert.Equal(t, "started\n", a.Stdout(), "a child that holds standard output open does not hold up the end")
}

// A worker that is killed cannot clean up; the shim does.
func TestNothingOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	worker := exec.Command(os.Args[0], "program", "worker", root)
	out, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })

	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	tree := treeOf(t, line)
	shim := parent(t, tree[0])
	require.NoError(t, worker.Process.Kill())
	requireDead(t, append(tree, shim))
	assert.Empty(t, listAttempts(t, root), "the shim removes the working directory")

	// The next worker removes what is left.
	e, err := process.New(process.Config{WorkRoot: root})
	require.NoError(t, err)
	workers, err := filepath.Glob(filepath.Join(root, "worker-*"))
	require.NoError(t, err)
	assert.Len(t, workers, 1)
	require.NoError(t, e.Close())
}

// runWorker is a worker that runs one attempt of the program "tree" and passes
// on what it prints.
func runWorker(root string, lease time.Duration) int {
	e, err := process.New(process.Config{WorkRoot: root})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	task := executor.Task{ExecutionID: "killed", Attempt: 1, Spec: program("tree"), MaxOutputBytes: 1 << 20}
	_, _ = e.Run(context.Background(), task, executortest.NewLease(lease), passOn{})
	return 0
}

type passOn struct{}

func (passOn) Write(_ executor.Stream, p []byte) error {
	_, err := os.Stdout.Write(p)
	return err
}

// A worker that is stopped (SIGSTOP) sends no extension: the shim must not wait
// for it.
func TestNothingOutlivesTheLeaseOfAStoppedWorker(t *testing.T) {
	t.Parallel()
	worker := exec.Command(os.Args[0], "program", "leased-worker", t.TempDir())
	out, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	tree := treeOf(t, line)
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
	requireDead(t, tree)
	assert.True(t, find(t, worker.Process.Pid).alive())
}

// The shim is the one process whose death the tree cannot be told of by itself.
func TestNothingOutlivesAKilledShim(t *testing.T) {
	t.Parallel()
	e, _ := newExecutor(t)
	// As "tree", but the detached process keeps its environment.
	a := executortest.Start(t, e, shell(`setsid sh -c 'sleep 3600 & echo $! $$; wait' & sleep 0.01; echo $$ grown; wait`), time.Hour, 1<<20)
	a.WaitStdout(t, "grown")
	require.Eventually(t, func() bool { return strings.Count(a.Stdout(), "\n") == 2 }, executortest.Patience, time.Millisecond)
	var tree []proc
	var program proc
	for line := range strings.Lines(a.Stdout()) {
		for _, field := range strings.Fields(line) {
			if pid, err := strconv.Atoi(field); err == nil {
				tree = append(tree, find(t, pid))
				if strings.Contains(line, "grown") {
					program = find(t, pid)
				}
			}
		}
	}
	require.Len(t, tree, 3)
	require.NoError(t, syscall.Kill(parent(t, program).pid, syscall.SIGKILL))
	_, err := a.WaitErr(t)
	require.ErrorContains(t, err, "its shim was ended from outside (signal: killed)")
	requireDead(t, tree)
}

// A shim that somebody has stopped cannot keep the deadline; the worker does.
func TestAStoppedShimIsKilledAfterTheLease(t *testing.T) {
	t.Parallel()
	a, tree := grow(t)
	require.NoError(t, syscall.Kill(parent(t, tree[0]).pid, syscall.SIGSTOP))
	a.Lease.Extend(0)
	result := a.Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, "lease_lost", result.Reason)
	// What the kernel kills with the shim may be on its way out still.
	requireDead(t, tree[:3])
	// The daemon has cleared its environment, and the shim that knew it is gone:
	// the one case that the package doc leaves open.
	_ = syscall.Kill(tree[3].pid, syscall.SIGKILL)
}

// Whoever sends SIGTERM to the shim means the program.
func TestSIGTERMToTheShimStopsTheProgram(t *testing.T) {
	t.Parallel()
	a, tree := grow(t)
	require.NoError(t, syscall.Kill(parent(t, tree[0]).pid, syscall.SIGTERM))
	result := a.Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, "signal", result.Reason)
	assert.Equal(t, "SIGTERM", result.Signal)
	requireDead(t, tree)
}

// A program may use the grace to end well, and is killed when it does not.
func TestGrace(t *testing.T) {
	t.Parallel()
	e, _ := newExecutor(t)
	polite := `trap 'echo bye; exit 0' TERM; echo beat; while :; do sleep 0.01; done`
	a := executortest.Start(t, e, shell(polite), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	a.Cancel(executor.ErrRunLimit)
	result := a.Wait(t)
	assert.Equal(t, executor.TimedOut, result.Outcome, "a program that obeys has not completed")
	assert.Equal(t, "beat\nbye\n", a.Stdout())
	require.NotNil(t, result.ExitCode)
	assert.Zero(t, *result.ExitCode)

	a = executortest.Start(t, e, program("stubborn"), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	a.Cancel(executor.ErrRunLimit)
	result = a.Wait(t)
	assert.Equal(t, executor.TimedOut, result.Outcome)
	assert.Equal(t, "SIGKILL", result.Signal)

	// A process that is stopped gets its SIGTERM all the same.
	a = executortest.Start(t, e, shell("echo $$ beat; sleep 3600"), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	pid, err := strconv.Atoi(strings.Fields(a.Stdout())[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, "SIGTERM", a.Wait(t).Signal)
}

// Processes that multiply as fast as they can are all caught, also when each is
// in a session of its own and lives only long enough to have a child.
func TestRunawayTreesAreCaught(t *testing.T) {
	t.Parallel()
	scripts := map[string][]string{
		"wide":  {"sh", "-c", `f() { sleep 3600 & }; i=0; while [ $i -lt 200 ]; do f; i=$((i+1)); done; echo beat; while :; do f; sleep 0.05; done`},
		"chain": {"sh", "-c", `f() { (f) & exit 0; }; (f) & echo beat; sleep 3600`},
	}
	if _, err := exec.LookPath("python3"); err == nil {
		scripts["detached chain"] = []string{"python3", "-c", `
import os, time
if os.fork() == 0:
    while True:
        if os.fork(): os._exit(0)
        os.setsid()
time.sleep(0.2)
os.write(1, b"beat\n")
time.sleep(3600)`}
	}
	for name, words := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, root := newExecutor(t)
			a := executortest.Start(t, e, command(words...), time.Hour, 1<<20)
			a.WaitStdout(t, "beat")
			dirs := listAttempts(t, root)
			require.Len(t, dirs, 1)
			a.Cancel(executor.ErrCancelled)
			a.Wait(t)
			assert.Empty(t, marked(dirs[0]), "processes of the attempt live on")
		})
	}
}

// marked lists the processes that have the working directory in their
// environment.
func marked(dir string) []string {
	var pids []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(env, []byte("MILLRACE_WORKDIR="+dir)) {
			pids = append(pids, file)
		}
	}
	return pids
}
