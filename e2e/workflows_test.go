package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// The ways of jobs to workers.
const (
	polling     = "polling"
	kafkaOutbox = "kafka_outbox"
)

// workflowRoles are those of a process that does all that workflows need.
const workflowRoles = "api,workflows,relay,maintenance"

// buildUser builds a program of the module e2e/workflows at the first call: what uses
// Millrace from outside, by the Go SDK.
func buildUser(name string, args ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "millrace-e2e-")
		if err != nil {
			return "", err
		}
		testenv.AtExit(func(context.Context) error { return os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			return "", err
		}
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", append(append([]string{}, args...), "-o", path, ".")...)
		cmd.Dir = "workflows"
		if name == workflowWorker {
			cmd.Dir = "workflows/worker"
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return path, nil
	})
}

// The programs of e2e/workflows.
const (
	workflowTests  = "workflows.test"
	workflowWorker = "worker"
)

var users = map[string]func() (string, error){
	workflowTests: buildUser(workflowTests, "test", "-c"), workflowWorker: buildUser(workflowWorker, "build"),
}

func userProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := users[name]()
	require.NoError(t, err)
	return path
}

// grpc is the address at which the process serves gRPC.
func (p *process) grpc() string {
	p.t.Helper()
	u, err := url.Parse(p.address("grpc"))
	require.NoError(p.t, err)
	require.NotEmpty(p.t, u.Host, "%s serves gRPC", p.name)
	return u.Host
}

// TestWorkflows runs the example workflows and the scenarios of the SDKs (e2e/workflows)
// on an engine, with workers of the Go SDK: over REST and gRPC, in both dispatch modes.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{polling, kafkaOutbox} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			t.Run("embedded broker", func(t *testing.T) {
				t.Parallel()
				installEmbedded(t, "jobs.dispatch_mode="+mode).runWorkflows(mode)
			})
			t.Run("Apache Kafka", func(t *testing.T) {
				realkafka.Require(t)
				t.Parallel()
				installReal(t, "jobs.dispatch_mode="+mode).runWorkflows(mode)
			})
		})
	}
}

func (in *installation) runWorkflows(mode string) {
	t := in.t
	t.Helper()
	engine := in.serve("engine", workflowRoles).ready()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, userProgram(t, workflowTests), "-test.v", "-test.timeout=4m")
	cmd.Dir = "workflows"
	cmd.Env = append(os.Environ(), "MILLRACE_E2E_REST="+engine.address("api"), "MILLRACE_E2E_GRPC="+engine.grpc(), "MILLRACE_E2E_TOKEN="+in.token)
	if mode == kafkaOutbox {
		cmd.Env = append(cmd.Env, "MILLRACE_E2E_KAFKA="+strings.Join(in.brokers, ","))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the tests of e2e/workflows: %v\n%s", err, tail(string(out), 200))
	}
	require.Contains(t, string(out), "--- PASS: TestExamples/grpc", "they have run")
	in.stopAll()
}

// freeAddress is one that was free a moment ago. A process that is killed comes back
// there.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
