package kubetest_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

// tick is how often something is looked at that has to come.
const tick = 10 * time.Millisecond

// shell is a pod that runs a script.
func shell(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "shell", Command: []string{"sh", "-c", script}}},
		},
	}
}

func create(t *testing.T, client kubernetes.Interface, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// await waits until a pod is as wanted.
func await(t *testing.T, client kubernetes.Interface, namespace, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	require.Eventually(t, func() bool {
		pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		last = pod
		return wanted(pod)
	}, kubetest.Patience, tick, "%s", name)
	return last
}

func phase(p corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == p }
}

func logs(t *testing.T, client kubernetes.Interface, namespace, name string, o corev1.PodLogOptions) string {
	t.Helper()
	stream, err := client.CoreV1().Pods(namespace).GetLogs(name, &o).Stream(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	return string(text)
}

func TestAPodRuns(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	c.AddNode(t, kubetest.Node{})
	client, ns := c.Client(t), c.Namespace(t)
	create(t, client, ns, shell("one", "echo one; echo two; echo three >&2; exit 3"))
	pod := await(t, client, ns, "one", phase(corev1.PodFailed))
	state := pod.Status.ContainerStatuses[0].State.Terminated
	require.NotNil(t, state)
	assert.EqualValues(t, 3, state.ExitCode)
	assert.Equal(t, "one\ntwo\n", logs(t, client, ns, "one", corev1.PodLogOptions{Follow: true, Stream: new("Stdout")}))
}
