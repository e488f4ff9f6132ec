// Package kubelet is a node for tests: it takes the pods of its node from any API server
// and runs their containers as real processes of this machine.
//
// # How containers run
//
// Each container has mount and process namespaces of its own: it sees a root that is built
// of this machine's programs (read only), the volumes of the pod at their paths, an empty
// /tmp, /proc and a small /dev. Its command is process 1 there, with all that this means:
// a signal that it does not handle is ignored, and nothing that it has started outlives
// it. Where the pod shares its process namespace, a process of the kubelet's is the first
// one instead; the containers of a pod do not see each other all the same. As root it runs with the uid and gid of the pod's spec; as an ordinary user it runs in
// a user namespace, in which it is shown as root. There is no image, no network of its own
// and no cgroup: every image is this machine's programs and Config.Program at ProgramPath,
// and running out of memory is by command (OOMKill).
//
// # Images
//
// Config.Pull says which images there are. By default all of them, except those whose
// name has a part "missing", or "unreachable" for a registry that does not answer: these fail
// with ErrImagePull and ImagePullBackOff.
//
// # Crash behaviour
//
// Containers die with this process. A kubelet that stops, or is lost, leaves the API as it
// is: nothing is told of what happens then, as when a machine loses its power.
package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Config says what a node is like.
type Config struct {
	// Client is for an API server on which the kubelet may do everything; required.
	Client kubernetes.Interface
	// Node is the name of the node; required.
	Node   string
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity defaults to 64 CPUs, 64 GiB of memory and 1000 pods.
	Capacity corev1.ResourceList
	// Dir is where the pods have their files; required. It must be empty.
	Dir string
	// Pull says whether there is an image; see the package's comment for the default.
	Pull func(image string) error
	// Hollow, if set, runs no processes: a pod is told to run for as long as Hollow says, and
	// then to have ended well. That is for thousands of pods at once.
	Hollow func(*corev1.Pod) time.Duration
	// Retry is how long it takes to try a pull, or a missing config map, again. Defaults
	// to 200 ms.
	Retry time.Duration
	// Program is shown to containers at ProgramPath. Defaults to the program that runs.
	Program string
	// Logger defaults to no logs.
	Logger *slog.Logger
}

// Kubelet is a node that runs. Its methods are safe for concurrent use.
type Kubelet struct {
	config Config
	tools  tools
	server *httptest.Server
	stop   context.CancelFunc
	ctx    context.Context
	spawns chan func()
	tasks  sync.WaitGroup // of pods
	loops  sync.WaitGroup

	mu       sync.Mutex
	pods     map[types.UID]*pod
	starts   map[string]int // by namespace/name
	vanished bool
}

// Start registers the node and begins to run its pods, until Stop.
func Start(ctx context.Context, c Config) (*Kubelet, error) {
	if c.Pull == nil {
		c.Pull = pullDefault
	}
	c.Retry = cmp.Or(c.Retry, 200*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Program == "" {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start kubelet: %w", err)
		}
		c.Program = program
	}
	found, err := findTools()
	if err != nil {
		return nil, fmt.Errorf("start kubelet: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &Kubelet{
		config: c, tools: found, ctx: life, stop: stop, spawns: make(chan func()),
		pods: map[types.UID]*pod{}, starts: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	k.server = httptest.NewUnstartedServer(mux)
	k.server.Config.ErrorLog = slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug)
	k.server.StartTLS()
	k.loops.Go(k.spawner)
	if err := errors.Join(k.probe(), k.register(ctx)); err != nil {
		k.Stop()
		return nil, fmt.Errorf("start kubelet: %w", err)
	}
	k.loops.Go(k.watch)
	return k, nil
}

// pullDefault finds all images but those that are named missing or unreachable.
func pullDefault(image string) error {
	name, _, _ := strings.Cut(image, "@")
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == ':' || r == '-' }) {
		switch part {
		case "unreachable":
			return fmt.Errorf("failed to pull and unpack image %q: failed to resolve reference %q: dial tcp: i/o timeout", image, image)
		case "missing":
			return fmt.Errorf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", image, image, image)
		}
	}
	return nil
}

// ErrNoNamespaces is the error of Start where processes cannot have namespaces of their own.
var ErrNoNamespaces = errors.New("containers need root, or user namespaces (sysctl user.max_user_namespaces and, on Ubuntu, kernel.apparmor_restrict_unprivileged_userns)")

// probe finds out whether containers can run at all.
func (k *Kubelet) probe() error {
	if k.config.Hollow != nil {
		return nil
	}
	attributes := k.attributes()
	if attributes == nil {
		return fmt.Errorf("%w; they run on Linux alone", ErrNoNamespaces)
	}
	cmd := exec.Command(k.tools.sh, "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /proc")
	cmd.SysProcAttr = attributes
	if err := k.spawn(cmd); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: mount: %w", ErrNoNamespaces, err)
	}
	return nil
}

// register writes the node.
func (k *Kubelet) register(ctx context.Context) error {
	capacity := k.config.Capacity
	if capacity == nil {
		capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"),
			corev1.ResourcePods: resource.MustParse("1000"),
		}
	}
	host, port, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	labels := map[string]string{corev1.LabelHostname: k.config.Node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH}
	maps.Copy(labels, k.config.Labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.config.Node, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: k.config.Taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Phase: corev1.NodeRunning,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: host}, {Type: corev1.NodeHostName, Address: k.config.Node},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(number)}},
			NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: runtime.GOARCH},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
	nodes := k.config.Client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": node.Status})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// Name is the name of the node.
func (k *Kubelet) Name() string { return k.config.Node }

// spawner starts processes from one thread that lives as long as the kubelet: they are
// killed when that thread ends.
func (k *Kubelet) spawner() {
	runtime.LockOSThread()
	for {
		select {
		case f := <-k.spawns:
			f()
		case <-k.ctx.Done():
			k.tasks.Wait() // the thread goes last
			return
		}
	}
}

// spawn starts a process.
func (k *Kubelet) spawn(cmd *exec.Cmd) error {
	err := make(chan error, 1)
	select {
	case k.spawns <- func() { err <- cmd.Start() }:
		return <-err
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
}

// watch follows the pods of the node.
func (k *Kubelet) watch() {
	selector := fields.OneTermEqualSelector("spec.nodeName", k.config.Node)
	source := cache.NewListWatchFromClient(k.config.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, selector)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(source, k.config.Client), ObjectType: new(corev1.Pod),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.told(o) },
			UpdateFunc: func(_, o any) { k.told(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				k.removed(o)
			},
		},
	})
	informer.RunWithContext(k.ctx)
}

func (k *Kubelet) told(o any) {
	spec, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.vanished || k.ctx.Err() != nil {
		return
	}
	p := k.pods[spec.UID]
	if p == nil {
		p = newPod(k, spec)
		k.pods[spec.UID] = p
		k.tasks.Go(p.run)
	}
	p.update(spec)
}

func (k *Kubelet) removed(o any) {
	spec, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[spec.UID]; p != nil && !k.vanished {
		p.gone()
	}
}

// forget is what a pod calls when nothing of it is left.
func (k *Kubelet) forget(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.uid)
}

// find returns the pod of a name, the youngest if there are several.
func (k *Kubelet) find(namespace, name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found *pod
	for _, p := range k.pods {
		if p.namespace == namespace && p.podName == name && (found == nil || p.number > found.number) {
			found = p
		}
	}
	return found
}

// Running returns the namespace/name of the pods of which a process runs, whatever the API
// says about them.
func (k *Kubelet) Running() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, p := range k.pods {
		if p.alive() {
			names = append(names, p.name())
		}
	}
	slices.Sort(names)
	return names
}

// Starts is how often a pod of that name was started on the node: more than once means
// that there were several, one after the other.
func (k *Kubelet) Starts(namespace, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts[namespace+"/"+name]
}

func (k *Kubelet) countStart(p *pod) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starts[p.name()]++
	total := 0
	for _, n := range k.starts {
		total += n
	}
	return total
}

// ErrNoPod is the error for a pod that is not on the node.
var ErrNoPod = errors.New("no such pod on this node")

// OOMKill kills a pod's containers as the kernel does when they use too much memory.
func (k *Kubelet) OOMKill(namespace, name string) error {
	p := k.find(namespace, name)
	if p == nil {
		return fmt.Errorf("kill %s/%s: %w", namespace, name, ErrNoPod)
	}
	p.kill(syscall.SIGKILL, "OOMKilled")
	return nil
}

// Evict ends a pod because the node is short of something: it fails with the reason
// Evicted and stays in the API.
func (k *Kubelet) Evict(namespace, name, message string) error {
	p := k.find(namespace, name)
	if p == nil {
		return fmt.Errorf("evict %s/%s: %w", namespace, name, ErrNoPod)
	}
	p.end(&verdict{reason: "Evicted", message: message, disruption: "TerminationByKubelet"})
	return nil
}

// Lose takes the node away as if its machine had lost its power: its processes die, its
// logs are gone, and the API is told nothing. Stop has to be called nevertheless.
func (k *Kubelet) Lose() {
	k.mu.Lock()
	k.vanished = true
	pods := slices.Collect(maps.Values(k.pods))
	k.mu.Unlock()
	k.stop()
	for _, p := range pods {
		p.kill(syscall.SIGKILL, "")
	}
	k.server.CloseClientConnections()
	k.tasks.Wait()
}

func (k *Kubelet) lost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.vanished
}

// Stop ends all processes and returns when they are gone. The API is told nothing.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	k.vanished = true
	pods := slices.Collect(maps.Values(k.pods))
	k.mu.Unlock()
	k.stop()
	for _, p := range pods {
		p.kill(syscall.SIGKILL, "")
	}
	k.tasks.Wait()
	k.loops.Wait()
	k.server.CloseClientConnections()
	k.server.Close()
	entries, _ := os.ReadDir(k.config.Dir)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(k.config.Dir, e.Name()))
	}
}
