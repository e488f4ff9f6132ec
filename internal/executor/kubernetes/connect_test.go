package kubernetes_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// kubeconfig writes one with a context "main" for the server, and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	c.Contexts["main"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "main"
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, clientcmd.WriteToFile(*c, path))
	return path
}

// alone is an environment in which nothing says where a cluster is.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
}

func TestWithoutAClusterItIsSaidWhatToDo(t *testing.T) { //nolint:paralleltest // it changes the environment
	alone(t)
	_, err := kubernetes.Connect(kubernetes.Connection{})
	require.ErrorIs(t, err, kubernetes.ErrNoCluster)
	require.ErrorContains(t, err, "set kubernetes.kubeconfig, or leave kubernetes out of worker.executors")

	_, err = kubernetes.Connect(kubernetes.Connection{Kubeconfig: "/no/such/file"})
	require.ErrorContains(t, err, "read kubeconfig: stat /no/such/file")
	broken := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	_, err = kubernetes.Connect(kubernetes.Connection{Kubeconfig: broken})
	require.ErrorContains(t, err, "read kubeconfig: ")
	_, err = kubernetes.Connect(kubernetes.Connection{Kubeconfig: kubeconfig(t, "https://127.0.0.1:1"), Context: "other"})
	require.ErrorContains(t, err, `kubernetes.context: context "other" does not exist`)
}

func TestTheKubeconfigOfTheUserIsFound(t *testing.T) { //nolint:paralleltest // it changes the environment
	alone(t)
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.UserAgent()
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", kubeconfig(t, server.URL))
	client, err := kubernetes.Connect(kubernetes.Connection{QPS: 10, Burst: 20, UserAgent: "millrace-test"})
	require.NoError(t, err)
	_, err = kubernetes.Probe(t.Context(), client, newBuilder(t), nil)
	require.ErrorContains(t, err, "its token or certificate is wrong, or has expired")
	assert.Equal(t, "millrace-test", <-asked)
}

func TestAClusterThatDoesNotAnswerIsToldFromOneThatRefuses(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.Connect(kubernetes.Connection{Kubeconfig: kubeconfig(t, "http://127.0.0.1:1"), QPS: 100, Burst: 100})
	require.NoError(t, err)
	_, err = kubernetes.Probe(t.Context(), client, newBuilder(t), nil)
	require.ErrorContains(t, err, "is the cluster up, and is kubernetes.kubeconfig its own?")

	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	client, err = kubernetes.Connect(kubernetes.Connection{Kubeconfig: kubeconfig(t, secure.URL), QPS: 100, Burst: 100})
	require.NoError(t, err)
	_, err = kubernetes.Probe(t.Context(), client, newBuilder(t), nil)
	require.ErrorContains(t, err, "the certificate of the API server is not what the kubeconfig says")
}

func TestTheProbeAsksForRightsAndTriesAPodOfEachClass(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, namespace := c.Client(t), c.Namespace(t)
	b := newBuilder(t, func(s *kubernetes.Settings) {
		s.Namespace = namespace
		s.Classes = map[string]kubernetes.Class{"large": {MemoryBytes: 8 << 30}}
	})
	report, err := kubernetes.Probe(t.Context(), client, b, []string{"default", "large"})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(report.Version, "v1."), report.Version)
	assert.Empty(t, report.Missing)
	assert.Empty(t, report.Wanting)
	assert.Empty(t, report.Refused)
	made, err := c.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, made.Items, "nothing is made")

	c.SetQuota(t, namespace, corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("1Gi")})
	report, err = kubernetes.Probe(t.Context(), client, b, []string{"default", "large"})
	require.NoError(t, err)
	require.Contains(t, report.Refused, "large")
	assert.NotContains(t, report.Refused, "default")
	assert.Equal(t, kubernetes.ReasonQuotaTooSmall, report.Refused["large"].Reason)
	assert.Equal(t, executor.Abandoned, report.Refused["large"].Outcome)

	nowhere := newBuilder(t, func(s *kubernetes.Settings) { s.Namespace, s.DefaultImage = "no-such-namespace", "" })
	report, err = kubernetes.Probe(t.Context(), client, nowhere, []string{"default"})
	require.NoError(t, err)
	assert.Equal(t, kubernetes.ReasonNoNamespace, report.Refused["default"].Reason)

	c.Gate().Inject(faults.Fault{Match: faults.On("create", "pods"), Answer: faults.Internal("etcdserver: leader changed")})
	_, err = kubernetes.Probe(t.Context(), client, b, []string{"default"})
	require.ErrorContains(t, err, "the API server is in trouble")
}

func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`))
		default:
			t.Errorf("unexpected %s %s", r.Method, r.URL)
		}
	}))
	defer server.Close()
	client, err := kubernetes.Connect(kubernetes.Connection{Kubeconfig: kubeconfig(t, server.URL), QPS: 1000, Burst: 1000})
	require.NoError(t, err)
	report, err := kubernetes.Probe(t.Context(), client, newBuilder(t), []string{"default"})
	require.NoError(t, err)
	assert.Equal(t, "v1.36.3", report.Version)
	assert.Contains(t, report.Missing, "create pods")
	assert.Contains(t, report.Missing, "get pods/log")
	assert.Contains(t, report.Wanting, "list nodes (knowing the room of the cluster)")
	assert.NotContains(t, report.Missing, "list nodes")

	// Nobody asks for rights to what the room is not known from.
	for source, wanting := range map[kubernetes.CapacitySource][]string{
		kubernetes.CapacityNone: nil,
		kubernetes.CapacityNodes: {
			"list nodes (knowing the room of the cluster)", "watch nodes (knowing the room of the cluster)",
		},
		kubernetes.CapacityQuota: {
			"list resourcequotas (knowing the room of the namespace)", "watch resourcequotas (knowing the room of the namespace)",
		},
	} {
		b := newBuilder(t, func(s *kubernetes.Settings) { s.Capacity = source })
		report, err := kubernetes.Probe(t.Context(), client, b, nil)
		require.NoError(t, err)
		assert.Equal(t, wanting, report.Wanting, source)
	}
}
