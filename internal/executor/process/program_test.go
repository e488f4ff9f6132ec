//go:build linux

package process_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// run runs a spec to its end.
func run(t *testing.T, spec json.RawMessage) (executor.Result, *executortest.Attempt) {
	t.Helper()
	e, _ := newExecutor(t)
	a := executortest.Start(t, e, spec, time.Hour, 8<<20)
	return a.Wait(t), a
}

func TestEnvironmentHoldsNothingOfTheWorker(t *testing.T) {
	t.Setenv("CANARY_PASSWORD", "tweet-7f3a")
	_, a := run(t, with(map[string]any{"env": map[string]string{"COLOUR": "red", "LANG": "de_DE.UTF-8"}}, "env"))
	assert.NotContains(t, a.Stdout(), "tweet-7f3a")
	names := map[string]string{}
	for line := range strings.Lines(a.Stdout()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[name] = value
	}
	dir := names["MILLRACE_WORKDIR"]
	require.NotEmpty(t, dir)
	id := names["MILLRACE_EXECUTION_ID"]
	require.NotEmpty(t, id)
	assert.Equal(t, map[string]string{
		"PATH": process.PathDefault, "HOME": dir, "TMPDIR": dir, "LANG": "de_DE.UTF-8", "COLOUR": "red",
		"MILLRACE_EXECUTION_ID": id, "MILLRACE_ATTEMPT": "1", "MILLRACE_WORKDIR": dir, "MILLRACE_REPORT": strings.Replace(dir, "/attempt-", "/report-", 1),
	}, names)
	assert.NoDirExists(t, dir)

	// The environment of the shim itself can be read by the program, too.
	_, a = run(t, shell(`tr '\0' '\n' < /proc/$PPID/environ; cat /proc/$PPID/cmdline`))
	assert.NotContains(t, a.Stdout(), "tweet-7f3a")
}

func TestProgramGetsThreeDescriptorsAndASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	result, a := run(t, shell(`ls /proc/$$/fd; cut -d' ' -f1,5,6 /proc/$$/stat; pwd; echo $HOME; umask; grep -E '^(NoNewPrivs|SigIgn)' /proc/$$/status; ulimit -c`))
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	lines := strings.Fields(a.Stdout())
	require.Equal(t, []string{"0", "1", "2"}, lines[:3])
	assert.Equal(t, lines[3], lines[4], "leads its process group")
	assert.Equal(t, lines[3], lines[5], "leads its session")
	assert.Equal(t, lines[6], lines[7], "starts in its home")
	assert.Contains(t, a.Stdout(), "NoNewPrivs:\t1")
	assert.Equal(t, "0", lines[len(lines)-1], "no core dumps")
}

func TestWorkingDirectoriesAreFreshPrivateAndRemoved(t *testing.T) {
	t.Parallel()
	result, a := run(t, shell(`stat -c %a .; ls -A; mkdir -p a/b; echo x > a/b/c; chmod 0 a/b; ln -s / slash; pwd`))
	require.Equal(t, executor.Completed, result.Outcome, a.Stderr())
	lines := strings.Fields(a.Stdout())
	require.Len(t, lines, 2, a.Stdout())
	assert.Equal(t, "700", lines[0])
	assert.NoDirExists(t, lines[1])
	assert.DirExists(t, "/proc")
}

func TestInput(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 60_000)
	_, a := run(t, with(map[string]any{"stdin": big}, "cat"))
	assert.Equal(t, big, a.Stdout(), "all of it is read")

	binary := "\x00\xff\xfe\n\x80"
	_, a = run(t, with(map[string]any{"stdin_base64": base64.StdEncoding.EncodeToString([]byte(binary))}, "cat"))
	assert.Equal(t, binary, a.Stdout(), "bytes that are not UTF-8 pass unchanged")

	result, _ := run(t, with(map[string]any{"stdin": big}, "true"))
	assert.Equal(t, executor.Completed, result.Outcome, "a program need not read its input")
	result, a = run(t, with(map[string]any{"stdin": big}, "sh", "-c", "exec <&-; echo closed; sleep 0.01; exit 4"))
	assert.Equal(t, 4, *result.ExitCode)
	assert.Equal(t, "closed\n", a.Stdout())

	result, a = run(t, command("cat"))
	assert.Equal(t, executor.Completed, result.Outcome, "without input the end comes at once")
	assert.Empty(t, a.Stdout())
}

func TestHowAProgramEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script, reason, signal, message string
		code                            int
	}{
		{script: "exit 0", code: 0},
		{script: "exit 255", code: 255, reason: "exit_code", message: "the program exited with code 255"},
		{script: "kill -KILL $$", signal: "SIGKILL", code: -1, reason: "signal", message: "the program was ended by SIGKILL"},
		{script: "kill -SEGV $$", signal: "SIGSEGV", code: -1, reason: "signal", message: "the program was ended by SIGSEGV"},
		{script: "sleep 3600 & exit 1", code: 1, reason: "exit_code", message: "the program exited with code 1"},
	} {
		result, _ := run(t, shell(c.script))
		assert.Equal(t, c.reason, result.Reason, c.script)
		assert.Equal(t, c.signal, result.Signal, c.script)
		assert.Contains(t, result.Message, c.message, c.script)
		if c.code < 0 {
			assert.Nil(t, result.ExitCode, c.script)
		} else if assert.NotNil(t, result.ExitCode, c.script) {
			assert.Equal(t, c.code, *result.ExitCode, c.script)
		}
	}
}

func TestWhyAProgramCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	plain := file("plain", "#!/bin/sh\n", 0o644)
	noInterpreter := file("no-interpreter", "#!/no/such/interpreter\n", 0o755)
	noFormat := file("no-format", "echo hello\n", 0o755)
	for _, limits := range []map[string]any{{}, {"limits": map[string]any{"open_files": 32}}} {
		for program, message := range map[string]string{
			"no-such-program": `start "no-such-program": no such program (PATH is ` + process.PathDefault + `)`,
			"/no/such/file":   `start "/no/such/file": no such file or directory`,
			"./relative":      `start "./relative": no such file or directory`,
			plain:             `start "` + plain + `": no permission to execute it`,
			dir:               `start "` + dir + `": no permission to execute it`,
			noInterpreter:     `start "` + noInterpreter + `": the interpreter that it names does not exist`,
			noFormat:          `start "` + noFormat + `": it is neither a program of this machine nor a script with a #! line`,
		} {
			result, a := run(t, with(limits, program))
			assert.Equal(t, executor.Failed, result.Outcome)
			assert.Equal(t, "start_failed", result.Reason)
			assert.Equal(t, message, result.Message)
			assert.False(t, result.Retryable)
			assert.Empty(t, a.Stdout()+a.Stderr())
		}
	}
	// PATH of the spec is where names are looked up, but not relative to the
	// working directory.
	require.NoError(t, os.Symlink("/bin/sh", filepath.Join(dir, "my-shell")))
	result, _ := run(t, with(map[string]any{"env": map[string]string{"PATH": "::.:" + dir}}, "my-shell", "-c", "exit 7"))
	require.NotNil(t, result.ExitCode, result.Message)
	assert.Equal(t, 7, *result.ExitCode)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	const nproc = 6
	ask := []string{self, "program", "limits", strconv.Itoa(syscall.RLIMIT_CPU), strconv.Itoa(syscall.RLIMIT_AS),
		strconv.Itoa(syscall.RLIMIT_NOFILE), strconv.Itoa(syscall.RLIMIT_FSIZE), strconv.Itoa(nproc)}
	result, a := run(t, with(map[string]any{"limits": map[string]any{
		"cpu_seconds": 100, "memory_bytes": int64(16) << 30, "open_files": 50, "file_bytes": 1000, "processes": 5000,
	}}, ask...))
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	assert.Equal(t, "100 101\n17179869184 17179869184\n50 50\n1000 1000\n5000 5000\n", a.Stdout())

	result, _ = run(t, with(map[string]any{"limits": map[string]any{"cpu_seconds": 1}}, "sh", "-c", "while :; do :; done"))
	assert.Equal(t, "SIGXCPU", result.Signal)
	assert.Contains(t, result.Message, "cpu_seconds")

	result, _ = run(t, with(map[string]any{"limits": map[string]any{"file_bytes": 10}}, "sh", "-c", "exec dd if=/dev/zero of=f bs=100 count=1"))
	assert.Equal(t, "SIGXFSZ", result.Signal)

	result, a = run(t, with(map[string]any{"limits": map[string]any{"memory_bytes": 64 << 20}}, "sh", "-c", "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo survived"))
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.NotContains(t, a.Stdout(), "survived")

	// A program with limits dies with its shim like any other.
	e, _ := newExecutor(t)
	b := executortest.Start(t, e, with(map[string]any{"limits": map[string]any{"open_files": 50}}, "sh", "-c", "echo $$ beat; exec sleep 3600"), time.Hour, 1<<20)
	b.WaitStdout(t, "beat")
	pid, err := strconv.Atoi(strings.Fields(b.Stdout())[0])
	require.NoError(t, err)
	p := find(t, pid)
	require.NoError(t, syscall.Kill(parent(t, p).pid, syscall.SIGKILL))
	requireDead(t, []proc{p})
	_, err = b.WaitErr(t)
	require.Error(t, err)
}

// Somebody outside of the tree who holds a pipe of the program open must not
// hold up the end of the attempt.
func TestAStrangerHoldingTheOutputOpenDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	e, _ := newExecutor(t)
	a := executortest.Start(t, e, shell("echo $$ beat; exec sleep 3600"), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	stranger, err := os.OpenFile(fmt.Sprintf("/proc/%s/fd/1", strings.Fields(a.Stdout())[0]), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = stranger.Close() }()
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
}

func TestRootMustBePrivate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o777))
	_, err := process.New(process.Config{WorkRoot: root})
	require.ErrorContains(t, err, "others may write")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = process.New(process.Config{WorkRoot: file})
	require.ErrorContains(t, err, "create root")
}

func TestWorkersShareARoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first, err := process.New(process.Config{WorkRoot: root})
	require.NoError(t, err)
	a := executortest.Start(t, first, program("beat"), time.Hour, 1<<20)
	a.WaitStdout(t, "beat")
	second, err := process.New(process.Config{WorkRoot: root})
	require.NoError(t, err)
	assert.Len(t, listAttempts(t, root), 1, "the directories of a living worker stay")
	require.NoError(t, second.Close())
	a.Cancel(executor.ErrShutdown)
	a.Wait(t)
	require.NoError(t, first.Close())
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	features, err := process.Isolation(t.Context(), process.Sandbox{})
	require.NoError(t, err)
	var names []string
	for _, f := range features {
		names = append(names, f.Name)
		assert.NotEmpty(t, f.Detail)
		if !slices.Contains([]string{"unprivileged_user", "bubblewrap"}, f.Name) {
			assert.True(t, f.Active, f.Name)
		}
	}
	assert.Equal(t, []string{"process_group", "subreaper", "parent_death_signal", "no_new_privileges", "resource_limits",
		"no_core_dumps", "clean_descriptors", "pidfd", "bubblewrap", "unprivileged_user"}, names)
}
