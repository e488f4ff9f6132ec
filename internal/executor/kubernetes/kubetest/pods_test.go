package kubetest_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/kubelet"
)

// waiting says whether a pod's first container waits for a reason.
func waiting(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		s := pod.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason
	}
}

func terminated(t *testing.T, pod *corev1.Pod) *corev1.ContainerStateTerminated {
	t.Helper()
	require.NotEmpty(t, pod.Status.ContainerStatuses)
	require.NotNil(t, pod.Status.ContainerStatuses[0].State.Terminated, "%+v", pod.Status)
	return pod.Status.ContainerStatuses[0].State.Terminated
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func isGone(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, kubetest.Patience, 10*time.Millisecond)
}

// grounds is a cluster with a node, and a namespace of it.
func grounds(t *testing.T) (*kubetest.Cluster, kubernetes.Interface, string) {
	t.Helper()
	c := kubetest.Start(t)
	c.AddNode(t, kubetest.Node{})
	return c, c.Client(t), c.Namespace(t)
}

func TestHowContainersEnd(t *testing.T) {
	t.Parallel()
	_, client, ns := grounds(t)
	for name, want := range map[string]struct {
		command []string
		code    int32
		reason  string
		message string
		phase   corev1.PodPhase
	}{
		"well":      {[]string{"sh", "-c", "exit 0"}, 0, "Completed", "", corev1.PodSucceeded},
		"code":      {[]string{"sh", "-c", "exit 3"}, 3, "Error", "", corev1.PodFailed},
		"signal":    {[]string{"sh", "-c", `sh -c 'kill -SEGV $$$$'; exit $?`}, 139, "Error", "", corev1.PodFailed},
		"nothing":   {[]string{"no-such-program"}, 128, "StartError", "executable file not found in $PATH", corev1.PodFailed},
		"no-file":   {[]string{"/no/such/file"}, 128, "StartError", "no such file or directory", corev1.PodFailed},
		"forbidden": {[]string{"/etc/passwd"}, 128, "StartError", "permission denied", corev1.PodFailed},
		"message":   {[]string{"sh", "-c", "echo why >/dev/termination-log; exit 1"}, 1, "Error", "why\n", corev1.PodFailed},
	} {
		pod := shell(name, "")
		pod.Spec.Containers[0].Command = want.command
		create(t, client, ns, pod)
		ended := await(t, client, ns, name, phase(want.phase))
		state := terminated(t, ended)
		assert.Equal(t, want.code, state.ExitCode, name)
		assert.Equal(t, want.reason, state.Reason, name)
		assert.Contains(t, state.Message, want.message, name)
		assert.Equal(t, corev1.ConditionFalse, condition(ended, corev1.PodReady).Status, name)
	}
}

// What a container sees is what its pod's spec says, at the paths that it says.
func TestWhatAContainerSees(t *testing.T) {
	t.Parallel()
	_, client, ns := grounds(t)
	pod := shell("sees", `
		cat /millrace/files/deep/script.sh; cat /millrace/name; echo
		echo "$GREETING $NAME from $MY_POD, key $KEY"
		pwd; echo work >here; cat /work/here; echo temporary >/tmp/x
		touch /millrace/files/new 2>/dev/null || echo files are read-only
		touch /bin/new 2>/dev/null || echo programs are read-only
		touch /new 2>/dev/null || echo root is read-only
		echo $$$$; ls /proc | grep -c '^[0-9]'; id -u; echo err >/dev/stderr; env | grep -c CANARY`)
	container := &pod.Spec.Containers[0]
	container.WorkingDir = "/work"
	container.Env = []corev1.EnvVar{
		{Name: "NAME", Value: "world"}, {Name: "GREETING", Value: "hello, $(NAME), $$5"},
		{Name: "MY_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "files"}, Key: "key"}}},
	}
	container.VolumeMounts = []corev1.VolumeMount{
		{Name: "files", MountPath: "/millrace/files"}, {Name: "work", MountPath: "/work"},
		{Name: "tmp", MountPath: "/tmp"}, {Name: "about", MountPath: "/millrace/name", SubPath: "name"},
	}
	container.SecurityContext = &corev1.SecurityContext{
		ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
		AllowPrivilegeEscalation: new(false),
	}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "files"},
			Items:                []corev1.KeyToPath{{Key: "script", Path: "deep/script.sh"}},
		}}},
		{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: new(corev1.EmptyDirVolumeSource)}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: new(corev1.EmptyDirVolumeSource)}},
		{Name: "about", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}}},
	}
	create(t, client, ns, pod)
	await(t, client, ns, "sees", waiting("ContainerCreating")) // the config map is missing
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "files"}, Data: map[string]string{"script": "echo a script\n", "key": "42"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	await(t, client, ns, "sees", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Terminated != nil
	})
	lines := strings.Split(strings.TrimSpace(logs(t, client, ns, "sees", corev1.PodLogOptions{Stream: new(corev1.LogStreamStdout)})), "\n")
	require.Len(t, lines, 12, "%v", await(t, client, ns, "sees", func(*corev1.Pod) bool { return true }).Status)
	assert.Equal(t, []string{
		"echo a script", "sees", "hello, world, $5 world from sees, key 42", "/work", "work",
		"files are read-only", "programs are read-only", "root is read-only", "1",
	}, lines[:9])
	assert.Contains(t, []string{"65532", "0"}, lines[10], "an ordinary user's pods are shown as root")
	assert.Equal(t, "err\n", logs(t, client, ns, "sees", corev1.PodLogOptions{Stream: new(corev1.LogStreamStderr)}))
}

func TestLogs(t *testing.T) {
	t.Parallel()
	_, client, ns := grounds(t)
	const n = 300_001
	flood := shell("flood", "")
	flood.Spec.Containers[0].Command = []string{kubelet.ProgramPath, "flood", fmt.Sprint(n)}
	create(t, client, ns, flood)
	create(t, client, ns, shell("lines", "echo one; echo two >&2; echo three; printf four"))
	create(t, client, ns, shell("plain", "echo one; echo two; printf three"))
	await(t, client, ns, "flood", phase(corev1.PodSucceeded))
	await(t, client, ns, "lines", phase(corev1.PodSucceeded))
	await(t, client, ns, "plain", phase(corev1.PodSucceeded))
	assert.Equal(t, string(ramp(n)), logs(t, client, ns, "flood", corev1.PodLogOptions{}), "binary, and in order")
	assert.Equal(t, string(ramp(1000)), logs(t, client, ns, "flood", corev1.PodLogOptions{LimitBytes: new(int64(1000))}))

	both := logs(t, client, ns, "lines", corev1.PodLogOptions{})
	for _, line := range []string{"one\n", "two\n", "three\n", "four"} {
		assert.Contains(t, both, line)
	}
	out := corev1.LogStreamStdout
	assert.Equal(t, "two\nthree", logs(t, client, ns, "plain", corev1.PodLogOptions{TailLines: new(int64(2))}))
	_, err := client.CoreV1().Pods(ns).GetLogs("lines", &corev1.PodLogOptions{Stream: &out, TailLines: new(int64(2))}).Stream(t.Context())
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	stamped := strings.Split(logs(t, client, ns, "lines", corev1.PodLogOptions{Stream: &out, Timestamps: true}), "\n")
	require.Len(t, stamped, 3)
	var last time.Time
	for i, want := range []string{"one", "three", "four"} {
		stamp, text, _ := strings.Cut(stamped[i], " ")
		assert.Equal(t, want, text)
		at, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(t, err)
		assert.True(t, at.After(last), "times go forward")
		last = at
	}
	since := metav1.NewTime(last.Add(2 * time.Second))
	assert.Empty(t, logs(t, client, ns, "lines", corev1.PodLogOptions{SinceTime: &since}))
	since = metav1.NewTime(last.Add(-2 * time.Second))
	assert.Contains(t, logs(t, client, ns, "lines", corev1.PodLogOptions{SinceTime: &since}), "four")

	_, err = client.CoreV1().Pods(ns).GetLogs("lines", &corev1.PodLogOptions{Container: "other"}).Stream(t.Context())
	assert.True(t, apierrors.IsBadRequest(err), "%v", err)
	_, err = client.CoreV1().Pods(ns).GetLogs("nobody", &corev1.PodLogOptions{}).Stream(t.Context())
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

// A log that is followed ends with the container, and one that is cut says so.
func TestFollowingALog(t *testing.T) {
	t.Parallel()
	c, client, ns := grounds(t)
	create(t, client, ns, shell("beat", "trap 'echo bye; exit 0' TERM; echo begin; while :; do sleep 0.01; done"))
	await(t, client, ns, "beat", phase(corev1.PodRunning))
	stream, err := client.CoreV1().Pods(ns).GetLogs("beat", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	begin := make([]byte, 6)
	_, err = io.ReadFull(stream, begin)
	require.NoError(t, err)
	require.Equal(t, 1, c.Gate().CutStreams(func(call kubetest.Call) bool { return call.Verb == "log" }))
	_, err = io.ReadAll(stream)
	require.Error(t, err, "what is cut does not look like the end")

	again, err := client.CoreV1().Pods(ns).GetLogs("beat", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "beat", metav1.DeleteOptions{}))
	text, err := io.ReadAll(again)
	require.NoError(t, err)
	assert.Equal(t, "begin\nbye\n", string(text))
	isGone(t, client, ns, "beat")
	assert.Empty(t, c.Running())
}

// What does not react is killed when its grace period is over, and nothing of it is left.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	c, client, ns := grounds(t)
	create(t, client, ns, shell("stubborn", "trap '' TERM; (setsid sleep 3600 &); sleep 3600 & echo here; while :; do sleep 1; done"))
	await(t, client, ns, "stubborn", phase(corev1.PodRunning))
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: new(int64(3600))}))
	marked := await(t, client, ns, "stubborn", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	assert.EqualValues(t, 3600, *marked.DeletionGracePeriodSeconds)
	assert.Equal(t, []string{ns + "/stubborn"}, c.Running())
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	isGone(t, client, ns, "stubborn")
	assert.Empty(t, c.Running())

	create(t, client, ns, shell("forced", "trap '' TERM; while :; do sleep 1; done"))
	await(t, client, ns, "forced", phase(corev1.PodRunning))
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "forced", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	isGone(t, client, ns, "forced")
	require.Eventually(t, func() bool { return len(c.Running()) == 0 }, kubetest.Patience, 10*time.Millisecond)
}

func TestWhyPodsFail(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	node := c.AddNode(t, kubetest.Node{})
	client, ns := c.Client(t), c.Namespace(t)

	deadline := shell("deadline", "sleep 3600")
	deadline.Spec.ActiveDeadlineSeconds = new(int64(1))
	deadline.Spec.TerminationGracePeriodSeconds = new(int64(1))
	create(t, client, ns, deadline)
	for _, name := range []string{"oom", "evicted"} {
		create(t, client, ns, shell(name, "sleep 3600"))
		await(t, client, ns, name, phase(corev1.PodRunning))
	}
	require.NoError(t, node.OOMKill(ns, "oom"))
	require.NoError(t, node.Evict(ns, "evicted", "The node was low on resource: memory."))
	require.ErrorIs(t, node.OOMKill(ns, "nobody"), kubelet.ErrNoPod)

	pod := await(t, client, ns, "oom", phase(corev1.PodFailed))
	assert.Equal(t, "OOMKilled", terminated(t, pod).Reason)
	assert.EqualValues(t, 137, terminated(t, pod).ExitCode)
	pod = await(t, client, ns, "evicted", phase(corev1.PodFailed))
	assert.Equal(t, "Evicted", pod.Status.Reason)
	assert.Equal(t, "TerminationByKubelet", condition(pod, corev1.DisruptionTarget).Reason)
	pod = await(t, client, ns, "deadline", phase(corev1.PodFailed))
	assert.Equal(t, "DeadlineExceeded", pod.Status.Reason)

	missing := shell("missing", "")
	missing.Spec.Containers[0].Image = "registry.example/missing:1"
	create(t, client, ns, missing)
	await(t, client, ns, "missing", waiting("ErrImagePull"))
	await(t, client, ns, "missing", waiting("ImagePullBackOff"))
	invalid := shell("invalid", "")
	invalid.Spec.Containers[0].Image = "Registry.Example/UPPER"
	create(t, client, ns, invalid)
	await(t, client, ns, "invalid", waiting("InvalidImageName"))
	root := shell("root", "")
	root.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true)}
	create(t, client, ns, root)
	await(t, client, ns, "root", waiting("CreateContainerConfigError"))
	for _, name := range []string{"missing", "invalid", "root"} {
		require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
		isGone(t, client, ns, name)
	}
}

func TestScheduling(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	create(t, client, ns, shell("early", "true"))
	unschedulable := func(why string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			s := condition(pod, corev1.PodScheduled)
			return s.Status == corev1.ConditionFalse && s.Reason == corev1.PodReasonUnschedulable && strings.Contains(s.Message, why)
		}
	}
	await(t, client, ns, "early", unschedulable("no nodes available"))
	c.AddNode(t, kubetest.Node{Capacity: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")}})
	await(t, client, ns, "early", phase(corev1.PodSucceeded))

	sized := func(name, cpu string) *corev1.Pod {
		pod := shell(name, "sleep 3600")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		return pod
	}
	create(t, client, ns, sized("first", "1500m"))
	await(t, client, ns, "first", phase(corev1.PodRunning))
	create(t, client, ns, sized("second", "1"))
	await(t, client, ns, "second", unschedulable("0/1 nodes are available: 1 Insufficient cpu."))
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	await(t, client, ns, "second", phase(corev1.PodRunning))

	gpu := shell("gpu", "true")
	gpu.Spec.NodeSelector = map[string]string{"class": "gpu"}
	create(t, client, ns, gpu)
	await(t, client, ns, "gpu", unschedulable("didn't match Pod's node affinity/selector"))
	c.AddNode(t, kubetest.Node{Name: "gpu-1", Labels: map[string]string{"class": "gpu"}, Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}})
	await(t, client, ns, "gpu", unschedulable("untolerated taint(s) {gpu: yes}"))
	tolerant := shell("tolerant", "true")
	tolerant.Spec.NodeSelector = gpu.Spec.NodeSelector
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	create(t, client, ns, tolerant)
	pod := await(t, client, ns, "tolerant", phase(corev1.PodSucceeded))
	assert.Equal(t, "gpu-1", pod.Spec.NodeName)
}

func TestNodesGoAway(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	c.AddNode(t, kubetest.Node{Name: "deleted"})
	create(t, client, ns, shell("orphan", "sleep 3600"))
	await(t, client, ns, "orphan", phase(corev1.PodRunning))
	w, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	c.DeleteNode(t, "deleted")
	isGone(t, client, ns, "orphan")
	assert.Empty(t, c.Running())
	last := until(t, w.ResultChan(), func(kind string, pod *corev1.Pod) bool { return kind == "DELETED" })
	assert.Equal(t, corev1.PodFailed, last.Status.Phase)
	assert.Equal(t, "DeletionByPodGC", condition(last, corev1.DisruptionTarget).Reason)

	c.AddNode(t, kubetest.Node{Name: "lost"})
	create(t, client, ns, shell("stranded", "sleep 3600"))
	await(t, client, ns, "stranded", phase(corev1.PodRunning))
	c.LoseNode(t, "lost")
	pod := await(t, client, ns, "stranded", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	assert.Equal(t, "DeletionByTaintManager", condition(pod, corev1.DisruptionTarget).Reason)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase, "nobody is there to tell that it ended")
	assert.Empty(t, c.Running())
	_, err = client.CoreV1().Pods(ns).GetLogs("stranded", &corev1.PodLogOptions{}).Stream(t.Context())
	require.Error(t, err)
	c.DeleteNode(t, "lost")
	isGone(t, client, ns, "stranded")
}

func TestOwnersAndNamespaces(t *testing.T) {
	t.Parallel()
	c, client, ns := grounds(t)
	pod := create(t, client, ns, shell("owner", "sleep 3600"))
	await(t, client, ns, "owner", phase(corev1.PodRunning))
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	late := owned.DeepCopy()
	late.Name = "late"
	for _, cm := range []*corev1.ConfigMap{owned, other} {
		_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	names := func() []string {
		list, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return []string{err.Error()}
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	require.Eventually(t, func() bool { return fmt.Sprint(names()) == "[other]" }, kubetest.Patience, 10*time.Millisecond)
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), late, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return fmt.Sprint(names()) == "[other]" }, kubetest.Patience, 10*time.Millisecond, "whose owner is gone already is collected too")

	create(t, client, ns, shell("inhabitant", "sleep 3600"))
	await(t, client, ns, "inhabitant", phase(corev1.PodRunning))
	require.NoError(t, client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}))
	_, err = client.CoreV1().Pods(ns).Create(t.Context(), shell("newcomer", "true"), metav1.CreateOptions{})
	assert.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), "%v", err)
	require.NoError(t, c.Admin().CoreV1().Pods(ns).Delete(t.Context(), "inhabitant", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, kubetest.Patience, 10*time.Millisecond)
}

func TestHollowNodes(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	c.AddNode(t, kubetest.Node{Hollow: func(pod *corev1.Pod) time.Duration {
		if pod.Name == "short" {
			return 0
		}
		return time.Hour
	}})
	client, ns := c.Client(t), c.Namespace(t)
	create(t, client, ns, shell("short", "exit 1"))
	create(t, client, ns, shell("long", "exit 1"))
	await(t, client, ns, "short", phase(corev1.PodSucceeded))
	await(t, client, ns, "long", phase(corev1.PodRunning))
	assert.Equal(t, []string{ns + "/long"}, c.Running())
	assert.Empty(t, logs(t, client, ns, "short", corev1.PodLogOptions{Follow: true}))
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "long", metav1.DeleteOptions{}))
	isGone(t, client, ns, "long")
	assert.Empty(t, c.Running())
}
