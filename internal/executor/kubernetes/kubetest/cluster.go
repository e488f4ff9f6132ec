package kubetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/control"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/kubelet"
	"github.com/millrace/millrace/internal/testenv/realkube"
)

// Patience is how long the package waits for what has to come.
const Patience = time.Minute

// plane is an API server with its store.
type plane interface {
	// gated and direct are configurations of clients that may do everything: one through
	// the gate, and one that no fault hits.
	gated() *rest.Config
	direct() *rest.Config
	gate() *faults.Gate
	// restart ends the API server in the middle of whatever it does, and starts it again
	// with the same data at the same address.
	restart(ctx context.Context) error
	// compact forgets the history of the store.
	compact(ctx context.Context) error
	stop()
}

// Cluster is a cluster of a test. Its methods are safe for concurrent use.
type Cluster struct {
	plane
	admin   kubernetes.Interface
	control *control.Manager
	log     *slog.Logger
	dir     string // to be removed at the end; empty if it is a test's

	mu    sync.Mutex
	nodes map[string]*kubelet.Kubelet
}

// Node says what a node is like; the zero value is a large one without a taint.
type Node struct {
	// Name defaults to node-1, node-2 and so on.
	Name     string
	Labels   map[string]string
	Taints   []corev1.Taint
	Capacity corev1.ResourceList
	// Pull says which images there are; see package kubelet for the default.
	Pull func(image string) error
	// Hollow, if set, runs no processes but only says so; see package kubelet.
	Hollow func(*corev1.Pod) time.Duration
}

// Start returns a cluster without nodes that ends with the test: a served one, or a real
// one if MILLRACE_TEST_K8S is set.
func Start(t testing.TB) *Cluster {
	t.Helper()
	if IsReal() {
		return Real(t)
	}
	return Served(t)
}

// Served returns a cluster with the API server of package apiserver.
func Served(t testing.TB) *Cluster {
	t.Helper()
	p, err := newServed()
	require.NoError(t, err)
	return assemble(t, p)
}

func assemble(t testing.TB, p plane) *Cluster {
	t.Helper()
	c, err := newCluster(t.Context(), p, logger(t), false)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Options say what a cluster is like that Open returns.
type Options struct {
	// Served has the API server of package apiserver instead of that of Kubernetes.
	Served bool
	// Bare leaves out the scheduler and the controllers: what is made stays as it is.
	Bare bool
}

// Open returns a cluster without nodes for a program that is no test. It lives until Close.
// Without Served, the error is realkube.ErrMissing where the API server was not built.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	p, dir, err := o.plane(ctx)
	if err != nil {
		return nil, err
	}
	c, err := newCluster(ctx, p, slog.New(slog.DiscardHandler), o.Bare)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	c.dir = dir
	return c, nil
}

// plane returns a plane, with the directory that it leaves.
func (o Options) plane(ctx context.Context) (plane, string, error) {
	if o.Served {
		p, err := newServed()
		return p, "", err
	}
	binaries, err := realkube.Find()
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, "", err
	}
	p, err := newReal(ctx, binaries, dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", err
	}
	return p, dir, nil
}

func newCluster(ctx context.Context, p plane, log *slog.Logger, bare bool) (*Cluster, error) {
	c := &Cluster{plane: p, log: log, nodes: map[string]*kubelet.Kubelet{}}
	var err error
	if c.admin, err = kubernetes.NewForConfig(p.direct()); err == nil && !bare {
		c.control, err = control.Start(ctx, c.admin, log)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return c, nil
}

// Close ends the cluster with its nodes. Clusters of tests are closed by themselves.
func (c *Cluster) Close() {
	c.mu.Lock()
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()
	for _, k := range nodes {
		k.Stop()
	}
	if c.control != nil {
		c.control.Stop()
	}
	c.stop()
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// logger shows the logs of a cluster's parts if MILLRACE_TEST_K8S_LOG is set.
func logger(t testing.TB) *slog.Logger {
	if os.Getenv("MILLRACE_TEST_K8S_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Config returns the configuration of a client that may do everything, through the gate: faults
// hit it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.gated()) }

// ConfigAs is Config for somebody else, such as "system:serviceaccount:millrace:worker", with
// the rights that RBAC gives to them. A served cluster gives everybody all rights.
func (c *Cluster) ConfigAs(user string, groups ...string) *rest.Config {
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// DirectConfig is Config without the gate: of a real API server it has the certificate that
// a kubeconfig needs to hand over a token.
func (c *Cluster) DirectConfig() *rest.Config { return rest.CopyConfig(c.direct()) }

// Client returns a client of Config.
func (c *Cluster) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	require.NoError(t, err)
	return client
}

// Admin is a client that may do everything and that no fault hits: the eyes and hands of a
// test.
func (c *Cluster) Admin() kubernetes.Interface { return c.admin }

// Gate is where faults are injected.
func (c *Cluster) Gate() *faults.Gate { return c.gate() }

// Restart ends the API server in the middle of whatever it does, and starts it again with
// the same data at the same address.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, c.restart(t.Context()))
}

// Compact forgets the history of the store, as etcd does every few minutes: a watch that
// is cut after it and goes on from before it gets 410 Gone.
func (c *Cluster) Compact(t testing.TB) {
	t.Helper()
	require.NoError(t, c.compact(t.Context()))
}

// AddNode starts a node. Where this machine does not let containers run, the test is skipped.
func (c *Cluster) AddNode(t testing.TB, n Node) *kubelet.Kubelet {
	t.Helper()
	k, err := c.Join(t.Context(), n, t.TempDir())
	if errors.Is(err, kubelet.ErrNoNamespaces) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(k.Stop)
	return k
}

// Join starts a node that has its files in dir, which has to be empty. It lives as long as
// the cluster.
func (c *Cluster) Join(ctx context.Context, n Node, dir string) (*kubelet.Kubelet, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Name == "" {
		n.Name = fmt.Sprintf("node-%d", len(c.nodes)+1)
	}
	k, err := kubelet.Start(ctx, kubelet.Config{
		Client: c.admin, Node: n.Name, Labels: n.Labels, Taints: n.Taints, Capacity: n.Capacity, Pull: n.Pull, Hollow: n.Hollow,
		Dir: dir, Logger: c.log,
	})
	if err != nil {
		return nil, err
	}
	c.nodes[n.Name] = k
	return k, nil
}

// LoseNode takes a node away as if its machine had lost its power, and writes what the node
// controller finds out after a while: it is not ready, and pods are to leave it.
func (c *Cluster) LoseNode(t testing.TB, name string) {
	t.Helper()
	c.node(t, name).Lose()
	require.Eventually(t, func() bool {
		node, err := c.admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		now := metav1.Now()
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].Status = corev1.ConditionUnknown
			node.Status.Conditions[i].Reason = "NodeStatusUnknown"
			node.Status.Conditions[i].Message = "Kubelet stopped posting node status."
			node.Status.Conditions[i].LastTransitionTime = now
		}
		node, err = c.admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		if err != nil {
			return false
		}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
		_, err = c.admin.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		return err == nil
	}, Patience, 20*time.Millisecond)
}

// DeleteNode takes a node away like LoseNode, and deletes it from the API as well.
func (c *Cluster) DeleteNode(t testing.TB, name string) {
	t.Helper()
	c.node(t, name).Lose()
	err := c.admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

func (c *Cluster) node(t testing.TB, name string) *kubelet.Kubelet {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.nodes, name)
	return c.nodes[name]
}

// Running returns the namespace/name of the pods of which a process runs, on all nodes,
// whatever the API says about them.
func (c *Cluster) Running() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, k := range c.nodes {
		names = append(names, k.Running()...)
	}
	return names
}

// namespaces numbers the namespaces of all tests of a process.
var namespaces atomic.Int64

// Namespace makes a namespace of the test's own.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	name := strings.ToLower(fmt.Sprintf("test-%d", namespaces.Add(1)))
	_, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

// SetQuota gives a namespace a quota and waits until it holds.
func (c *Cluster) SetQuota(t testing.TB, namespace string, hard corev1.ResourceList) {
	t.Helper()
	quotas := c.admin.CoreV1().ResourceQuotas(namespace)
	const name = "quota"
	quota, err := quotas.Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		quota, err = quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	} else if err == nil {
		patch := []byte(`[{"op":"replace","path":"/spec/hard","value":` + marshal(t, hard) + `}]`)
		quota, err = quotas.Patch(t.Context(), name, "application/json-patch+json", patch, metav1.PatchOptions{})
	}
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := quotas.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && marshal(t, now.Status.Hard) == marshal(t, quota.Spec.Hard)
	}, Patience, 10*time.Millisecond)
}
