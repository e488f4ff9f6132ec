package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/examples/internal/exampletest"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/transcript"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func TestAuditWritesALinePerCompletedExecution(t *testing.T) {
	t.Parallel()
	var lines transcript.Text
	h := pipelinetest.New(t, NewAudit(slog.New(slog.NewTextHandler(&lines, nil))))
	h.Feed(
		topics.ExecutionCompleted{ExecutionID: "e-1", Attempt: 1, Worker: "w"},
		topics.ExecutionCancelRequested{ExecutionID: "e-2", By: "somebody"},
		topics.ExecutionCompleted{ExecutionID: "e-3", Attempt: 2, Worker: "w"},
	)
	assert.Empty(t, h.DeadLetters())
	got := strings.Split(strings.TrimSpace(lines.String()), "\n")
	require.Len(t, got, 2)
	assert.Contains(t, got[0], `msg="execution completed" execution_id=e-1`)
	assert.Contains(t, got[1], "execution_id=e-3")
}

// Two real processes: a pipeline, and this program, which finds it by its data
// directory.
func TestAuditAttachesToARunningPipeline(t *testing.T) {
	t.Parallel()
	scene := exampletest.New(t)
	up := scene.Up()
	submit := func() string {
		id, code := scene.Run("millrace", "submit", "--wait", "-o", "name", "--", "echo", "hello")
		require.Zero(t, code)
		return id
	}

	first := submit()
	audit := scene.Start("audit")
	audit.Says("execution completed") // what had happened before it came, too
	audit.Says(first)
	second := submit()
	audit.Says(second)
	audit.Stop()

	third := submit()
	again := scene.Start("audit")
	again.Says(third)
	again.Stop()
	assert.NotContains(t, again.Output(), first, "it goes on where it left off")
	up.Stop()
}

func TestAuditAloneSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	alone := exampletest.New(t).Start("audit")
	ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
	defer cancel()
	code, err := alone.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, code)
	assert.Contains(t, alone.Output(), "kafka.brokers")
	assert.Contains(t, alone.Output(), "MILLRACE_POSTGRES_DSN")
}
