package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/pods"
)

const (
	long  = time.Hour
	ample = 16 << 20
)

func taskOf(spec json.RawMessage) executor.Task {
	return executor.Task{ExecutionID: executortest.NewID(), Attempt: 1, Spec: spec, MaxOutputBytes: ample}
}

// runOf is the run that a task belongs to.
func runOf(t executor.Task) pods.Run { return pods.Run{ExecutionID: t.ExecutionID, First: t.Origin()} }

// pod returns the pod of a task, nil if there is none.
func (s *side) pod(task executor.Task) *corev1.Pod {
	p, err := s.Admin().CoreV1().Pods(s.namespace).Get(s.t.Context(), kubernetes.Name(task.ExecutionID, task.Origin()), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(s.t, err)
	return p
}

// empty waits until nothing is left of an execution.
func (s *side) empty(execution string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.Kept(execution) == 0 }, executortest.Patience, 5*time.Millisecond)
}

func allPhases() []pods.Phase {
	return []pods.Phase{pods.Created, pods.Scheduled, pods.Running, pods.Succeeded, pods.Deleted}
}

func TestEachFactOfAPodIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	task := taskOf(shell("exit 0"))
	require.Equal(t, executor.Completed, executortest.StartTask(t, e, task, long).Wait(t).Outcome)
	assert.NotContains(t, s.book.phases(runOf(task)), pods.Deleted)
	e.Settle(t.Context(), task)
	s.empty(task.ExecutionID)
	require.Eventually(t, func() bool { return len(s.book.phases(runOf(task))) == len(allPhases()) }, executortest.Patience, 5*time.Millisecond)
	assert.Equal(t, allPhases(), s.book.phases(runOf(task)))
}

// The cluster is what remembers the facts until they are recorded.
func TestAPodIsKeptUntilItsFactsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	s.book.breakDown(true)
	task := taskOf(shell("exit 0"))
	require.Equal(t, executor.Completed, executortest.StartTask(t, e, task, long).Wait(t).Outcome)
	settled := make(chan struct{})
	go func() { defer close(settled); e.Settle(t.Context(), task) }()
	require.Eventually(t, func() bool { return s.book.refused() > 2 }, executortest.Patience, 5*time.Millisecond)
	require.NotNil(t, s.pod(task))
	s.book.breakDown(false)
	<-settled
	s.empty(task.ExecutionID)
	require.Eventually(t, func() bool { return len(s.book.phases(runOf(task))) == len(allPhases()) }, executortest.Patience, 5*time.Millisecond)
	assert.Equal(t, allPhases(), s.book.phases(runOf(task)))
}

func TestAPodThatSomebodyDeletesFailsItsAttempt(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	task := taskOf(shell(beat))
	a := executortest.StartTask(t, e, task, long)
	a.WaitStdout(t, "beat")
	require.NoError(t, s.Admin().CoreV1().Pods(s.namespace).Delete(t.Context(), s.pod(task).Name, metav1.DeleteOptions{}))
	result := a.Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, kubernetes.ReasonPodDeleted, result.Reason)
	assert.True(t, result.Retryable)
	assert.Positive(t, result.Stdout.KeptBytes)
	s.empty(task.ExecutionID)
	require.Eventually(t, func() bool {
		phases := s.book.phases(runOf(task))
		return len(phases) > 0 && phases[len(phases)-1] == pods.Deleted
	}, executortest.Patience, 5*time.Millisecond)
}

// homeless is a task that no node has room for.
func homeless(spec json.RawMessage) executor.Task {
	task := taskOf(spec)
	task.Needs.CPUMillis = 1_000_000
	return task
}

// What does not find room waits, and costs nothing.
func TestAPodWithoutRoomIsPostponed(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker(func(c *kubernetes.Config) { c.Patience.Schedule = time.Second })
	task := homeless(script("true"))
	result := executortest.StartTask(t, e, task, long).Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, kubernetes.ReasonUnschedulable, result.Reason)
	assert.Positive(t, result.RetryAfter)
	assert.Contains(t, result.Message, "room")
	s.empty(task.ExecutionID)
	require.Eventually(t, func() bool {
		phases := s.book.phases(runOf(task))
		return len(phases) == 3 && phases[1] == pods.Failed && phases[2] == pods.Deleted
	}, executortest.Patience, 5*time.Millisecond)
}

func TestAQuotaThatIsUsedUpPostpones(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	s.SetQuota(t, s.namespace, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
	first := taskOf(shell(beat))
	a := executortest.StartTask(t, e, first, long)
	a.WaitStdout(t, "beat")
	second := taskOf(shell("true"))
	result := executortest.StartTask(t, e, second, long).Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, kubernetes.ReasonQuotaExceeded, result.Reason, result.Message)
	assert.Positive(t, result.RetryAfter)
	s.empty(second.ExecutionID)

	// The quota is full of the pod that the attempt carries on.
	third := first
	third.First, third.Attempt = 1, 2
	other, _ := s.worker()
	s.Disturb(2)
	executortest.StartTask(t, other, third, long).WaitStdout(t, "beat")
	assert.Equal(t, 1, s.Started(first.ExecutionID))
}

// A quota may count the very pod whose creation is repeated because its answer was lost.
func TestAnAnswerIsLostAndTheQuotaFull(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	s.SetQuota(t, s.namespace, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
	s.Gate().Inject(faults.Fault{Match: faults.On("create", "pods"), Times: 1, Lost: true})
	s.Gate().Inject(faults.Fault{Match: faults.On("get", "pods"), Times: 1, Answer: faults.Internal("not now")})
	task := taskOf(shell("echo done"))
	a := executortest.StartTask(t, e, task, long)
	assert.Equal(t, executor.Completed, a.Wait(t).Outcome)
	assert.Equal(t, 1, s.Started(task.ExecutionID))
}

func TestANameThatIsTakenIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	for kind, occupy := range map[string]func(name string) error{
		"pod": func(name string) error {
			o, _ := build(t, newBuilder(t), task(`{"command":["sleep","3600"]}`)) // for a namespace that takes restricted pods only
			_, err := s.Admin().CoreV1().Pods(s.namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: o.Pod.Spec}, metav1.CreateOptions{})
			return err
		},
		"config map": func(name string) error {
			_, err := s.Admin().CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"whose": "mine"},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		task := taskOf(script("true"))
		require.NoError(t, occupy(kubernetes.Name(task.ExecutionID, 1)))
		result := executortest.StartTask(t, e, task, long).Wait(t)
		assert.Equal(t, executor.Failed, result.Outcome, kind)
		assert.Equal(t, kubernetes.ReasonNameClash, result.Reason, kind)
		assert.False(t, result.Retryable, kind)
		e.Settle(t.Context(), task)
		require.NoError(t, e.Sweep(t.Context()))
		if kind == "pod" {
			assert.NotNil(t, s.pod(task))
		} else {
			_, err := s.Admin().CoreV1().ConfigMaps(s.namespace).Get(t.Context(), kubernetes.Name(task.ExecutionID, 1), metav1.GetOptions{})
			require.NoError(t, err)
			assert.Nil(t, s.pod(task))
		}
	}
}

// Whatever happens to the API server, each program runs once, and its output is whole.
func TestAnAPIServerThatFailsDisturbsNobody(t *testing.T) {
	t.Parallel()
	s := newSide(t, splitStreams)
	e, _ := s.worker()
	const lines = 300
	counting := shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.01; done", lines))
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	var attempts []*executortest.Attempt
	var tasks []executor.Task
	for range 4 {
		tasks = append(tasks, taskOf(counting))
		attempts = append(attempts, executortest.StartTask(t, e, tasks[len(tasks)-1], long))
	}
	for _, a := range attempts {
		a.WaitStdout(t, "line 10\n")
	}
	s.Gate().CutStreams(nil)
	attempts[0].WaitStdout(t, "line 60\n")
	s.Restart(t)
	attempts[0].WaitStdout(t, "line 120\n")
	s.Gate().Shut()
	s.Compact(t)
	s.Gate().Open()
	attempts[0].WaitStdout(t, "line 180\n")
	s.Compact(t)
	s.Gate().CutWatches()
	for i, a := range attempts {
		result := a.Wait(t)
		assert.Equal(t, executor.Completed, result.Outcome, result.Message)
		assert.Equal(t, want.String(), a.Stdout())
		assert.Empty(t, a.Stderr())
		assert.Equal(t, 1, s.Started(tasks[i].ExecutionID))
	}
}

// Without a watch attempts ask for themselves.
func TestPodsRunWithoutAWatch(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	s.Gate().Inject(faults.Fault{Match: faults.On("watch", "pods"), Answer: faults.Internal("not today")})
	e, _ := s.worker(func(c *kubernetes.Config) { c.Poll = 50 * time.Millisecond })
	task := taskOf(shell("echo done"))
	a := executortest.StartTask(t, e, task, long)
	assert.Equal(t, executor.Completed, a.Wait(t).Outcome)
	assert.Equal(t, "done\n", a.Stdout())
}

// A creation that arrives when the run has ended starts nothing.
func TestALateCreationStartsNothing(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	first, kill := s.worker()
	hold, hit := make(chan struct{}), make(chan struct{})
	s.Gate().Inject(faults.Fault{
		Match: faults.On("create", "pods"), Times: 1, Lost: true, Hold: hold, Hit: func(faults.Call) { close(hit) },
	})
	one := taskOf(script("echo done"))
	lost := executortest.StartTask(t, first, one, long)
	<-hit
	kill()
	lost.Lease.Extend(0)
	require.Equal(t, executor.Abandoned, lost.Wait(t).Outcome)

	second, _ := s.worker()
	two := one
	two.First, two.Attempt = 1, 2
	require.Equal(t, executor.Completed, executortest.StartTask(t, second, two, long).Wait(t).Outcome)
	second.Settle(t.Context(), two)
	s.empty(one.ExecutionID)
	s.book.drop(runOf(one))

	close(hold)
	require.Eventually(t, func() bool {
		p := s.pod(one)
		return p != nil && p.Spec.NodeName != ""
	}, executortest.Patience, 5*time.Millisecond)
	require.NoError(t, second.Sweep(t.Context()))
	s.empty(one.ExecutionID)
	assert.Equal(t, 1, s.Started(one.ExecutionID))
}

func TestACancelFindsWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	hold, hit := make(chan struct{}), make(chan struct{})
	s.Gate().Inject(faults.Fault{
		Match: faults.On("create", "pods"), Times: 1, Lost: true, Hold: hold, Hit: func(faults.Call) { close(hit) },
	})
	task := taskOf(shell(beat))
	a := executortest.StartTask(t, e, task, long)
	<-hit
	close(hold) // the pod is made, and the worker does not get to know
	require.Eventually(t, func() bool { return s.pod(task) != nil }, executortest.Patience, time.Millisecond)
	a.Cancel(executor.ErrCancelled)
	assert.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
	assert.Empty(t, s.Running(task.ExecutionID))
	s.empty(task.ExecutionID)
}

// On a machine that has lost its power nothing answers any more.
func TestALostNodeFailsItsAttempts(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker(func(c *kubernetes.Config) { c.Patience.Node = time.Second; c.Patience.Output = time.Second })
	task := taskOf(shell(beat))
	a := executortest.StartTask(t, e, task, long)
	a.WaitStdout(t, "beat")
	s.LoseNode(t, s.node.Name())
	result := a.Wait(t)
	assert.Equal(t, executor.Failed, result.Outcome)
	assert.Equal(t, kubernetes.ReasonNodeLost, result.Reason, result.Message)
	assert.True(t, result.Retryable)
	e.Settle(t.Context(), task)
	s.empty(task.ExecutionID)
}

// script is a spec that needs a ConfigMap.
func script(text string) json.RawMessage { return spec(map[string]any{"script": text}) }
