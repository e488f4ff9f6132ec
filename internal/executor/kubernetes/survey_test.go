package kubernetes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// ground is a cluster with an ordinary node and one with graphics processors that only
// those may use who say so.
func ground(t *testing.T) *side {
	t.Helper()
	c := kubetest.Start(t)
	s := &side{Cluster: c, t: t, book: newBook()}
	s.namespace, s.account = c.Deploy(t)
	c.AddNode(t, kubetest.Node{Name: "plain", Capacity: corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("20"),
	}})
	c.AddNode(t, kubetest.Node{
		Name: "gpu", Labels: map[string]string{"kind": "gpu"}, Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("10"), "nvidia.com/gpu": resource.MustParse("2"),
		},
	})
	s.settings = kubernetes.Settings{
		Installation: "test", Namespace: s.namespace, DefaultImage: "busybox",
		Classes: map[string]kubernetes.Class{"gpu": {NodeSelector: map[string]string{"kind": "gpu"}, Tolerations: []string{"gpu=yes:NoSchedule"}}},
	}
	return s
}

// surveys waits until the room of a class is as wanted.
func surveys(t *testing.T, e *kubernetes.Executor, class string, want executor.Capacity) {
	t.Helper()
	deadline := time.After(executortest.Patience)
	for {
		if got, ok := e.Capacity(class); ok && got == want {
			return
		}
		select {
		case <-e.Surveyed():
		case <-deadline:
			got, ok := e.Capacity(class)
			require.FailNow(t, "the survey is not as it should be", "%s: %+v (%v), want %+v", class, got, ok, want)
		}
	}
}

func classes(c *kubernetes.Config) { c.Classes = []string{"default", "gpu"} }

func TestTheRoomOfTheClusterIsSurveyed(t *testing.T) {
	t.Parallel()
	s := ground(t)
	e, _ := s.worker(classes)
	plain := executor.Capacity{Slots: 20, CPUMillis: 4000, MemoryBytes: 8 << 30}
	surveys(t, e, "default", plain)
	surveys(t, e, "gpu", executor.Capacity{Slots: 10, CPUMillis: 16000, MemoryBytes: 64 << 30, GPUs: 2})
	_, known := e.Capacity("other")
	assert.False(t, known)
	assert.Equal(t, "kubernetes/test", e.Pool())

	s.SetQuota(t, s.namespace, corev1.ResourceList{"pods": resource.MustParse("5"), "requests.cpu": resource.MustParse("10"), "requests.nvidia.com/gpu": resource.MustParse("1")})
	surveys(t, e, "default", executor.Capacity{Slots: 5, CPUMillis: 4000, MemoryBytes: 8 << 30})
	surveys(t, e, "gpu", executor.Capacity{Slots: 5, CPUMillis: 10000, MemoryBytes: 64 << 30, GPUs: 1})

	s.DeleteNode(t, "gpu")
	surveys(t, e, "gpu", executor.Capacity{})
	s.LoseNode(t, "plain")
	surveys(t, e, "default", executor.Capacity{})
}

func TestTheSurveyTakesWhatItMayRead(t *testing.T) {
	t.Parallel()
	s := ground(t)
	for _, verb := range []string{"list", "watch"} {
		s.Gate().Inject(faults.Fault{Match: faults.On(verb, "nodes"), Answer: forbidden("it may not")})
	}
	s.SetQuota(t, s.namespace, corev1.ResourceList{"count/pods": resource.MustParse("7"), "limits.memory": resource.MustParse("1Gi")})
	e, _ := s.worker(classes)
	surveys(t, e, "default", executor.Capacity{Slots: 7, CPUMillis: -1, MemoryBytes: 1 << 30, GPUs: -1})

	// Where there is nobody to ask there is no bound: what is not known admits nothing.
	none, _ := s.worker(classes, func(c *kubernetes.Config) { c.Capacity = kubernetes.CapacityNone })
	unbounded := executor.Capacity{Slots: -1, CPUMillis: -1, MemoryBytes: -1, GPUs: -1}
	surveys(t, none, "default", unbounded)
	for _, verb := range []string{"list", "watch"} {
		s.Gate().Inject(faults.Fault{Match: faults.On(verb, "resourcequotas"), Answer: forbidden("it may not")})
	}
	neither, _ := s.worker(classes)
	surveys(t, neither, "default", unbounded)

	nodes, _ := s.worker(classes, func(c *kubernetes.Config) { c.Capacity = kubernetes.CapacityNodes })
	before := s.Gate().Seen("list", "nodes")
	require.Eventually(t, func() bool { return s.Gate().Seen("list", "nodes") > before+2 }, executortest.Patience, 5*time.Millisecond)
	_, known := nodes.Capacity("default")
	assert.False(t, known)
}
