package kubernetes_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/pods"
)

// create does what the executor does, in its order.
func create(t *testing.T, client clientset.Interface, o kubernetes.Objects) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(o.Pod.Namespace).Create(t.Context(), o.Pod, metav1.CreateOptions{})
	require.NoError(t, err)
	if o.ConfigMap != nil {
		o.Own(pod)
		_, err = client.CoreV1().ConfigMaps(o.Pod.Namespace).Create(t.Context(), o.ConfigMap, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return pod
}

// until waits for a pod to be as wanted.
func until(t *testing.T, client clientset.Interface, pod *corev1.Pod, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err == nil {
			pod = found
		}
		return err == nil && wanted(pod)
	}, executortest.Patience, 10*time.Millisecond, "%s", kubernetes.Waiting(pod))
	return pod
}

func logs(t *testing.T, client clientset.Interface, pod *corev1.Pod) string {
	t.Helper()
	stream, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: kubernetes.WorkContainer}).Stream(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	return string(text)
}

// restrict has the API server hold a namespace to the strictest of the Pod Security
// Standards. The served one does not look.
func restrict(t *testing.T, c *kubetest.Cluster, namespace string) {
	t.Helper()
	found, err := c.Admin().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	require.NoError(t, err)
	metav1.SetMetaDataLabel(&found.ObjectMeta, "pod-security.kubernetes.io/enforce", "restricted")
	_, err = c.Admin().CoreV1().Namespaces().Update(t.Context(), found, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// What is built works where it is meant to: real processes under a kubelet find what the
// spec promises, and their ends are read back.
func TestPodsOnANode(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	c.AddNode(t, kubetest.Node{})
	client, namespace := c.Client(t), c.Namespace(t)
	restrict(t, c, namespace)
	b := newBuilder(t, func(s *kubernetes.Settings) { s.Namespace = namespace })
	for name, test := range map[string]struct {
		spec    map[string]any
		outcome executor.Outcome
		reason  string
		message string
		log     string
	}{
		"words": {
			map[string]any{"command": []string{"printf", `%s|`, "$(HOME)", "$$", "$HOME", "a b", "", "ünïcode"}},
			executor.Completed, "", "", "$(HOME)|$$|$HOME|a b||ünïcode|"},
		"environment": {
			map[string]any{"command": []string{"sh", "-c", `echo "$A $HOME $TMPDIR $MILLRACE_WORKDIR $(pwd) $MILLRACE_EXECUTION_ID $MILLRACE_ATTEMPT"; cat "$MILLRACE_CHECKPOINT"`}, "env": map[string]string{"A": "$(B)"}},
			executor.Completed, "", "", "$(B) /millrace/work /millrace/work /millrace/work /millrace/work environment 3\nrow 3"},
		"script and files": {
			map[string]any{"script": "#!/usr/bin/env -S sh -e\ncat lib/a.txt; wc -c <blob; echo x >mine; cat mine; echo y >/tmp/z; cat /tmp/z; (echo q >>lib/a.txt) 2>/dev/null || echo read-only",
				"files": map[string]any{"lib/a.txt": "text\n", "blob": map[string]string{"base64": "AP8K"}}},
			executor.Completed, "", "", "text\n3\nx\ny\nread-only\n"},
		"input and limits": {
			map[string]any{"command": []string{"sh", "-c", `cat; ulimit -n`}, "stdin": "line\n", "limits": map[string]any{"open_files": 55}},
			executor.Completed, "", "", "line\n55\n"},
		"exit code": {
			map[string]any{"command": []string{"sh", "-c", `echo "account is closed" >/dev/termination-log; exit 7`}},
			executor.Failed, "exit_code", "the program exited with code 7: account is closed", ""},
		"crash": {
			map[string]any{"script": "kill -SEGV $$"}, executor.Failed, "signal", "ended by SIGSEGV", ""},
		"no such program": {
			map[string]any{"command": []string{"no-such-program"}}, executor.Failed, "start_failed", "no-such-program", ""},
		"no such program, by the launcher": {
			map[string]any{"command": []string{"no-such-program"}, "stdin": "x"}, executor.Failed, "start_failed", "there is no program no-such-program", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(test.spec)
			require.NoError(t, err)
			one := task(string(raw))
			one.ExecutionID, one.First, one.Attempt, one.Checkpoint = strings.ReplaceAll(name, " ", "-"), 3, 4, []byte("row 3")
			o, err := b.Build(one)
			require.NoError(t, err)
			pod := create(t, client, o)
			var result executor.Result
			pod = until(t, client, pod, func(p *corev1.Pod) (over bool) { result, over = kubernetes.Ended(p); return over })
			text := logs(t, client, pod)
			assert.Equal(t, test.outcome, result.Outcome, "%s\n%s", result.Message, text)
			assert.Equal(t, test.reason, result.Reason, result.Message)
			assert.Contains(t, result.Message, test.message)
			assert.Contains(t, text, test.log)
			var phases []pods.Phase
			for _, f := range kubernetes.Facts(pod) {
				phases = append(phases, f.Phase)
				assert.False(t, f.At.Before(pod.CreationTimestamp.Time), "%s at %s", f.Phase, f.At)
			}
			assert.Subset(t, pods.Phases(), phases)
			assert.Equal(t, pods.Created, phases[0])
			assert.Contains(t, []pods.Phase{pods.Succeeded, pods.Failed}, phases[len(phases)-1])
		})
	}
}

// The words that refusals are told apart by are those of the API server itself.
func TestHowTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	if !kubetest.IsReal() {
		t.Skip("needs the API server of Kubernetes: " + kubetest.RealEnv + "=1")
	}
	c := kubetest.Start(t)
	client := c.Client(t)
	for name, test := range map[string]struct {
		prepare func(t *testing.T, namespace string)
		change  func(*corev1.Pod)
		reason  string
		message string
	}{
		"nothing":    {nil, nil, "", ""},
		"restricted": {func(t *testing.T, namespace string) { t.Helper(); restrict(t, c, namespace) }, nil, "", ""},
		"policy":     {func(t *testing.T, namespace string) { t.Helper(); restrict(t, c, namespace) }, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, kubernetes.ReasonPodRefused, "violates PodSecurity"},
		"quota of none": {func(t *testing.T, namespace string) {
			t.Helper()
			c.SetQuota(t, namespace, corev1.ResourceList{"pods": resource.MustParse("0")})
		}, nil, kubernetes.ReasonQuotaTooSmall, "the pod asks for 1 of pods, and the quota"},
		"small quota": {func(t *testing.T, namespace string) {
			t.Helper()
			c.SetQuota(t, namespace, corev1.ResourceList{"requests.cpu": resource.MustParse("100m")})
		}, nil, kubernetes.ReasonQuotaTooSmall, "250m of requests.cpu, and the quota"},
		"quota of limits": {func(t *testing.T, namespace string) {
			t.Helper()
			c.SetQuota(t, namespace, corev1.ResourceList{"limits.cpu": resource.MustParse("4")})
		}, func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Limits, "cpu") }, kubernetes.ReasonPodRefused, "must specify limits.cpu"},
		"priority class": {nil, func(p *corev1.Pod) { p.Spec.PriorityClassName = "none" }, kubernetes.ReasonClusterObject, "no PriorityClass with name none"},
		"runtime class":  {nil, func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("none") }, kubernetes.ReasonClusterObject, "none"},
		"no namespace":   {nil, func(p *corev1.Pod) { p.Namespace = "none" }, kubernetes.ReasonNoNamespace, "kubectl create namespace none"},
		"invalid":        {nil, func(p *corev1.Pod) { p.Spec.RestartPolicy = "Sometimes" }, kubernetes.ReasonPodRefused, "Sometimes"},
		"limit range": {func(t *testing.T, namespace string) {
			t.Helper()
			_, err := c.Admin().CoreV1().LimitRanges(namespace).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": resource.MustParse("64Mi")}}},
			}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}, nil, kubernetes.ReasonPodRefused, "maximum memory usage per Container is 64Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.Namespace(t)
			if test.prepare != nil {
				test.prepare(t, namespace)
			}
			o, _ := build(t, newBuilder(t, func(s *kubernetes.Settings) { s.Namespace = namespace }), task(`{"script":"true"}`))
			if test.change != nil {
				test.change(o.Pod)
			}
			_, err := client.CoreV1().Pods(o.Pod.Namespace).Create(t.Context(), o.Pod, metav1.CreateOptions{})
			if test.reason == "" {
				require.NoError(t, err)
				return
			}
			result, refused := kubernetes.Refused(err)
			require.True(t, refused, "%v", err)
			assert.Equal(t, test.reason, result.Reason, result.Message)
			assert.Contains(t, result.Message, test.message)
		})
	}
}
