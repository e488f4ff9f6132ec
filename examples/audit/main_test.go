package main

import (
	"bytes"
	"context"
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

func TestAuditWritesALinePerCompletedExecution(t *testing.T) {
	t.Parallel()
	var lines buffer
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
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", ".", "../../cmd/millrace")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	dir := testenv.DataDir(t)
	millrace := filepath.Join(bin, "millrace")

	up := start(t, dir, millrace, "up", "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0")
	up.says("Millrace is ready")
	submit := func() string {
		cmd := command(t.Context(), dir, millrace, "submit", "--wait", "-o", "name", "--", "echo", "hello")
		id, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(id))
	}

	first := submit()
	audit := start(t, dir, filepath.Join(bin, "audit"))
	audit.says("execution completed") // what had happened before it came, too
	audit.says(first)
	second := submit()
	audit.says(second)
	audit.stop()

	third := submit()
	again := start(t, dir, filepath.Join(bin, "audit"))
	again.says(third)
	again.stop()
	assert.NotContains(t, again.output.String(), first, "it goes on where it left off")
	up.stop()
}

func TestAuditAloneSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "audit")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = command(t.Context(), t.TempDir(), bin).CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, string(out), "kafka.brokers")
	assert.Contains(t, string(out), "MILLRACE_POSTGRES_DSN")
}

// patience is how long a test waits for another process.
const patience = time.Minute

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
	// The pipeline's own children end with it; it ends with the test.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	done := make(chan struct{})
	go func() {
		p.ended <- p.cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		select {
		case <-done:
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-done:
			case <-time.After(patience):
				_ = p.cmd.Process.Kill()
				<-done
			}
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

var _ io.Writer = (*buffer)(nil)

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
