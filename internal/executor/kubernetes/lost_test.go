package kubernetes_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/pods"
)

// known waits until the ledger knows of a phase of the pod of a task.
func (s *side) known(task executor.Task, phase pods.Phase) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, p := range s.book.phases(runOf(task)) {
			if p == phase {
				return true
			}
		}
		return false
	}, executortest.Patience, 5*time.Millisecond)
}

// leave has a worker run a task and die once it is known to have come that far. It returns the
// task of the attempt that follows.
func (s *side) leave(task executor.Task, phase pods.Phase, before ...func(*executortest.Attempt)) executor.Task {
	s.t.Helper()
	worker, kill := s.worker()
	a := executortest.StartTask(s.t, worker, task, long)
	s.known(task, phase)
	for _, wait := range before {
		wait(a)
	}
	kill()
	a.Lease.Extend(0)
	a.Wait(s.t)
	task.First, task.Attempt = 1, 2
	return task
}

// remove deletes the pod of a task by hand, and waits until it is gone.
func (s *side) remove(task executor.Task) {
	s.t.Helper()
	require.NoError(s.t, s.Admin().CoreV1().Pods(s.namespace).Delete(s.t.Context(), kubernetes.Name(task.ExecutionID, task.Origin()), metav1.DeleteOptions{}))
	require.Eventually(s.t, func() bool { return s.pod(task) == nil }, executortest.Patience, 5*time.Millisecond)
}

// hold has the pod of a task stay after its deletion, or not any more.
func (s *side) hold(task executor.Task, on bool) {
	patch := `{"metadata":{"finalizers":null}}`
	if on {
		patch = `{"metadata":{"finalizers":["test.example/stay"]}}`
	}
	_, err := s.Admin().CoreV1().Pods(s.namespace).Patch(s.t.Context(), kubernetes.Name(task.ExecutionID, task.Origin()), types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	assert.NoError(s.t, err)
}

// A run whose pod somebody has deleted while there was no worker is not begun again behind
// anybody's back: it has failed, and its policy decides.
func TestARunWhosePodIsGoneIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	for name, spec := range map[string]struct {
		script string
		phase  pods.Phase
		words  string
	}{
		"running":   {beat, pods.Running, "nobody saw how it ended"},
		"succeeded": {"exit 0", pods.Succeeded, "it had succeeded"},
	} {
		one := taskOf(script(spec.script))
		two := s.leave(one, spec.phase)
		s.remove(one)

		second, _ := s.worker()
		result := executortest.StartTask(t, second, two, long).Wait(t)
		assert.Equal(t, executor.Failed, result.Outcome, name)
		assert.Equal(t, kubernetes.ReasonPodDeleted, result.Reason, name)
		assert.True(t, result.Retryable, name)
		assert.True(t, result.Disrupted, name)
		assert.Contains(t, result.Message, spec.words, name)
		assert.Equal(t, 1, s.Started(one.ExecutionID), name)
		second.Settle(t.Context(), two)

		// The attempt after a failure has a run of its own.
		three := one
		three.First, three.Attempt, three.Spec = 3, 3, script("echo again")
		b := executortest.StartTask(t, second, three, long)
		assert.Equal(t, executor.Completed, b.Wait(t).Outcome, name)
		assert.Equal(t, "again\n", b.Stdout(), name)
		second.Settle(t.Context(), three)
		s.empty(one.ExecutionID)
	}
}

// A pod that has found no room has done nothing, so the run goes on with another one; also
// where the worker dies the moment it gives it up.
func TestAPodThatDidNothingIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	for name, dies := range map[string]bool{"told": false, "not told": true} {
		first, kill := s.worker(func(c *kubernetes.Config) { c.Patience.Schedule = time.Second })
		one := homeless(script("echo done"))
		if dies {
			s.Gate().Inject(faults.Fault{Match: faults.On("delete", "pods"), Times: 1, Lost: true, Hit: func(faults.Call) { go kill() }})
		}
		a := executortest.StartTask(t, first, one, long)
		if dies {
			require.Eventually(t, func() bool { return len(s.book.phases(runOf(one))) > 0 && s.pod(one) == nil }, executortest.Patience, 5*time.Millisecond)
			a.Lease.Extend(0)
		}
		require.Equal(t, executor.Abandoned, a.Wait(t).Outcome, name)
		kill()

		second, _ := s.worker()
		two := one
		two.First, two.Attempt, two.Needs.CPUMillis = 1, 2, 0
		b := executortest.StartTask(t, second, two, long)
		result := b.Wait(t)
		assert.Equal(t, executor.Completed, result.Outcome, "%s: %s", name, result.Message)
		assert.Equal(t, "done\n", b.Stdout(), name)
		assert.Equal(t, 1, s.Started(one.ExecutionID), name)
		second.Settle(t.Context(), two)
		s.empty(one.ExecutionID)
	}
}

// Whoever cannot ask what became of the run before does not begin it again meanwhile.
func TestARunIsNotBegunAgainWhileTheLedgerIsAway(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	one := taskOf(script(beat))
	two := s.leave(one, pods.Running)
	s.remove(one)
	s.book.breakDown(true)
	second, _ := s.worker()
	b := executortest.StartTask(t, second, two, long)
	before := s.book.refused()
	require.Eventually(t, func() bool { return s.book.refused() > before+2 }, executortest.Patience, 5*time.Millisecond)
	assert.Nil(t, s.pod(two))
	s.book.breakDown(false)
	assert.Equal(t, kubernetes.ReasonPodDeleted, b.Wait(t).Reason)
	assert.Equal(t, 1, s.Started(one.ExecutionID))
}

// At its run limit a program that has not begun is given up, and nothing is left of it.
func TestAPodThatHasNotBegunIsGivenUpAtItsRunLimit(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker()
	task := homeless(script("true"))
	a := executortest.StartTask(t, e, task, long)
	s.known(task, pods.Created)
	a.Cancel(executor.ErrRunLimit)
	assert.Equal(t, executor.TimedOut, a.Wait(t).Outcome)
	s.empty(task.ExecutionID)
}

// What a pod is taken away for is what its run has come to, also when the worker dies before it
// has reported that: nothing is begun anew, and nobody is told that the pod was lost.
func TestWhatAPodWasTakenAwayForIsWhatItsRunHasComeTo(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	for name, c := range map[string]struct {
		task  executor.Task
		limit bool
		want  executor.Result
	}{
		"its run limit, before it began": {
			task: homeless(script("true")), limit: true, want: executor.Stopped(executor.ErrRunLimit),
		},
		"an image that is not there": {
			task: taskOf(spec(map[string]any{"command": []string{"true"}, "image": "missing/image"})),
			want: executor.Result{Outcome: executor.Failed, Reason: kubernetes.ReasonImageNotFound},
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, kill := s.worker()
			one := c.task
			a := executortest.StartTask(t, first, one, long)
			s.known(one, pods.Created)
			if c.limit {
				a.Cancel(executor.ErrRunLimit)
			}
			require.Equal(t, c.want.Outcome, a.Wait(t).Outcome) // and nobody was told
			kill()

			second, _ := s.worker()
			two := one
			two.First, two.Attempt, two.Needs = 1, 2, executor.Needs{}
			result := executortest.StartTask(t, second, two, long).Wait(t)
			assert.Equal(t, c.want.Outcome, result.Outcome)
			assert.Equal(t, c.want.Reason, result.Reason)
			assert.Equal(t, c.want.Retryable, result.Retryable)
			assert.NotEmpty(t, result.Message)
			made := slices.DeleteFunc(s.book.phases(runOf(one)), func(p pods.Phase) bool { return p != pods.Created })
			assert.Len(t, made, 1)
			second.Settle(t.Context(), two)
			s.empty(one.ExecutionID)
		})
	}
}

// A deletion whose answer is lost has happened all the same: the pod has changed, but by us.
func TestAPodIsGivenUpThoughTheAnswerToItsDeletionIsLost(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	e, _ := s.worker(func(c *kubernetes.Config) { c.Patience.Schedule = time.Second })
	task := homeless(script("true"))
	deletion, asked := faults.On("delete", "pods"), make(chan int, 1)
	for _, f := range []faults.Fault{
		{Dropped: true, Hit: func(faults.Call) { s.hold(task, true) }}, // it stays for a while after its deletion
		{},           // refused, since it has changed
		{Lost: true}, // with how it is now
		{Hit: func(faults.Call) { asked <- s.Gate().Seen("get", "pods") }},
	} {
		f.Match, f.Times = deletion, 1
		s.Gate().Inject(f)
	}
	a := executortest.StartTask(t, e, task, long)
	before := <-asked
	require.Eventually(t, func() bool { return s.Gate().Seen("get", "pods") > before }, executortest.Patience, 5*time.Millisecond)
	s.hold(task, false)
	result := a.Wait(t)
	assert.Equal(t, executor.Abandoned, result.Outcome)
	assert.Equal(t, kubernetes.ReasonUnschedulable, result.Reason, result.Message)
	s.empty(task.ExecutionID)
}

// A pod may begin while it is deleted, before anybody hears of either, and the worker dies.
// Whoever finds it says what it is deleted for, and not that it was lost.
func TestAPodThatBeginsWhileItIsTakenAway(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	one := taskOf(script(beat))
	two := s.leave(one, pods.Running, func(a *executortest.Attempt) { a.WaitStdout(t, "beat") })
	s.hold(one, true)
	limit := executor.Stopped(executor.ErrRunLimit)
	pod, ours := kubernetes.PodOf(s.pod(one))
	require.True(t, ours)
	require.NoError(t, s.book.Forgo(t.Context(), pod, &pods.Verdict{Outcome: limit.Outcome, Reason: limit.Reason, Message: limit.Message, Retryable: limit.Retryable}))
	require.NoError(t, s.Admin().CoreV1().Pods(s.namespace).Delete(t.Context(), s.pod(one).Name, metav1.DeleteOptions{}))

	second, _ := s.worker()
	b := executortest.StartTask(t, second, two, long)
	result := b.Wait(t)
	assert.Equal(t, executor.TimedOut, result.Outcome, result.Message)
	assert.Equal(t, limit.Reason, result.Reason)
	assert.Contains(t, b.Stdout(), "beat")
	s.hold(one, false)
	second.Settle(t.Context(), two)
	s.empty(one.ExecutionID)
}
