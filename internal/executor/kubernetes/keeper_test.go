package kubernetes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/pods"
)

// leave runs an attempt to its end with a worker that dies before it settles it.
func leave(t *testing.T, s *side, script string) executor.Task {
	t.Helper()
	e, kill := s.worker()
	task := taskOf(spec(map[string]any{"script": script}))
	executortest.StartTask(t, e, task, long).Wait(t)
	kill()
	require.Equal(t, 2, s.Kept(task.ExecutionID), "the pod and its ConfigMap")
	return task
}

func TestTheKeeperRemovesWhatNobodyWants(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	wanted, unwanted := leave(t, s, "true"), leave(t, s, "exit 1")
	s.book.drop(runOf(unwanted))
	e, _ := s.worker()
	require.NoError(t, e.Sweep(t.Context()))
	require.NoError(t, e.Sweep(t.Context())) // the ConfigMap is seen to be left when its pod is gone
	s.empty(unwanted.ExecutionID)
	assert.Equal(t, 2, s.Kept(wanted.ExecutionID))
	assert.NotContains(t, s.book.phases(runOf(wanted)), pods.Deleted)
	assert.Equal(t, []pods.Phase{pods.Created, pods.Scheduled, pods.Running, pods.Failed, pods.Deleted}, s.book.phases(runOf(unwanted)))
}

// What a pod was is told, even by a keeper that sees nothing but its end.
func TestTheKeeperTellsWhatNobodyHasTold(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	s.book.breakDown(true) // the worker dies with all that it would have told
	task := leave(t, s, "true")
	s.book.breakDown(false)
	require.Empty(t, s.book.phases(runOf(task)))
	e, _ := s.worker()
	require.NoError(t, e.Sweep(t.Context()))
	assert.Equal(t, allPhases()[:4], s.book.phases(runOf(task)))

	// The pod goes while nobody looks.
	require.NoError(t, s.Admin().CoreV1().Pods(s.namespace).Delete(t.Context(), kubernetes.Name(task.ExecutionID, 1), metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return s.pod(task) == nil }, executortest.Patience, 5*time.Millisecond)
	require.NoError(t, e.Sweep(t.Context()))
	assert.Equal(t, allPhases(), s.book.phases(runOf(task)))
	s.empty(task.ExecutionID)
}

func TestTheKeeperLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	task := leave(t, s, "true")
	other := s.settings
	other.Installation = "other"
	e, _ := startWorker(t, s.account, other, newBook())
	for range 2 {
		require.NoError(t, e.Sweep(t.Context()))
	}
	assert.Equal(t, 2, s.Kept(task.ExecutionID))
}

// A round that could not ask removes nothing.
func TestTheKeeperRemovesNothingOnDoubt(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	task := leave(t, s, "true")
	e, _ := s.worker()
	s.book.drop(runOf(task))
	s.book.breakDown(true)
	require.ErrorContains(t, e.Sweep(t.Context()), "the ledger is broken")
	s.book.breakDown(false)
	s.Gate().Inject(faults.Fault{Match: faults.On("list", "pods"), Times: 1, Answer: faults.Internal("not now")})
	require.ErrorContains(t, e.Sweep(t.Context()), "list pods")
	assert.Equal(t, 2, s.Kept(task.ExecutionID))
	assert.NotContains(t, s.book.phases(runOf(task)), pods.Deleted)
}

func TestTheKeeperSweepsUntilItIsToldToStop(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	task := leave(t, s, "true")
	s.book.drop(runOf(task))
	e, _ := s.worker(func(c *kubernetes.Config) { c.Keep = 10 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Keep(ctx) }()
	s.empty(task.ExecutionID)
	cancel()
	require.NoError(t, <-done)
}

func TestALongListIsReadInPages(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	const n = 1100
	for i := range n {
		_, err := s.Admin().CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "left-", Labels: map[string]string{
				kubernetes.ManagedByLabel: kubernetes.ManagedBy, kubernetes.InstallationLabel: "test",
			},
		}}, metav1.CreateOptions{})
		require.NoError(t, err, i)
	}
	require.NoError(t, e.Sweep(t.Context()))
	left, err := s.Admin().CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.ManagedByLabel})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
}
