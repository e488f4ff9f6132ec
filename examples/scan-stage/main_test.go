package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// cancels are the executions that a stage has refused, with the reasons.
type cancels struct {
	refused map[string]string
	fault   error
}

func (c *cancels) Cancel(_ context.Context, id, _, reason string) error {
	if c.fault != nil {
		return c.fault
	}
	c.refused[id] = reason
	return nil
}

// task is a scheduled command.
func task(id string, command ...string) topics.ExecutionTask {
	spec, _ := json.Marshal(map[string]any{"command": command})
	return topics.ExecutionTask{ExecutionID: id, Attempt: 2, ScheduledAt: time.Unix(1, 0).UTC(), Request: topics.Request{
		Executor: "process", Spec: spec, ResourceClass: "default", Priority: 3,
		Retry: topics.Retry{MaxAttempts: 1}, Origin: topics.Origin{Kind: "rest"},
	}}
}

func TestHarmlessTasksArePassedOnAsTheyAre(t *testing.T) {
	t.Parallel()
	c := &cancels{refused: map[string]string{}}
	h := pipelinetest.New(t, NewScan(c, slog.New(slog.DiscardHandler)))
	env, err := topics.NewEnvelope(task("e-1", "echo", "hello"), topics.WithID("the-same-id"), topics.WithCorrelation("e-1", "its-cause"))
	require.NoError(t, err)
	// What a newer coordinator may say beyond what this program knows.
	env.Data = bytes.Replace(env.Data, []byte(`{`), []byte(`{"later_field":7,`), 1)
	h.FeedRecord(env.Record(string(unscanned), []byte("e-1")))

	require.Len(t, h.PublishedEnvelopes(), 1)
	out := h.PublishedEnvelopes()[0]
	assert.Equal(t, topics.ExecutionTasks, out.Topic)
	assert.Equal(t, "e-1", out.AggregateID)
	assert.Equal(t, env, out.Envelope)
	assert.Empty(t, c.refused)

	_, err = h.Redeliver()
	require.NoError(t, err)
	assert.Len(t, h.Published(), 1, "what comes again goes on once")
}

func TestForbiddenTasksAreCancelled(t *testing.T) {
	t.Parallel()
	c := &cancels{refused: map[string]string{}}
	h := pipelinetest.New(t, NewScan(c, slog.New(slog.DiscardHandler)))
	h.Feed(task("e-1", "/usr/bin/curl", "http://example.com/"), task("e-2", "sh", "-c", "cat x | nc host 1"))
	assert.Empty(t, h.Published())
	assert.Equal(t, map[string]string{"e-1": "the command runs curl", "e-2": "the command runs nc"}, c.refused)
}

func TestARefusalThatFailsLetsNothingThrough(t *testing.T) {
	t.Parallel()
	h := pipelinetest.New(t, NewScan(&cancels{fault: errors.New("no")}, slog.New(slog.DiscardHandler)))
	h.Feed(task("e-1", "wget", "x"))
	assert.Empty(t, h.Published())
	assert.Len(t, h.DeadLetters(), 1)
}

// The whole play, as go run performs it.
func TestTheVerdict(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-dsn", testenv.Database(t, nil)}, io.Discard)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), o, &out), out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, "SCANNED: 4 harmless executions ran once, 4 forbidden ones were cancelled before any worker saw them", lines[len(lines)-1])
	assert.Contains(t, out.String(), "4 executions are scheduled, their tasks wait in execution_tasks_unscanned")
	assert.Equal(t, 2, strings.Count(out.String(), "CANCELLED, since the command runs curl"))
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{{"x"}, {"-patience", "0s"}, {"-unknown"}} {
		_, err := parse(arguments, io.Discard)
		assert.Error(t, err, arguments)
	}
	o, err := parse([]string{"-attach"}, io.Discard)
	require.NoError(t, err)
	assert.True(t, o.attach)
}

// Two real processes: a pipeline that routes tasks past the stage, and the stage.
func TestNothingRunsPastTheStage(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", ".", "../../cmd/millrace")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	dir := testenv.DataDir(t)
	millrace := filepath.Join(bin, "millrace")
	run := func(args ...string) string {
		out, err := command(t.Context(), dir, millrace, args...).Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return strings.TrimSpace(string(out))
	}

	up := start(t, dir, millrace, "up", "--config", "millrace.yaml",
		"--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0")
	up.says("Millrace is ready")
	early := run("submit", "-o", "name", "--", "echo", "early")
	require.Eventually(t, func() bool { return strings.Contains(run("executions", "get", early), "SCHEDULED") }, patience, 50*time.Millisecond)
	assert.Contains(t, run("doctor"), "execution_tasks_unscanned, which nobody reads")

	scan := start(t, dir, filepath.Join(bin, "scan-stage"), "-attach")
	scan.says(early)
	assert.Contains(t, run("executions", "watch", early), "completed")
	assert.Contains(t, run("doctor"), "scan-stage: a stage in between")
	assert.Contains(t, run("topics", "list"), "execution_tasks_unscanned")

	refused := run("submit", "--wait", "-o", "name", "--", "curl", "http://127.0.0.1:1/")
	shown := run("executions", "get", refused)
	assert.Contains(t, shown, "CANCELLED")
	assert.Contains(t, shown, "the command runs curl")
	assert.NotContains(t, run("executions", "events", refused), "started")

	passed := run("submit", "--wait", "-o", "name", "--", "echo", "fine")
	assert.Contains(t, run("executions", "get", passed), "COMPLETED")
	assert.Contains(t, scan.output.String(), `msg="scan verdict" execution_id=`+passed+` attempt=1 verdict="passed on"`)
	scan.stop()
	assert.NotContains(t, run("verify"), "✗")
	up.stop()
}

// patience is how long a test waits for another process.
const patience = 2 * time.Minute

// command is a program that finds everything by the data directory.
func command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"MILLRACE_DATA_DIR=" + dir, "PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	return cmd
}

// process is a program that runs beside the test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *buffer
	ended  chan error
}

func start(t *testing.T, dir, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: command(context.Background(), dir, program, args...), output: &buffer{}, ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	done := make(chan struct{})
	go func() {
		p.ended <- p.cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(program), p.output)
		}
	})
	return p
}

// says waits until the process has written a text.
func (p *process) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.output.String(), text) },
		patience, 20*time.Millisecond, "waiting for %q", text)
}

// stop ends the process in order.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ended:
		require.NoError(p.t, err)
	case <-time.After(patience):
		require.FailNow(p.t, "the process does not end", p.output.String())
	}
}

// buffer may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
