package kubernetes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/pods"
)

// change is one thing that happens to a pod.
type change func(*corev1.Pod)

// pod is one as the API server gives it back, at noon, and what has happened to it since.
func pod(t testing.TB, changes ...change) *corev1.Pod {
	t.Helper()
	o, _ := build(t, newBuilder(t), task(`{"command":["true"]}`))
	o.Pod.UID, o.Pod.CreationTimestamp, o.Pod.Status.Phase = "u1", metav1.NewTime(noon(0)), corev1.PodPending
	for _, c := range changes {
		c(o.Pod)
	}
	return o.Pod
}

func has(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string, at time.Duration) change {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon(at)),
		})
	}
}

func disrupted(reason string) change {
	return has(corev1.DisruptionTarget, corev1.ConditionTrue, reason, "because", 20*time.Second)
}

func unschedulable(message string) change {
	return has(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", message, time.Second)
}

func scheduled(p *corev1.Pod) {
	p.Spec.NodeName = "node-3"
	has(corev1.PodScheduled, corev1.ConditionTrue, "", "", time.Second)(p)
}

func work(state corev1.ContainerState) change {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar"}, {Name: kubernetes.WorkContainer, State: state}}
	}
}

func waits(reason, message string) change {
	return work(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	work(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon(2 * time.Second))}})(p)
}

// exits is the end of the container at 12:00:30, and that of the pod with it.
func exits(code int32, reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		if code == 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
		work(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.NewTime(noon(2 * time.Second)), FinishedAt: metav1.NewTime(noon(30 * time.Second)),
		}})(p)
	}
}

func never(reason, message string) change {
	return func(p *corev1.Pod) {
		exits(128, reason, message)(p)
		p.Status.ContainerStatuses[1].State.Terminated.StartedAt = metav1.NewTime(time.Unix(0, 0))
	}
}

func fails(reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

// deletedAt is a deletion that is asked for then, with 2 s of grace.
func deletedAt(at time.Duration) change {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(noon(at+2*time.Second))), new(int64(2))
	}
}

func phase(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }

func sidecar(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar"})
}

func TestHowAPodEnded(t *testing.T) {
	t.Parallel()
	const again, final = true, false
	for name, c := range map[string]struct {
		happened  []change
		outcome   executor.Outcome
		reason    string
		retryable bool
		code      *int
		signal    string
		message   string // a part of it
	}{
		"well":                      {[]change{scheduled, exits(0, "Completed", "")}, executor.Completed, "", final, new(0), "", ""},
		"well, without a container": {[]change{scheduled, phase(corev1.PodSucceeded)}, executor.Completed, "", final, new(0), "", ""},
		"exit code":                 {[]change{scheduled, exits(3, "Error", "")}, executor.Failed, "exit_code", again, new(3), "", "the program exited with code 3"},
		"with a last word":          {[]change{scheduled, exits(3, "Error", "no such account\nmore\n")}, executor.Failed, "exit_code", again, new(3), "", "code 3: no such account ..."},
		"killed":                    {[]change{scheduled, exits(137, "Error", "")}, executor.Failed, "signal", again, new(137), "SIGKILL", "ended by SIGKILL"},
		"terminated":                {[]change{scheduled, exits(143, "Error", "")}, executor.Failed, "signal", again, new(143), "SIGTERM", "ended by SIGTERM"},
		"crashed":                   {[]change{scheduled, exits(139, "Error", "")}, executor.Failed, "signal", again, new(139), "SIGSEGV", "ended by SIGSEGV"},
		"cpu limit":                 {[]change{scheduled, exits(152, "Error", "")}, executor.Failed, "signal", again, new(152), "SIGXCPU", "its limit of cpu_seconds was reached"},
		"no signal":                 {[]change{scheduled, exits(255, "Error", "")}, executor.Failed, "exit_code", again, new(255), "", "code 255"},
		"out of memory":             {[]change{scheduled, exits(137, "OOMKilled", "")}, executor.Failed, "out_of_memory", again, new(137), "SIGKILL", "more than its 256Mi of memory"},
		"no such program":           {[]change{scheduled, never("StartError", `failed to create containerd task: exec: "nope": executable file not found in $PATH: unknown`)}, executor.Failed, "start_failed", final, nil, "", "executable file not found"},
		"a runtime's bad day":       {[]change{scheduled, never("StartError", "failed to create shim task: context deadline exceeded")}, executor.Failed, "start_failed", again, nil, "", "deadline exceeded"},
		"launcher":                  {[]change{scheduled, exits(127, "Error", "millrace: start failed: there is no program nope\n")}, executor.Failed, "start_failed", final, nil, "", "there is no program nope"},
		"deadline":                  {[]change{scheduled, exits(137, "Error", ""), fails("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")}, executor.TimedOut, "run_limit", again, new(137), "SIGKILL", "run time limit"},
		"deadline, unscheduled":     {[]change{fails("DeadlineExceeded", "")}, executor.TimedOut, "run_limit", again, nil, "", ""},
		"evicted":                   {[]change{scheduled, exits(137, "Error", ""), fails("Evicted", "The node was low on resource: memory.")}, executor.Failed, "evicted", again, new(137), "SIGKILL", "low on resource: memory"},
		"evicted before it began":   {[]change{scheduled, fails("Evicted", "Pod was rejected: The node had condition: [DiskPressure].")}, executor.Failed, "evicted", again, nil, "", "DiskPressure"},
		"wrote too much":            {[]change{scheduled, fails("Evicted", `Usage of EmptyDir volume "work" exceeds the limit "1Gi". `)}, executor.Failed, "scratch_exceeded", again, nil, "", `exceeds the limit "1Gi"`},
		"logged too much":           {[]change{scheduled, fails("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ")}, executor.Failed, "scratch_exceeded", again, nil, "", ""},
		"preempted by the kubelet":  {[]change{scheduled, fails("Preempting", "Preempted in order to admit critical pod")}, executor.Failed, "preempted", again, nil, "", "critical pod"},
		"preempted":                 {[]change{scheduled, exits(143, "Error", ""), disrupted("PreemptionByScheduler"), deletedAt(20 * time.Second)}, executor.Failed, "preempted", again, new(143), "SIGTERM", "a more urgent pod"},
		"drained":                   {[]change{scheduled, exits(143, "Error", ""), disrupted("EvictionByEvictionAPI"), deletedAt(20 * time.Second)}, executor.Failed, "evicted", again, new(143), "SIGTERM", "evicted from the node node-3: because"},
		"drained when it was over":  {[]change{scheduled, exits(0, "Completed", ""), disrupted("EvictionByEvictionAPI"), deletedAt(40 * time.Second)}, executor.Completed, "", final, new(0), "", ""},
		"node lost":                 {[]change{scheduled, fails("NodeLost", "")}, executor.Failed, "node_lost", again, nil, "", "the node node-3 was lost"},
		"garbage":                   {[]change{scheduled, fails("", ""), disrupted("DeletionByPodGC")}, executor.Failed, "node_lost", again, nil, "", "the node node-3 was lost"},
		"tainted":                   {[]change{scheduled, exits(137, "Error", ""), disrupted("DeletionByTaintManager")}, executor.Failed, "node_lost", again, new(137), "SIGKILL", ""},
		"forgotten":                 {[]change{scheduled, exits(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")}, executor.Failed, "node_lost", again, nil, "", "could not be located"},
		"node shut down":            {[]change{scheduled, exits(143, "Error", ""), fails("Terminated", "Pod was terminated in response to imminent node shutdown.")}, executor.Failed, "node_shutdown", again, new(143), "SIGTERM", "imminent node shutdown"},
		"killed by its node":        {[]change{scheduled, exits(137, "Error", ""), disrupted("TerminationByKubelet")}, executor.Failed, "evicted", again, new(137), "SIGKILL", "because"},
		"node has no room":          {[]change{scheduled, fails("OutOfcpu", "Node didn't have enough resource: cpu")}, executor.Abandoned, "node_refused", again, nil, "", "OutOfcpu: Node didn't have enough"},
		"node has no device":        {[]change{scheduled, fails("UnexpectedAdmissionError", "Allocate failed due to no devices")}, executor.Abandoned, "node_refused", again, nil, "", "no devices"},
		"deleted":                   {[]change{scheduled, exits(143, "Error", ""), deletedAt(20 * time.Second)}, executor.Failed, "pod_deleted", again, new(143), "SIGTERM", "somebody deleted the pod work/millrace-"},
		"deleted, and it obeyed":    {[]change{scheduled, exits(0, "Completed", ""), deletedAt(30 * time.Second)}, executor.Failed, "pod_deleted", again, new(0), "", "before its work had ended"},
		"deleted when it was over":  {[]change{scheduled, exits(3, "Error", ""), deletedAt(31 * time.Second)}, executor.Failed, "exit_code", again, new(3), "", ""},
		"for no reason":             {[]change{scheduled, fails("", "")}, executor.Failed, "pod_failed", again, nil, "", "the pod failed"},
		"for a new reason":          {[]change{scheduled, fails("Struck", "by lightning")}, executor.Failed, "pod_failed", again, nil, "", "by lightning"},
		"a new reason and a code":   {[]change{scheduled, exits(3, "Error", ""), fails("Struck", "by lightning")}, executor.Failed, "exit_code", again, new(3), "", ""},
		"beside a sidecar":          {[]change{scheduled, sidecar, exits(0, "Completed", ""), phase(corev1.PodRunning)}, executor.Completed, "", final, new(0), "", ""},
	} {
		p := pod(t, c.happened...)
		before := p.DeepCopy()
		got, ended := kubernetes.Ended(p)
		require.True(t, ended, name)
		assert.Equal(t, c.outcome, got.Outcome, name)
		assert.Equal(t, c.reason, got.Reason, name)
		assert.Equal(t, c.retryable, got.Retryable, name)
		assert.Equal(t, c.code, got.ExitCode, name)
		assert.Equal(t, c.signal, got.Signal, name)
		assert.Contains(t, got.Message, c.message, name)
		assert.Equal(t, got.Outcome == executor.Abandoned, got.RetryAfter > 0, name)
		assert.Equal(t, got, kubernetes.Gone(p), "what is known of the end counts, also when the pod is gone")
		_, _, stuck := kubernetes.Stuck(p, noon(time.Hour), kubernetes.Patience{})
		assert.False(t, stuck, name)
		assert.Empty(t, kubernetes.Waiting(p), name)
		assert.Equal(t, before, p, "nothing changes the pod")
	}
}

func TestWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	for name, happened := range map[string][]change{
		"new": nil, "unschedulable": {unschedulable("0/3 nodes are available")}, "scheduled": {scheduled}, "waiting": {scheduled, waits("ErrImagePull", "")},
		"running": {scheduled, running}, "being deleted": {scheduled, running, deletedAt(0)}, "beside a sidecar": {scheduled, sidecar, running},
		// The node says more in a moment; the phase and the reason come with it.
		"container ended": {scheduled, exits(137, "Error", ""), phase(corev1.PodRunning)},
	} {
		_, ended := kubernetes.Ended(pod(t, happened...))
		assert.False(t, ended, name)
	}
}

func TestWhyAPodIsGone(t *testing.T) {
	t.Parallel()
	for reason, happened := range map[string][]change{
		"pod_deleted": {scheduled, running},
		"preempted":   {scheduled, running, disrupted("PreemptionByScheduler"), deletedAt(20 * time.Second)},
		"evicted":     {scheduled, running, disrupted("EvictionByEvictionAPI")},
		"node_lost":   {scheduled, running, disrupted("DeletionByTaintManager"), deletedAt(20 * time.Second)},
	} {
		got := kubernetes.Gone(pod(t, happened...))
		assert.Equal(t, executor.Failed, got.Outcome)
		assert.Equal(t, reason, got.Reason)
		assert.True(t, got.Retryable)
	}
}

func TestPodsThatMakeNoProgress(t *testing.T) {
	t.Parallel()
	patience := kubernetes.Patience{Schedule: time.Minute, Image: 2 * time.Minute, Start: 3 * time.Minute, Node: 4 * time.Minute}
	const once = -1 // there is nothing to wait for
	for name, c := range map[string]struct {
		happened  []change
		after     time.Duration // after noon
		outcome   executor.Outcome
		reason    string
		retryable bool
		message   string
	}{
		"no room":               {[]change{unschedulable("0/3 nodes are available: 3 Insufficient cpu.")}, time.Minute + time.Second, executor.Abandoned, "unschedulable", true, "no node has room for the pod: 0/3 nodes are available: 3 Insufficient cpu."},
		"no scheduler":          {nil, time.Minute, executor.Abandoned, "unschedulable", true, "is the cluster's scheduler running?"},
		"no registry":           {[]change{scheduled, waits("ErrImagePull", "dial tcp: lookup registry.example: no such host")}, 2*time.Minute + time.Second, executor.Failed, "image_pull", true, "the image debian:13-slim could not be pulled: dial tcp"},
		"registry that says no": {[]change{scheduled, waits("ImagePullBackOff", "pull access denied, repository does not exist or may require authorization")}, 2*time.Minute + time.Second, executor.Failed, "image_pull", true, "kubernetes.pull_secrets"},
		"host not found":        {[]change{scheduled, waits("ErrImagePull", "no such host: registry not found")}, 2*time.Minute + time.Second, executor.Failed, "image_pull", true, ""},
		"no such image":         {[]change{scheduled, waits("ErrImagePull", `failed to resolve reference "docker.io/library/debian:99": docker.io/library/debian:99: not found`)}, once, executor.Failed, "image_not_found", false, "there is no image debian:13-slim"},
		"no such manifest":      {[]change{scheduled, waits("ImagePullBackOff", "manifest unknown")}, once, executor.Failed, "image_not_found", false, ""},
		"no name":               {[]change{scheduled, waits("InvalidImageName", "couldn't parse image name")}, once, executor.Failed, "image_invalid", false, "couldn't parse image name"},
		"may not be pulled":     {[]change{scheduled, waits("ErrImageNeverPull", "")}, 2*time.Minute + time.Second, executor.Failed, "image_pull", true, "may not be pulled"},
		"no config":             {[]change{scheduled, waits("CreateContainerConfigError", `configmap "x" not found`)}, 3*time.Minute + time.Second, executor.Failed, "container_config", true, `configmap "x" not found`},
		"root image":            {[]change{scheduled, waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")}, once, executor.Failed, "container_config", false, "image will run as root"},
		"no program":            {[]change{scheduled, waits("CreateContainerError", `exec: "nope": executable file not found in $PATH`)}, once, executor.Failed, "start_failed", false, ""},
		"runtime trouble":       {[]change{scheduled, waits("RunContainerError", "context deadline exceeded")}, 3*time.Minute + time.Second, executor.Failed, "start_failed", true, ""},
		"creating for ever":     {[]change{scheduled, waits("ContainerCreating", "")}, 3*time.Minute + time.Second, executor.Failed, "pod_start_timeout", true, "the node node-3 has not started the container for 3m0s: ContainerCreating"},
		"nothing is heard":      {[]change{scheduled}, 3*time.Minute + time.Second, executor.Failed, "pod_start_timeout", true, ""},
		"deletion without end":  {[]change{scheduled, running, deletedAt(10 * time.Second)}, 4*time.Minute + 12*time.Second, executor.Failed, "node_lost", true, "the node node-3 was lost: the pod was to be gone by 2026-03-01T12:00:12Z"},
		"unknown":               {[]change{scheduled, running, phase(corev1.PodUnknown)}, 4*time.Minute + 2*time.Second, executor.Failed, "node_lost", true, "the node node-3 does not answer"},
	} {
		p := pod(t, c.happened...)
		if c.after != once {
			end := noon(c.after)
			_, next, stuck := kubernetes.Stuck(p, end.Add(-time.Nanosecond), patience)
			assert.False(t, stuck, name)
			assert.Equal(t, end, next.UTC(), name)
		}
		got, next, stuck := kubernetes.Stuck(p, noon(max(c.after, 0)), patience)
		assert.True(t, stuck, name)
		assert.Zero(t, next, name)
		assert.Equal(t, c.outcome, got.Outcome, name)
		assert.Equal(t, c.reason, got.Reason, name)
		assert.Equal(t, c.retryable, got.Retryable, name)
		assert.Contains(t, got.Message, c.message, name)
		assert.Equal(t, got.Outcome == executor.Abandoned, got.RetryAfter > 0, name)
	}
	for name, happened := range map[string][]change{
		"running": {scheduled, running}, "held back on purpose": {has(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonSchedulingGated, "", 0)},
	} {
		_, next, stuck := kubernetes.Stuck(pod(t, happened...), noon(24*time.Hour), patience)
		assert.False(t, stuck, name)
		assert.Zero(t, next, name)
	}
	_, next, _ := kubernetes.Stuck(pod(t, unschedulable("")), noon(0), kubernetes.Patience{})
	assert.Equal(t, noon(time.Second+kubernetes.SchedulePatienceDefault), next.UTC())
}

func TestWhatAPodWaitsFor(t *testing.T) {
	t.Parallel()
	for want, happened := range map[string][]change{
		"Pending": nil, "Unschedulable: no room": {unschedulable("no room")}, "ContainerCreating": {scheduled},
		"ImagePullBackOff: not found": {scheduled, waits("ImagePullBackOff", "not found")}, "": {scheduled, running},
	} {
		assert.Equal(t, want, kubernetes.Waiting(pod(t, happened...)))
	}
}

func TestFactsAreToldInOrder(t *testing.T) {
	t.Parallel()
	is := pods.Pod{ExecutionID: executionID, First: 1, UID: "u1", Namespace: "work", Name: kubernetes.Name(executionID, 1)}
	created := pods.Fact{Pod: is, Phase: pods.Created, At: noon(0)}
	given := pods.Fact{Pod: is, Phase: pods.Scheduled, At: noon(time.Second), Node: "node-3"}
	runs := pods.Fact{Pod: is, Phase: pods.Running, At: noon(2 * time.Second), Node: "node-3"}
	well := pods.Fact{Pod: is, Phase: pods.Succeeded, At: noon(30 * time.Second), Node: "node-3"}
	failed := func(reason, message string, code *int) pods.Fact {
		return pods.Fact{Pod: is, Phase: pods.Failed, At: noon(30 * time.Second), Node: "node-3", Reason: reason, Message: message, ExitCode: code}
	}
	for name, c := range map[string]struct {
		happened []change
		facts    []pods.Fact
	}{
		"new":            {nil, []pods.Fact{created}},
		"scheduled":      {[]change{scheduled, waits("ContainerCreating", "")}, []pods.Fact{created, given}},
		"running":        {[]change{scheduled, running}, []pods.Fact{created, given, runs}},
		"well":           {[]change{scheduled, exits(0, "Completed", "")}, []pods.Fact{created, given, runs, well}},
		"failed":         {[]change{scheduled, exits(3, "Error", "")}, []pods.Fact{created, given, runs, failed("Error", "", new(3))}},
		"out of memory":  {[]change{scheduled, exits(137, "OOMKilled", "")}, []pods.Fact{created, given, runs, failed("OOMKilled", "", new(137))}},
		"evicted":        {[]change{scheduled, exits(137, "Error", ""), fails("Evicted", "low")}, []pods.Fact{created, given, runs, failed("Evicted", "low", new(137))}},
		"never began":    {[]change{scheduled, never("StartError", "nope")}, []pods.Fact{created, given, failed("StartError", "nope", new(128))}},
		"beside sidecar": {[]change{scheduled, sidecar, exits(0, "Completed", ""), phase(corev1.PodRunning)}, []pods.Fact{created, given, runs, well}},
		"without status": {[]change{scheduled, phase(corev1.PodSucceeded)}, []pods.Fact{created, given, {Pod: is, Phase: pods.Succeeded, At: noon(time.Second), Node: "node-3"}}},
	} {
		got := kubernetes.Facts(pod(t, c.happened...))
		for i := range got {
			got[i].At = got[i].At.UTC()
		}
		assert.Equal(t, c.facts, got, name)
	}
}

func TestFactsOfPodsThatCouldNotBeginAndOfThoseThatAreGone(t *testing.T) {
	t.Parallel()
	fact, ok := kubernetes.StuckFact(pod(t, scheduled, waits("ImagePullBackOff", "not found")), noon(time.Minute))
	require.True(t, ok)
	assert.Equal(t, pods.Failed, fact.Phase)
	assert.Equal(t, "ImagePullBackOff not found", fact.Reason+" "+fact.Message)
	assert.Equal(t, noon(time.Minute), fact.At)
	_, ok = kubernetes.StuckFact(pod(t, scheduled, running), noon(time.Minute))
	assert.False(t, ok)

	fact, ok = kubernetes.DeletedFact(pod(t, scheduled, running, disrupted("PreemptionByScheduler")), noon(time.Minute))
	require.True(t, ok)
	assert.Equal(t, pods.Deleted, fact.Phase)
	assert.Equal(t, kubernetes.ReasonPreempted, fact.Reason)
	fact, _ = kubernetes.DeletedFact(pod(t, scheduled, exits(0, "Completed", "")), noon(time.Minute))
	assert.Equal(t, "finished", fact.Reason)
	fact, _ = kubernetes.DeletedFact(pod(t, scheduled, running), noon(time.Minute))
	assert.Empty(t, fact.Reason)
}
