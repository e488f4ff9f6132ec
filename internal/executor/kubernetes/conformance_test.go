package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/kubelet"
)

// programVar is set for this test program when it is the program of a pod.
const programVar = "KUBERNETES_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		program()
		return
	}
	goleak.VerifyTestMain(m)
}

// program is what pods of the tests do that a shell does not do well.
func program() {
	if len(os.Args) > 1 {
		n, _ := strconv.Atoi(os.Args[1])
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i)
		}
		_, _ = os.Stdout.Write(data)
	}
}

func shell(script string) json.RawMessage {
	return spec(map[string]any{"command": []string{"sh", "-c", script}})
}

func spec(members map[string]any) json.RawMessage {
	text, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return text
}

func flood(n int) json.RawMessage {
	return spec(map[string]any{
		"command": []string{kubelet.ProgramPath, strconv.Itoa(n)}, "env": map[string]string{programVar: "1"},
	})
}

const (
	beat     = `trap 'exit 0' TERM; while :; do echo beat; sleep 0.01; done`
	stubborn = `trap '' TERM; while :; do echo beat; sleep 0.01; done`
)

// side is a cluster as executortest.Side.
type side struct {
	*kubetest.Cluster
	t         *testing.T
	namespace string
	// account is what the clients of workers are made from: on a real API server they have
	// the rights that the manifests give to them, and no others.
	account  *rest.Config
	node     *kubelet.Kubelet
	options  []func(*kubernetes.Config)
	settings kubernetes.Settings
	book     *book
}

func newSide(t *testing.T, options ...func(*kubernetes.Config)) *side {
	t.Helper()
	c := kubetest.Start(t)
	s := &side{Cluster: c, t: t, node: c.AddNode(t, kubetest.Node{}), options: options, book: newBook()}
	s.namespace, s.account = c.Deploy(t)
	s.settings = kubernetes.Settings{
		Installation: "test", Namespace: s.namespace, DefaultImage: "busybox", Images: []string{"**"}, Grace: time.Second,
	}
	return s
}

// worker returns an executor that serves, and what ends its worker.
func (s *side) worker(options ...func(*kubernetes.Config)) (*kubernetes.Executor, func()) {
	return s.workerOf(s.t, options...)
}

// workerOf is worker for a test that shares the side with others.
func (s *side) workerOf(t *testing.T, options ...func(*kubernetes.Config)) (*kubernetes.Executor, func()) {
	t.Helper()
	return startWorker(t, s.account, s.settings, s.book, append(slices.Clone(s.options), options...)...)
}

// Worker implements executortest.Side.
func (s *side) Worker() (executor.Executor, func()) { return s.worker() }

// Running implements executortest.Side.
func (s *side) Running(execution string) []int {
	running := s.Cluster.Running()
	var attempts []int
	for n := range 10 {
		if slices.Contains(running, s.namespace+"/"+kubernetes.Name(execution, n)) {
			attempts = append(attempts, n)
		}
	}
	return attempts
}

// Started implements executortest.Side.
func (s *side) Started(execution string) int {
	starts := 0
	for n := range 10 {
		starts += s.node.Starts(s.namespace, kubernetes.Name(execution, n))
	}
	return starts
}

// Kept implements executortest.Side.
func (s *side) Kept(execution string) int {
	o := metav1.ListOptions{LabelSelector: kubernetes.ExecutionSelector(s.settings.Installation, execution).String()}
	pods, err := s.Admin().CoreV1().Pods(s.namespace).List(s.t.Context(), o)
	require.NoError(s.t, err)
	configs, err := s.Admin().CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), o)
	require.NoError(s.t, err)
	return len(pods.Items) + len(configs.Items)
}

// Until implements executortest.Side.
func (s *side) Until(string) time.Time { return time.Time{} }

// Overlapped implements executortest.Side.
func (s *side) Overlapped() []string { return nil }

// Disturb implements executortest.Side.
func (s *side) Disturb(n int) {
	if n == 0 {
		return
	}
	s.Gate().Inject(faults.Fault{Times: n, Lost: true, Match: func(c faults.Call) bool {
		return c.Verb == "create" || c.Verb == "delete" || c.Verb == "patch" || c.Verb == "log"
	}})
}

// mortal is a transport that is cut when its worker dies.
type mortal struct {
	next http.RoundTripper
	dead atomic.Bool
}

var errDead = errors.New("the worker is dead")

// RoundTrip implements http.RoundTripper.
func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.next.RoundTrip(r)
}

// startWorker returns an executor as one worker has it, and what kills that worker: from
// then on nothing of it reaches the cluster.
func startWorker(t *testing.T, account *rest.Config, settings kubernetes.Settings, ledger *book, options ...func(*kubernetes.Config)) (*kubernetes.Executor, func()) {
	t.Helper()
	life := &mortal{}
	own := rest.CopyConfig(account)
	own.QPS, own.Burst = 1000, 1000
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		life.next = next
		return life
	})
	client, err := clientset.NewForConfig(own)
	require.NoError(t, err)
	config := kubernetes.Config{Installation: settings.Installation, RetryMax: 20 * time.Millisecond}
	deps := dependencies{client: client, ledger: ledger}
	for _, option := range options {
		option(&config)
	}
	e := deps.executor(t, settings, config)
	stop := serve(t, e)
	return e, sync.OnceFunc(func() {
		life.dead.Store(true)
		stop()
	})
}

func TestThePodsOfAClusterKeepTheContract(t *testing.T) {
	subject := subject()
	shared := newSide(t, splitStreams)
	subject.New = func(t *testing.T) executor.Executor {
		e, _ := shared.workerOf(t)
		return settling{e}
	}
	executortest.RunRemote(t, executortest.Remote{
		Subject: subject, CarriesOn: true,
		Side: func(t *testing.T) executortest.Side { return newSide(t, splitStreams) },
	})
}

// Without the feature gate for it, Kubernetes gives both streams as one.
func TestThePodsOfAClusterKeepTheContractWithMergedStreams(t *testing.T) {
	subject := subject()
	shared := newSide(t)
	subject.Merged = true
	subject.New = func(t *testing.T) executor.Executor {
		e, _ := shared.workerOf(t)
		return settling{e}
	}
	executortest.Run(t, subject)
}

func splitStreams(c *kubernetes.Config) { c.SplitStreams = true }

func subject() executortest.Subject {
	return executortest.Subject{
		Succeed: shell("echo one; echo three >&2; echo two"),
		Fail:    shell("exit 3"), FailReason: "exit_code",
		Crash: shell("sh -c 'kill -KILL $$'; exit $?"), CrashReason: "signal",
		Missing: spec(map[string]any{"image": "missing", "command": []string{"true"}}), MissingReason: kubernetes.ReasonImageNotFound,
		Invalid: []json.RawMessage{[]byte(`{"command":[]}`), []byte(`{"command":"true"}`), []byte(`{"image":"a b","command":["true"]}`)},
		Flood:   flood, Environment: shell("env"),
		Beat: shell(beat), Stubborn: shell(stubborn),
	}
}

// settling settles each attempt, as the worker does once it has recorded the result.
type settling struct{ *kubernetes.Executor }

func (s settling) Run(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) (executor.Result, error) {
	result, err := s.Executor.Run(ctx, task, lease, sink)
	if err == nil && result.Outcome != executor.Abandoned {
		s.Settle(context.WithoutCancel(ctx), task)
	}
	return result, err
}
