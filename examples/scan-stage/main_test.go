package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/examples/internal/exampletest"
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
	scene := exampletest.New(t)
	run := scene.Millrace

	up := scene.Up("--config", scene.Path("millrace.yaml"))
	early := run("submit", "-o", "name", "--", "echo", "early")
	require.Eventually(t, func() bool { return strings.Contains(run("executions", "get", early), "SCHEDULED") },
		exampletest.Patience, 50*time.Millisecond)
	assert.Contains(t, run("doctor"), "execution_tasks_unscanned, which nobody reads")

	scan := scene.Start("scan-stage", "-attach")
	scan.Says(early)
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
	assert.Contains(t, scan.Output(), `msg="scan verdict" execution_id=`+passed+` attempt=1 verdict="passed on"`)
	scan.Stop()
	assert.NotContains(t, run("verify"), "✗")
	up.Stop()
}
