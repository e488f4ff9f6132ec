//go:build linux

package process_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

// told runs a script and returns what it has told.
func told(t *testing.T, script string) ([]executor.Progress, [][]byte) {
	t.Helper()
	result, a := run(t, shell(script))
	require.Equal(t, executor.Completed, result.Outcome, result.Message)
	return a.All()
}

func TestFormsOfReports(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]executor.Progress{
		`{"progress":0.25}`:                {Done: 0.25, Total: 1},
		`{"progress":1,"message":"ready"}`: {Done: 1, Total: 1, Message: "ready"},
		`{"done":7}`:                       {Done: 7},
		`{"done":7,"total":9}`:             {Done: 7, Total: 9},
		`{"message":"line\none\u0000"}`:    {Message: "line one "},
		`  {"done":1}  `:                   {Done: 1},
	} {
		progress, checkpoints := told(t, fmt.Sprintf("printf '%%s\\n' '%s' >\"$MILLRACE_REPORT\"", line))
		assert.Equal(t, []executor.Progress{want}, progress, line)
		assert.Empty(t, checkpoints)
	}
	_, checkpoints := told(t, `echo '{"checkpoint_base64":"AAECAw=="}' >"$MILLRACE_REPORT"`)
	assert.Equal(t, [][]byte{{0, 1, 2, 3}}, checkpoints)
	progress, checkpoints := told(t, `printf '{"progress":0.5,"checkpoint":"half"}' >"$MILLRACE_REPORT"`)
	assert.Equal(t, []executor.Progress{{Done: 0.5, Total: 1}}, progress, "the last line may have no end")
	assert.Equal(t, [][]byte{[]byte("half")}, checkpoints)
}

func TestReportsThatMakeNoSenseAreSkipped(t *testing.T) {
	t.Parallel()
	large := base64.StdEncoding.EncodeToString(make([]byte, executor.MaxCheckpointBytes+1))
	for name, line := range map[string]string{
		"no JSON":               `done 3`,
		"unknown field":         `{"percent":3}`,
		"two values":            `{"done":3} {"done":4}`,
		"another type":          `{"done":"3"}`,
		"negative":              `{"done":-3}`,
		"more than all":         `{"done":3,"total":2}`,
		"a fraction above 1":    `{"progress":30}`,
		"both forms":            `{"progress":0.3,"done":3}`,
		"no base64":             `{"checkpoint_base64":"%%%"}`,
		"both checkpoints":      `{"checkpoint":"a","checkpoint_base64":"AA=="}`,
		"a large checkpoint":    `{"checkpoint_base64":"` + large + `"}`,
		"half of it is invalid": `{"checkpoint":"a","done":-1}`,
		"a long line":           `{"message":"` + strings.Repeat("x", 1<<20) + `"}`,
		"not UTF-8":             "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := new(transcript.Text)
			e, err := process.New(process.Config{WorkRoot: t.TempDir(), Logger: slog.New(slog.NewTextHandler(out, nil))})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, e.Close()) })
			input, err := json.Marshal(map[string]any{
				"command":      []string{"sh", "-c", `cat >"$MILLRACE_REPORT"; echo >"$MILLRACE_REPORT"; echo '{"done":1}' >"$MILLRACE_REPORT"`},
				"stdin_base64": base64.StdEncoding.EncodeToString([]byte(line[:min(len(line), 700<<10)])),
			})
			require.NoError(t, err)
			a := executortest.Start(t, e, input, time.Hour, 1<<20)
			result := a.Wait(t)
			require.Equal(t, executor.Completed, result.Outcome, result.Message)
			progress, checkpoints := a.All()
			assert.Equal(t, []executor.Progress{{Done: 1}}, progress, "the next line counts again")
			assert.Empty(t, checkpoints)
			assert.Contains(t, out.String(), "reports that cannot be read")
		})
	}
}

// More than a pipe holds, from a child of a child, when nobody has looked yet.
func TestReportsNeverBlockTheProgram(t *testing.T) {
	t.Parallel()
	progress, _ := told(t, `sh -c 'for i in $(seq 1 20000); do echo "{\"done\":$i,\"total\":20000}"; done >"$MILLRACE_REPORT"' & wait`)
	assert.Len(t, progress, 20000)
	assert.Equal(t, executor.Progress{Done: 20000, Total: 20000}, progress[len(progress)-1])
}

func TestReportsArriveWhileItRuns(t *testing.T) {
	t.Parallel()
	e, _ := newExecutor(t)
	a := executortest.Start(t, e, shell(`echo '{"done":1}' >"$MILLRACE_REPORT"; cat "$HOME/never" 2>/dev/null; exec sleep 1000`), time.Hour, 1<<20)
	require.Eventually(t, func() bool {
		progress, _ := a.All()
		return len(progress) == 1
	}, executortest.Patience, time.Millisecond)
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
}

func TestNothingIsLeftOfReports(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	e, err := process.New(process.Config{WorkRoot: root})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	for _, script := range []string{
		`test -e "$MILLRACE_CHECKPOINT"; echo '{"done":1}' >"$MILLRACE_REPORT"`,
		`rm -f "$MILLRACE_REPORT"; mkdir -p "$MILLRACE_REPORT/x"`,
	} {
		a := executortest.StartTask(t, e, executor.Task{Spec: shell(script), Checkpoint: []byte{}}, time.Hour)
		require.Equal(t, executor.Completed, a.Wait(t).Outcome)
	}
	left, err := filepath.Glob(filepath.Join(root, "worker-*", "[a-z]*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWithoutACheckpointThereIsNoFile(t *testing.T) {
	t.Parallel()
	result, a := run(t, shell(`echo "${MILLRACE_CHECKPOINT-none}"`))
	require.Equal(t, executor.Completed, result.Outcome)
	assert.Equal(t, "none\n", a.Stdout())
}
