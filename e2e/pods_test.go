package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/kubelet"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/topics"
)

// podGround is a cluster for the pods of an installation. Its API server is a served one,
// or that of Kubernetes itself if MILLRACE_TEST_K8S is set. Workers come through its gate,
// where faults hit them; the test itself does not.
type podGround struct {
	*kubetest.Cluster
	t          *testing.T
	namespace  string
	kubeconfig string
	// nodes are those that there are, and lost those that were taken away.
	nodes, lost []*kubelet.Kubelet
	// before is what ran when Running was looked at last.
	before []string
}

// newPodGround makes a cluster with so many nodes.
func newPodGround(t *testing.T, nodes int) *podGround {
	t.Helper()
	realkafka.SkipOthers(t)
	cluster := kubetest.Start(t)
	g := &podGround{Cluster: cluster, t: t, namespace: cluster.Namespace(t)}
	for range nodes {
		g.grow()
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: g.address()}
	k.AuthInfos["test"] = &clientcmdapi.AuthInfo{}
	k.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	k.CurrentContext = "test"
	g.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*k, g.kubeconfig))
	return g
}

// address is where workers find the API. Clients hand over no token where there is no TLS, as
// at the gate: whoever comes is let in.
func (g *podGround) address() string {
	c := g.Config()
	if c.BearerToken == "" {
		return c.Host
	}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+c.BearerToken)
		g.Gate().ServeHTTP(w, r)
	}))
	g.t.Cleanup(func() {
		door.CloseClientConnections()
		door.Close()
	})
	return door.URL
}

// podInstallation is what the pods of the tests' installations are known by in their cluster.
const podInstallation = "e2e"

// settings are those of workers that make pods there.
func (g *podGround) settings() []string {
	return []string{
		"worker.executors=kubernetes", "kubernetes.installation=" + podInstallation, "kubernetes.kubeconfig=" + g.kubeconfig, "kubernetes.namespace=" + g.namespace,
		"kubernetes.images=**", "kubernetes.split_streams=true", "kubernetes.grace=1s", "kubernetes.qps=1000", "kubernetes.burst=1000",
		"kubernetes.patience.node=2s",
	}
}

// grow adds a node.
func (g *podGround) grow() { g.nodes = append(g.nodes, g.AddNode(g.t, kubetest.Node{})) }

// shrink takes the first node, to which pods go first, out of those that count.
func (g *podGround) shrink() *kubelet.Kubelet {
	first := g.nodes[0]
	g.nodes, g.lost = g.nodes[1:], append(g.lost, first)
	return first
}

// pods returns the pods that there are.
func (g *podGround) pods() []corev1.Pod {
	g.t.Helper()
	list, err := g.Admin().CoreV1().Pods(g.namespace).List(g.t.Context(), metav1.ListOptions{})
	require.NoError(g.t, err)
	return list.Items
}

// runOf cuts the name of a pod, with its namespace or without, into the execution and the
// attempt with which its run began.
func runOf(pod string) (execution, first string) {
	name := pod[strings.LastIndex(pod, "/")+1:]
	cut := strings.LastIndex(name, "-")
	return strings.TrimPrefix(name[:cut], "millrace-"), name[cut+1:]
}

// look fails the test if two pods of one execution run. What runs is not seen all at once,
// so both have to be seen twice: then they ran between the two looks.
func (g *podGround) look() {
	g.t.Helper()
	now := g.Running()
	of := map[string]string{}
	for _, name := range now {
		if !slices.Contains(g.before, name) {
			continue
		}
		execution, _ := runOf(name)
		if other, twice := of[execution]; twice {
			g.t.Errorf("%s and %s run at once", other, name)
		}
		of[execution] = name
	}
	g.before = now
}

// keptWithin is how long it may take until the keeper of pods has made good what dead workers
// left: it looks every half a minute, tells with the next look what it has seen to go, and
// may have to wait for the lease of another one.
const keptWithin = 3 * time.Minute

// empty waits until nothing is left in the cluster.
func (g *podGround) empty() {
	g.t.Helper()
	await(g.t, keptWithin, "no pod and no config map is left", func() bool {
		pods, err := g.Admin().CoreV1().Pods(g.namespace).List(g.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		maps, err := g.Admin().CoreV1().ConfigMaps(g.namespace).List(g.t.Context(), metav1.ListOptions{LabelSelector: kubernetes.ManagedByLabel})
		return err == nil && len(pods.Items) == 0 && len(maps.Items) == 0
	})
	assert.Empty(g.t, g.Running(), "processes of pods that are gone")
}

// once checks that the pod of each run of the programs was started once at most, whoever
// deleted it. A pod whose worker dies before anybody knows of it, and that somebody deletes
// before another worker comes, is made again, so those that were disrupted are not counted.
func (g *podGround) once(in *installation, programs []*program, disrupted func(execution string) bool) {
	g.t.Helper()
	starts, alone := 0, 0
	for _, p := range programs {
		if disrupted(p.id) {
			continue
		}
		alone++
		for first := range maxRuns {
			name, n := kubernetes.Name(p.id, first+1), 0
			for _, node := range slices.Concat(g.nodes, g.lost) {
				n += node.Starts(g.namespace, name)
			}
			starts += n
			assert.LessOrEqual(g.t, n, 1, "starts of the pod %s of %s", name, p.kind)
		}
	}
	g.t.Logf("%d executions, %d of which were left alone and had %d pods", len(programs), alone, starts)
	assert.GreaterOrEqual(g.t, starts, alone/2, "most programs run")
}

// maxRuns is how many runs of an execution are looked for.
const maxRuns = 30

// tell logs what there is in the cluster.
func (g *podGround) tell() {
	list, err := g.Admin().CoreV1().Pods(g.namespace).List(context.WithoutCancel(g.t.Context()), metav1.ListOptions{})
	if err != nil {
		g.t.Logf("pods: %v", err)
		return
	}
	for i := range list.Items {
		p := &list.Items[i]
		g.t.Logf("pod %s on %q is %s, deleted %v, attempt %s: %s %s", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp,
			p.Annotations[kubernetes.AttemptAnnotation], p.Status.Reason, kubernetes.Waiting(p))
	}
	g.t.Logf("processes: %s", strings.Join(g.Running(), " "))
}

// disruptions are what happens to pods that is not their programs' fault.
func disruptions() []string {
	return []string{kubernetes.ReasonPodDeleted, kubernetes.ReasonNodeLost, kubernetes.ReasonEvicted}
}

// inPods returns the programs as they are, to be run in pods, and again when one is lost that
// is not to blame for it.
func inPods(all []*program) []*program {
	for _, p := range all {
		p.request.Executor = "kubernetes"
		again := client.Retry{MaxAttempts: 20, Backoff: "100ms", RetryOn: disruptions()}
		if p.want.failures > 0 {
			again.RetryOn = append(again.RetryOn, "exit_code")
		}
		p.request.Retry = &again
	}
	return all
}

// nowhere is where programs leave their traces that nobody reads.
const nowhere = "/dev/null"

// podPrograms makes a mix of n programs, or of a few more when n is small: those that processes are tested
// with, and some that need what only pods have.
func podPrograms(n int) []*program {
	all := programs(n*9/10, nowhere)
	for i := range max(5, n-len(all)) {
		p := scripted(i)
		if i%5 == 4 {
			p = run(client.ProcessSpec{Command: []string{"true"}, Image: "missing/image"},
				want{state: client.Failed, reason: kubernetes.ReasonImageNotFound, stdout: fixed("")})
			p.kind = "missing image"
		}
		p.request.IdempotencyKey = fmt.Sprintf("extra-%d", i)
		all = slices.Insert(all, min(len(all), 8*i+3), &p)
	}
	return inPods(all)
}

// scripted is a program that reaches its pod by way of a ConfigMap, and goes on for a while.
func scripted(n int) program {
	text := fmt.Sprintf("file %d\n", n)
	p := run(client.ProcessSpec{
		Script: "#!/bin/sh -e\ncat part/text; sleep 1; echo \"$MILLRACE_ATTEMPT\"; cat >&2",
		Files:  map[string]client.File{"part/text": client.File(text)}, Stdin: "input\n",
	}, want{state: client.Completed, stderr: "input\n", stdout: func(attempt int) []byte { return fmt.Appendf(nil, "%s%d\n", text, attempt) }})
	p.kind = "script and files"
	return p
}

// judge checks what has become of programs and of their pods. Nothing may be under way.
func (g *podGround) judge(in *installation, api *client.Client, all []*program, disrupted func(execution string) bool) {
	t := g.t
	t.Helper()
	g.empty()
	await(t, keptWithin, "all pods are told to be gone", func() bool { return in.count(`SELECT count(*) FROM execution_pods WHERE standing`) == 0 })
	in.audit(all)
	in.verified()
	g.once(in, all, disrupted)
	g.events(in, disrupted)
	for _, p := range all {
		g.result(in, api, p, disrupted(p.id))
	}
}

// result checks the end of one program.
func (g *podGround) result(in *installation, api *client.Client, p *program, disrupted bool) {
	t, name := g.t, p.kind+" "+p.id
	t.Helper()
	e, err := api.Get(t.Context(), p.id)
	require.NoError(t, err)
	require.NotNil(t, e.Result, name)
	assert.Equal(t, p.want.state, e.State, "state of %s: %s %s", name, e.Result.Reason, e.Result.Message)
	assert.Equal(t, p.want.reason, e.Result.Reason, "reason of %s", name)
	assert.Equal(t, p.want.limit, e.Result.Limit, "limit of %s", name)
	causes := in.requeueCauses(p.id)
	failures := 0
	for _, c := range causes {
		switch cause, reason, _ := strings.Cut(c, " "); {
		case cause != topics.RequeuedFailed:
		case slices.Contains(disruptions(), reason):
			assert.True(t, disrupted, "%s lost its pod, which nobody has touched: %s\n%s", name, reason, in.story(p.id))
		default:
			failures++
		}
	}
	assert.LessOrEqual(t, failures, p.want.failures, "failed attempts of %s: %v", name, causes)
	if p.want.state == client.Completed && !disrupted {
		assert.Equal(t, p.want.failures, failures, "failed attempts of %s: %v", name, causes)
	}
	if p.cancel == "" && e.Attempt > 0 {
		assert.Equal(t, 1+len(causes), e.Attempt, "attempts of %s: one, and one for each requeue: %v", name, causes)
	}
	// A program knows the attempt with which its run began.
	e.Attempt = max(in.count(`SELECT coalesce(nullif(first_attempt, 0), attempt) FROM executions WHERE id = $1`, p.id), 0)
	if disrupted && g.outputLost(api, p) {
		t.Logf("%s has ended, and its output was lost with its node", name)
		return
	}
	in.outputs(api, p, e)
}

// outputLost says whether a program's output says of itself that it is not whole: that of a
// program whose node went between its end and the reading of its last words.
func (g *podGround) outputLost(api *client.Client, p *program) bool {
	var stderr bytes.Buffer
	_, err := api.Output(g.t.Context(), p.id, "stderr", 0, &stderr)
	return err == nil && strings.Contains(stderr.String(), "millrace: part of the output is missing")
}

// story tells in lines what happened to an execution, and when that was recorded.
func (in *installation) story(id string) string {
	in.t.Helper()
	return strings.Join(in.texts(`SELECT DISTINCT ON (sequence) sequence || ' ' || recorded_at || ' ' || type || ' ' || convert_from(value, 'UTF8')
		FROM event_log WHERE subject = '`+id+`' ORDER BY sequence`), "\n")
}

// requeueCauses returns why each further attempt came about, with the reason of a failure.
func (in *installation) requeueCauses(id string) []string {
	in.t.Helper()
	return in.texts(`SELECT value->>'cause' || ' ' || coalesce(value->'failure'->>'reason', '') FROM (
			SELECT DISTINCT ON (sequence) sequence, convert_from(value, 'UTF8')::jsonb AS value FROM event_log
			WHERE type = 'millrace.execution.requeued.v1' AND subject = '` + id + `') AS requeued ORDER BY sequence`)
}

// events checks what was told of pods: each fact once, in the order of their phases, from
// the first to the last.
func (g *podGround) events(in *installation, disrupted func(execution string) bool) {
	t := g.t
	t.Helper()
	const told = `WITH told AS (SELECT DISTINCT ON (event_id) type, sequence, event_id, subject, convert_from(value, 'UTF8')::jsonb->>'pod_id' AS pod,
			CASE split_part(type, '.', 3) WHEN 'created' THEN 1 WHEN 'scheduled' THEN 2 WHEN 'running' THEN 3 WHEN 'deleted' THEN 5 ELSE 4 END AS place
		FROM event_log WHERE type LIKE 'millrace.pod.%') `
	for _, check := range []struct{ what, sql string }{
		{"facts that were told twice, or a pod that succeeded and failed", told + `SELECT pod || ' ' || place FROM told GROUP BY pod, place HAVING count(*) > 1`},
		{"facts out of order", told + `SELECT a.pod || ' ' || a.type || ' before ' || b.type FROM told a JOIN told b USING (pod)
			WHERE a.sequence < b.sequence AND a.place > b.place`},
		{"pods without a beginning or an end", told + `SELECT pod FROM told GROUP BY pod HAVING min(place) <> 1 OR max(place) <> 5`},
		{"pods of two executions", told + `SELECT pod FROM told GROUP BY pod HAVING count(DISTINCT subject) > 1`},
		{"executions with two pods that ran for one run", `SELECT execution_id::text FROM execution_pods
			WHERE uid IN (` + told + `SELECT pod FROM told WHERE place = 3) GROUP BY execution_id, first_attempt HAVING count(*) > 1`},
		{"executions that completed without a pod that succeeded", told + `SELECT id::text FROM executions WHERE state = 'COMPLETED' AND id::text NOT IN (
			SELECT subject FROM told WHERE type = 'millrace.pod.succeeded.v1')`},
	} {
		assert.Empty(t, slices.DeleteFunc(in.texts(check.sql), disrupted), check.what)
	}
}

// repeatTasks publishes all records again that there are of tasks, as a relay does that was
// killed before it noted what it had sent.
func (in *installation) repeatTasks() int {
	t := in.t
	t.Helper()
	topic := configs.Default().TopicNaming().Physical(topics.ExecutionTasks)
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer kafka.Close()
	ends, err := kadm.NewClient(kafka).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	left := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset > 0 })
	var all []*kgo.Record
	ctx, cancel := context.WithTimeout(t.Context(), stuckAfter)
	defer cancel()
	for slices.Contains(slices.Collect(maps.Values(left)), true) {
		fetches := kafka.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "reading the tasks again")
		fetches.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(topic, r.Partition)
			if r.Offset < end.Offset {
				all = append(all, &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers})
			}
			if r.Offset >= end.Offset-1 {
				left[r.Partition] = false
			}
		})
	}
	require.NoError(t, kafka.ProduceSync(ctx, all...).FirstErr())
	return len(all)
}

// orphan makes a pod that nobody wants, as one would be whose execution is long forgotten.
func (g *podGround) orphan() {
	t := g.t
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "millrace-orphan-1", Labels: map[string]string{
				kubernetes.ManagedByLabel: kubernetes.ManagedBy, kubernetes.InstallationLabel: podInstallation, kubernetes.FirstLabel: "1",
			},
			Annotations: map[string]string{kubernetes.ExecutionAnnotation: "orphan", kubernetes.AttemptAnnotation: "1"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: kubernetes.WorkContainer, Image: "busybox", Command: []string{"sleep", "3600"}}},
		},
	}
	_, err := g.Admin().CoreV1().Pods(g.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}
