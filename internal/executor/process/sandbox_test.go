//go:build linux

package process_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/process"
)

// bubblewrap is what a machine says of a sandbox.
func bubblewrap(t *testing.T, s process.Sandbox) process.Feature {
	t.Helper()
	features, err := process.Isolation(t.Context(), s)
	require.NoError(t, err)
	for _, f := range features {
		if f.Name == "bubblewrap" {
			return f
		}
	}
	require.FailNow(t, "there is no word of it")
	return process.Feature{}
}

// requireSandbox skips where there is none to be had.
func requireSandbox(t *testing.T) {
	t.Helper()
	if f := bubblewrap(t, process.Sandbox{Mode: process.SandboxAuto}); !f.Active {
		t.Skip("needs bubblewrap: " + f.Detail)
	}
}

// newSandboxed returns an executor whose programs run in a sandbox. They find the
// test binary, which may lie in /tmp.
func newSandboxed(t *testing.T, s process.Sandbox) *process.Executor {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	root := t.TempDir()
	s.Mode, s.Writable = process.SandboxRequired, append(s.Writable, filepath.Dir(self))
	e, err := process.New(process.Config{WorkRoot: root, Grace: time.Second, Sandbox: s})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Empty(t, listAttempts(t, root))
	})
	return e
}

func sandboxed(t *testing.T, s process.Sandbox, spec json.RawMessage) (executor.Result, *executortest.Attempt) {
	t.Helper()
	a := executortest.Start(t, newSandboxed(t, s), spec, time.Hour, 1<<20)
	return a.Wait(t), a
}

// Walls change nothing about the contract.
func TestConformanceInTheSandbox(t *testing.T) {
	requireSandbox(t)
	executortest.Run(t, executortest.Subject{
		New:         func(t *testing.T) executor.Executor { return newSandboxed(t, process.Sandbox{}) },
		Succeed:     shell("echo one; echo three >&2; echo two"),
		Fail:        shell("exit 3"),
		FailReason:  "exit_code",
		Crash:       shell("kill -SEGV $$"),
		CrashReason: "exit_code",
		Environment: command("env"),
		Report: shell(`cat "$MILLRACE_CHECKPOINT"
			echo '{"done":3,"total":12,"message":"files"}' >"$MILLRACE_REPORT"
			echo '{"checkpoint":"row 3"}' >"$MILLRACE_REPORT"`),
		Missing:       command("no-such-program-anywhere"),
		MissingReason: "start_failed",
		Flood:         func(n int) json.RawMessage { return program("flood", strconv.Itoa(n)) },
		Beat:          program("beat"),
		Stubborn:      program("stubborn"),
	})
}

func TestTheSandboxIsWrittenToInPlacesThatWereAllowed(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	allowed, secret := t.TempDir(), t.TempDir()
	forbidden, err := os.MkdirTemp("/var/tmp", "millrace-forbidden-") // not /tmp, which is empty inside
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(forbidden)) })
	deeper := filepath.Join(allowed, "deeper")
	require.NoError(t, os.Mkdir(deeper, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(deeper, "password"), []byte("tweet-7f3a"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(secret, "token"), []byte("tweet-7f3a"), 0o600))
	// t.TempDir lies in /tmp, which a sandbox empties: Writable shows one of it.
	result, a := sandboxed(t, process.Sandbox{Writable: []string{allowed, "/no/such/directory"}, Hidden: []string{deeper, secret, "/nor/this"}}, shell(fmt.Sprintf(`
		echo kept > %s/file; echo home > mine && cat mine
		echo x > %s/file || echo forbidden; echo x > /etc/millrace-test || echo read-only
		echo x > /tmp/file && ls /tmp/file; ls -A %s 2>&1; cat %s/token || echo hidden; cat %s/password || echo hidden`, allowed, forbidden, secret, secret, deeper)))
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	assert.Contains(t, a.Stdout(), "home\nforbidden\nread-only\n/tmp/file\n")
	assert.Equal(t, 2, strings.Count(a.Stdout(), "hidden"))
	assert.NotContains(t, a.Stdout(), "tweet-7f3a")
	assert.NoFileExists(t, "/etc/millrace-test")
	assert.NoFileExists(t, filepath.Join(forbidden, "file"))
	kept, err := os.ReadFile(filepath.Join(allowed, "file"))
	require.NoError(t, err)
	assert.Equal(t, "kept\n", string(kept))
}

func TestTheSandboxHasProcessesAndPrivilegesOfItsOwn(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	result, a := sandboxed(t, process.Sandbox{}, shell(`ls -d /proc/[0-9]* | wc -l; kill -0 `+strconv.Itoa(os.Getpid())+` 2>/dev/null || echo alone
		grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; env | grep -c CANARY; pwd; ls /proc/self/fd | wc -l`))
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	lines := strings.Split(a.Stdout(), "\n")
	n, err := strconv.Atoi(lines[0])
	require.NoError(t, err)
	assert.Less(t, n, 10, "the machine's processes cannot be seen")
	assert.Equal(t, "alone", lines[1])
	assert.Contains(t, a.Stdout(), "CapEff:\t0000000000000000")
	assert.Contains(t, a.Stdout(), "NoNewPrivs:\t1")
}

func TestTheSandboxTakesTheNetworkAway(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	if f := bubblewrap(t, process.Sandbox{Mode: process.SandboxAuto, NoNetwork: true}); !f.Active {
		t.Skip("needs network namespaces: " + f.Detail)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for noNetwork, want := range map[bool]string{false: "open\n", true: "closed\n"} {
		_, a := sandboxed(t, process.Sandbox{NoNetwork: noNetwork}, command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+" && echo open || echo closed"))
		assert.Equal(t, want, a.Stdout(), a.Stderr())
	}
}

func TestTheWholeTreeDiesInTheSandbox(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	for name, stop := range map[string]func(*executortest.Attempt){
		"cancelled":  func(a *executortest.Attempt) { a.Cancel(executor.ErrCancelled) },
		"lease lost": func(a *executortest.Attempt) { a.Cancel(executor.ErrLeaseLost) },
		"lease ends": func(a *executortest.Attempt) { a.Lease.Extend(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := executortest.Start(t, newSandboxed(t, process.Sandbox{}), program("tree"), time.Hour, 1<<20)
			a.WaitStdout(t, "grown")
			inside := ofExecution(t, a)
			require.GreaterOrEqual(t, len(inside), 3, "those that kept their environment")
			stop(a)
			a.Wait(t)
			for _, p := range inside {
				assert.False(t, p.alive(), "process %d lives on", p.pid)
			}
		})
	}
}

// ofExecution are the processes of an attempt as the machine sees them, found by the
// execution's id in their environment.
func ofExecution(t *testing.T, a *executortest.Attempt) []proc {
	t.Helper()
	var found []proc
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("MILLRACE_EXECUTION_ID="+a.ID+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, find(t, pid))
		}
	}
	return found
}

// A program in the sandbox is asked to stop before it is made to, as any other.
func TestTheSandboxLetsAProgramSayGoodbye(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	a := executortest.Start(t, newSandboxed(t, process.Sandbox{}), shell(`trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`), time.Hour, 1<<20)
	a.WaitStdout(t, "ready")
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
	assert.Contains(t, a.Stdout(), "goodbye")
}

func TestWhatASandboxedProgramLeavesIsTold(t *testing.T) {
	t.Parallel()
	requireSandbox(t)
	result, _ := sandboxed(t, process.Sandbox{}, shell("true"))
	assert.Equal(t, executor.Completed, result.Outcome)
	assert.Empty(t, result.Message, "the sandbox itself is nothing that was left")
	result, _ = sandboxed(t, process.Sandbox{}, shell("kill -9 $$"))
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, 137, *result.ExitCode)
	assert.Contains(t, result.Message, "SIGKILL")
	// Limits hold inside.
	result, _ = sandboxed(t, process.Sandbox{}, with(map[string]any{"limits": map[string]any{"file_bytes": 10}}, "sh", "-c", "echo 0123456789abcdef > file"))
	assert.Equal(t, executor.Failed, result.Outcome)
}

func TestTheSandboxDegradesOpenly(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // where there is no bwrap
	f := bubblewrap(t, process.Sandbox{Mode: process.SandboxAuto})
	assert.False(t, f.Active)
	assert.Contains(t, f.Detail, "bwrap is not installed")

	_, err := process.New(process.Config{WorkRoot: t.TempDir(), Sandbox: process.Sandbox{Mode: process.SandboxRequired}})
	require.ErrorContains(t, err, "sandbox is required: bwrap is not installed")
	_, err = process.New(process.Config{WorkRoot: t.TempDir(), Sandbox: process.Sandbox{Mode: "maybe"}})
	require.ErrorContains(t, err, `sandbox mode "maybe"`)

	var log bytes.Buffer
	e, err := process.New(process.Config{
		WorkRoot: t.TempDir(), Sandbox: process.Sandbox{Mode: process.SandboxAuto}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	assert.Contains(t, log.String(), "programs run without a sandbox")
	assert.Equal(t, executor.Completed, executortest.Start(t, e, command("true"), time.Hour, 0).Wait(t).Outcome)
}

func TestASandboxThatDoesNotWorkIsNoSandbox(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\necho bwrap: no namespaces for you >&2\nexit 1\n"), 0o700))
	t.Setenv("PATH", dir)
	f := bubblewrap(t, process.Sandbox{Mode: process.SandboxAuto})
	assert.False(t, f.Active)
	assert.Contains(t, f.Detail, "no namespaces for you")
	f = bubblewrap(t, process.Sandbox{})
	assert.False(t, f.Active)
	assert.Contains(t, f.Detail, "worker.sandbox.mode is off")
}
