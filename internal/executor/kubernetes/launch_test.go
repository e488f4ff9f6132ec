package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run runs the command line of a container here, its paths replaced, in the shells of the
// images that are most common. A shell that is not installed is passed over.
func run(t *testing.T, spec map[string]any, check func(t *testing.T, stdout, stderr string, code int)) {
	t.Helper()
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	o, work := build(t, newBuilder(t), task(string(raw)))
	input := t.TempDir() + "/stdin"
	if o.ConfigMap != nil {
		require.NoError(t, exec.Command("sh", "-c", `printf %s "$1" >"$2"`, "sh", o.ConfigMap.Data["stdin"], input).Run())
	}
	argv := make([]string, len(work.Command))
	for i, word := range work.Command {
		argv[i] = strings.ReplaceAll(expand(word), "/millrace/stdin", input)
	}
	require.Equal(t, "/bin/sh", argv[0])
	for _, shell := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		path, err := exec.LookPath(shell[0])
		if err != nil {
			continue
		}
		t.Run(shell[0], func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(path, append(shell[1:], argv[1:]...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run()
			check(t, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode())
		})
	}
}

func TestTheLauncherOpensTheInput(t *testing.T) {
	t.Parallel()
	run(t, map[string]any{"command": []string{"sh", "-c", `cat; echo "$0 $1"; exit 3`, "a b", "$HOME"}, "stdin": "line\n"}, func(t *testing.T, stdout, stderr string, code int) {
		assert.Equal(t, "line\na b $HOME\n", stdout, stderr)
		assert.Equal(t, 3, code)
	})
	run(t, map[string]any{"command": []string{"cat"}, "limits": map[string]any{"open_files": 64}}, func(t *testing.T, stdout, stderr string, code int) {
		assert.Empty(t, stdout+stderr)
		assert.Zero(t, code)
	})
}

func TestTheLauncherSetsLimitsSoftAndHard(t *testing.T) {
	t.Parallel()
	limits := map[string]any{"cpu_seconds": 7, "open_files": 33, "file_bytes": 1025, "processes": 3000, "memory_bytes": 1 << 30}
	run(t, map[string]any{"command": []string{"cat", "/proc/self/limits"}, "limits": limits}, func(t *testing.T, stdout, stderr string, _ int) {
		got := make(map[string]string)
		for line := range strings.Lines(stdout) {
			if len(line) > 66 {
				got[strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:66]), " ")
			}
		}
		assert.Equal(t, "7 8", got["Max cpu time"], stderr)
		assert.Equal(t, "33 33", got["Max open files"])
		assert.Equal(t, "1536 1536", got["Max file size"], "in blocks of 512 bytes, rounded up")
		assert.Equal(t, "3000 3000", got["Max processes"])
		assert.Equal(t, "1073741824 1073741824", got["Max address space"])
	})
}

// A lower limit that holds already is kept: it is the ceiling.
func TestTheLauncherDoesNotRaiseLimits(t *testing.T) {
	t.Parallel()
	raw := `{"command":["sh","-c","ulimit -n"],"limits":{"open_files":1000000000}}`
	_, work := build(t, newBuilder(t), task(raw))
	argv := []string{"-c", `ulimit -n 77; exec "$@"`, "sh"}
	for _, word := range work.Command {
		argv = append(argv, expand(word))
	}
	out, err := exec.Command("sh", argv...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "77\n", string(out))
}

func TestTheLauncherTellsWhatItCannotStart(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"no-such-program-anywhere", "/no/such/program", "/etc/passwd"} {
		run(t, map[string]any{"command": []string{program, "x"}, "stdin": "x"}, func(t *testing.T, stdout, stderr string, code int) {
			assert.Equal(t, 127, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "millrace: start failed: there is no program "+program)
		})
	}
}
