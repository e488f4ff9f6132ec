package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

// plant is Millrace as a whole beside a cluster with one hollow node.
type plant struct {
	*bench
	*fleet.Fleet
	cluster    *kubetest.Cluster
	kubeconfig string
	front      *fleet.Member
	api        *client.Client
}

// newPlant starts everything but workers. Pods run for life.
func (b *bench) newPlant(ctx context.Context, name string, life time.Duration) (*plant, error) {
	f, err := fleet.New(ctx, b.Run, name, b.binary, b.timeout)
	if err != nil {
		return nil, err
	}
	p := &plant{bench: b, Fleet: f}
	if err := p.open(ctx, life); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *plant) open(ctx context.Context, life time.Duration) error {
	if err := os.MkdirAll(filepath.Join(p.Fleet.Dir, "node"), 0o755); err != nil {
		return err
	}
	var err error
	if p.cluster, err = kubetest.Open(ctx, kubetest.Options{Served: p.served}); err != nil {
		return err
	}
	if err := makeNamespace(ctx, p.cluster.Admin()); err != nil {
		return err
	}
	large := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100000"), corev1.ResourceMemory: resource.MustParse("1000Ti"), corev1.ResourcePods: resource.MustParse("100000"),
	}
	if _, err := p.cluster.Join(ctx, kubetest.Node{Capacity: large, Hollow: func(*corev1.Pod) time.Duration { return life }}, filepath.Join(p.Fleet.Dir, "node")); err != nil {
		return err
	}
	if err := p.writeKubeconfig(); err != nil {
		return err
	}
	if p.front, err = p.Start(ctx, "front", "api,coordinator,relay,maintenance,projections"); err != nil {
		return err
	}
	p.api, err = client.New(client.Options{URL: p.front.Process.Address("api"), Timeout: time.Minute})
	return err
}

func (p *plant) writeKubeconfig() error {
	c := p.cluster.DirectConfig()
	k := clientcmdapi.NewConfig()
	k.Clusters["bench"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	k.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	k.CurrentContext = "bench"
	p.kubeconfig = filepath.Join(p.Fleet.Dir, "kubeconfig")
	return clientcmd.WriteToFile(*k, p.kubeconfig)
}

// close ends all processes, and the cluster.
func (p *plant) close() {
	if p.api != nil {
		p.api.Close()
	}
	p.Close()
	if p.cluster != nil {
		p.cluster.Close()
	}
}

// worker starts a worker of pods with so many slots.
func (p *plant) worker(ctx context.Context, name string, slots int) (*fleet.Member, error) {
	return p.Start(ctx, name, "worker", "worker.slots="+strconv.Itoa(slots), "worker.executors=kubernetes", "worker.id="+name,
		"kubernetes.kubeconfig="+p.kubeconfig, "kubernetes.namespace="+namespace, "kubernetes.capacity=auto",
		"kubernetes.qps="+strconv.Itoa(p.qps), "kubernetes.burst="+strconv.Itoa(p.qps))
}

// until waits until something has come true.
func (p *plant) until(ctx context.Context, what string, ok func() (bool, error)) error {
	return fleet.Until(ctx, p.timeout, 20*time.Millisecond, what, ok)
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
