package workloads_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/kubelet"
	"github.com/millrace/millrace/internal/executor/kubernetes/workloads"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/sagas/execution"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type ground struct {
	*kubetest.Cluster
	*workloads.Workloads
	t         *testing.T
	node      *kubelet.Kubelet
	namespace string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	c := kubetest.Start(t)
	g := &ground{Cluster: c, t: t, node: c.AddNode(t, kubetest.Node{})}
	namespace, account := c.Deploy(t) // with the rights of workers, and no others
	g.namespace = namespace
	client, err := clientset.NewForConfig(account)
	require.NoError(t, err)
	g.Workloads, err = workloads.New(client, kubernetes.Settings{
		Installation: "test", Namespace: g.namespace, DefaultImage: "busybox", Images: []string{"**"}, Grace: time.Second,
	}, workloads.Config{})
	require.NoError(t, err)
	return g
}

func workload(name, script string) execution.Workload {
	return execution.Workload{
		Name: name, Execution: "0199d3a0-0000-7000-8000-000000000001", Spec: fmt.Appendf(nil, `{"command": ["sh", "-c", %q]}`, script),
		Deadline: time.Now().Add(time.Hour),
	}
}

func (g *ground) create(w execution.Workload) json.RawMessage {
	g.t.Helper()
	h, err := g.Create(g.t.Context(), w)
	require.NoError(g.t, err)
	return h
}

// ends waits for the end of a workload.
func (g *ground) ends(name string, h json.RawMessage) execution.Result {
	g.t.Helper()
	var seen execution.Observation
	require.Eventually(g.t, func() bool {
		var err error
		seen, err = g.Observe(g.t.Context(), name, h)
		require.NoError(g.t, err)
		require.NotEqual(g.t, execution.Gone, seen.Phase)
		return seen.Phase == execution.Ended
	}, kubetest.Patience, 10*time.Millisecond)
	return seen.Result
}

func (g *ground) there(name string) bool {
	_, err := g.Admin().CoreV1().Pods(g.namespace).Get(g.t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(g.t, err)
	}
	return err == nil
}

func TestAWorkloadRunsOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for script, want := range map[string]execution.Result{
		`test "$MILLRACE_WORKLOAD" = work-0`: {Succeeded: true, ExitCode: new(0)},
		"exit 3":                             {ExitCode: new(3), Reason: "exit_code"},
	} {
		w := workload(fmt.Sprintf("work-%d", *want.ExitCode), script)
		h := g.create(w)
		assert.JSONEq(t, string(h), string(g.create(w)), "asked again, the answer is the same")
		got := g.ends(w.Name, h)
		got.Message = ""
		assert.Equal(t, want, got)
		assert.JSONEq(t, string(h), string(g.create(w)), "also when it has ended")
		assert.Equal(t, 1, g.node.Starts(g.namespace, w.Name))
		require.NoError(t, g.Delete(t.Context(), w.Name))
		assert.False(t, g.there(w.Name))
		seen, err := g.Observe(t.Context(), w.Name, h)
		require.NoError(t, err)
		assert.Equal(t, execution.Gone, seen.Phase)
	}
}

func TestADeletedWorkloadIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	running := workload("running", "sleep 3600")
	g.create(running)
	require.Eventually(t, func() bool { return len(g.Running()) == 1 }, kubetest.Patience, 5*time.Millisecond)
	for _, w := range []execution.Workload{running, workload("never", "true")} {
		for range 2 {
			require.NoError(t, g.Delete(t.Context(), w.Name))
			assert.Empty(t, g.Running())
			_, err := g.Create(t.Context(), w)
			require.ErrorIs(t, err, execution.ErrDeleted)
			assert.False(t, g.there(w.Name))
		}
	}
}

// A creation that arrives after the deletion has no effect.
func TestALateCreationStartsNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	hold, hit := make(chan struct{}), make(chan struct{})
	g.Gate().Inject(faults.Fault{Match: faults.On("create", "pods"), Times: 1, Lost: true, Hold: hold, Hit: func(faults.Call) { close(hit) }})
	ctx, cancel := context.WithCancel(t.Context())
	created := make(chan error, 1)
	go func() {
		_, err := g.Create(ctx, workload("late", "echo started"))
		created <- err
	}()
	<-hit
	require.NoError(t, g.Delete(t.Context(), "late"))
	close(hold)
	require.Error(t, <-created)
	cancel()
	require.Eventually(t, func() bool { return g.there("late") }, kubetest.Patience, 5*time.Millisecond)
	require.NoError(t, g.Sweep(t.Context()))
	assert.False(t, g.there("late"))
	assert.Zero(t, g.node.Starts(g.namespace, "late"))
	_, err := g.Create(t.Context(), workload("late", "echo started"))
	require.ErrorIs(t, err, execution.ErrDeleted, "the tombstone stays")
}

func TestWhatCannotRunIsAFailure(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	_, err := g.Create(t.Context(), execution.Workload{Name: "bad", Spec: []byte(`{"command": "true"}`)})
	failure := &sagas.Failure{}
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, "invalid_spec", failure.Code)

	missing := workload("missing", "true")
	missing.Spec = []byte(`{"image": "missing", "command": ["true"]}`)
	result := g.ends("missing", g.create(missing))
	assert.False(t, result.Succeeded)
	assert.Equal(t, kubernetes.ReasonImageNotFound, result.Reason)
}

func TestTheDeadlineEndsAWorkload(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	w := workload("slow", "sleep 3600")
	w.Deadline = time.Now().Add(time.Second)
	result := g.ends(w.Name, g.create(w))
	assert.False(t, result.Succeeded)
	assert.Equal(t, "run_limit", result.Reason)
}
