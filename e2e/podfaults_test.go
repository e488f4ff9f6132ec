package e2e

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// podExecutions is how many executions TestPodsUnderFaults has; 0 is the full 500 where there
// is a real API server, and as many as it takes otherwise.
var podExecutions = flag.Int("pod-executions", 0, "executions that run in pods while everything breaks")

const (
	podExecutionsFull = 500
	podExecutionsFew  = 50
	// podsAtOnce is how many executions are under way at most, podsLeast how many when there
	// are few in all: enough for something to run whenever something happens.
	podsAtOnce, podsLeast = 60, 10
)

func howManyPods() int {
	switch {
	case *podExecutions > 0:
		return *podExecutions
	case kubetest.IsReal():
		return podExecutionsFull
	default:
		return podExecutionsFew
	}
}

// Executions run in pods while workers, the API server, the watch, the store of the cluster
// and nodes fail, answers are lost, tasks come twice and people delete pods. Each execution
// ends once, as it should, each run of it has one pod, each fact about a pod is told once,
// and nothing is left.
func TestPodsUnderFaults(t *testing.T) {
	t.Parallel()
	ground := newPodGround(t, 3)
	in := installEmbedded(t, append(quickLeases(), ground.settings()...)...)
	d := &podDrill{in: in, ground: ground, touched: map[string]bool{}, going: map[string]string{}, workers: map[string]*process{}}
	front := in.serve("front", frontRoles+",projections").ready()
	for _, name := range []string{"worker-1", "worker-2"} {
		d.hire(name)
	}
	for _, p := range d.workers {
		p.ready()
	}
	all := podPrograms(howManyPods())
	d.w = newWorkload(in, front.client())
	d.run(all)
	ground.judge(in, d.w.client, all, d.disrupted)
	for name, p := range d.workers {
		await(t, stuckAfter, name+" has told and forgotten everything", func() bool {
			_, metrics := p.get("/metrics")
			return strings.Contains(metrics, "\nmillrace_kubernetes_pods 0\n") && strings.Contains(metrics, "\nmillrace_kubernetes_facts_pending 0\n")
		})
	}
	again := in.texts(`SELECT cause || ' ' || count(*) FROM (SELECT DISTINCT subject, sequence, convert_from(value, 'UTF8')::jsonb->>'cause' AS cause
		FROM event_log WHERE type = 'millrace.execution.requeued.v1') AS requeued GROUP BY cause ORDER BY cause`)
	adopted := in.count(`SELECT count(*) FROM executions WHERE first_attempt > 0 AND first_attempt < attempt`)
	t.Logf("further attempts: %v; pods that were carried on with: %d", again, adopted)
	if len(all) >= podExecutionsFull { // of few none may have been there when a worker died
		assert.Positive(t, adopted)
	}
	in.stopAll()
}

// podDrill breaks things while executions run in pods.
type podDrill struct {
	in      *installation
	ground  *podGround
	w       *workload
	workers map[string]*process
	// touched are the executions whose pods somebody took away, and going is since when nodes
	// were going.
	touched map[string]bool
	going   map[string]string
}

// hire starts a worker.
func (d *podDrill) hire(name string) { d.workers[name] = d.in.worker(name, "20") }

// run submits programs as others end, and breaks one thing after the other meanwhile.
func (d *podDrill) run(all []*program) {
	hurts := d.hurts()
	waiting, atOnce := all, min(podsAtOnce, max(podsLeast, len(all)/6))
	for i, hurt := range append(hurts, hurt{"nothing", func() {}}) {
		enough := (i + 1) * len(all) / (len(hurts) + 1)
		d.w.until(fmt.Sprintf("%d have ended, before the next thing happens: %s", enough, hurt.what), func() bool {
			d.ground.look()
			if room := atOnce - len(d.w.open); room >= atOnce/4 && len(waiting) > 0 {
				n := min(room, len(waiting))
				d.w.submit(waiting[:n])
				waiting = waiting[n:]
			}
			return d.w.ended >= enough || len(waiting) == 0 && len(d.w.open) == 0
		})
		began := time.Now()
		hurt.do()
		d.in.t.Logf("%3d of %d ended: %s (%s)", d.w.ended, len(all), hurt.what, time.Since(began).Round(time.Millisecond))
		d.w.movedAt = time.Now()
	}
	d.w.until("all have ended", func() bool { d.ground.look(); return len(d.w.open) == 0 })
}

type hurt struct {
	what string
	do   func()
}

func (d *podDrill) hurts() []hurt {
	t, g := d.in.t, d.ground
	return []hurt{
		{"answers of the API server are lost", d.loseAnswers},
		{"worker-1 is killed", func() { d.kill("worker-1") }},
		{"the watch is cut", func() { g.Gate().CutWatches() }},
		{"the API server is busy and confused", d.confuse},
		{"the API server is restarted", func() { g.Restart(t) }},
		{"etcd is compacted under the watch", func() {
			g.Compact(t)
			g.Gate().CutStreams(nil)
		}},
		{"all tasks come again", func() { t.Logf("%d records of tasks", d.in.repeatTasks()) }},
		{"people delete pods", d.deletePods},
		{"both workers are killed while the API server is away", func() {
			g.Gate().Shut()
			d.kill("worker-1", "worker-2")
			g.Compact(t)
			g.Gate().Open()
		}},
		{"a node is deleted", func() {
			lost := g.shrink()
			d.touch(lost.Name())
			g.DeleteNode(t, lost.Name())
			g.grow()
		}},
		{"worker-2 is asked to stop", func() {
			d.workers["worker-2"].ready().stop()
			d.hire("worker-2")
		}},
		{"a node falls silent", func() {
			lost := g.shrink()
			d.touch(lost.Name())
			g.LoseNode(t, lost.Name())
			g.grow()
		}},
	}
}

// kill ends workers with SIGKILL and starts others by their names.
func (d *podDrill) kill(names ...string) {
	for _, name := range names {
		d.workers[name].sigkill()
	}
	for _, name := range names {
		d.hire(name)
	}
}

// loseAnswers has calls take effect whose answers do not arrive.
func (d *podDrill) loseAnswers() {
	for _, call := range []struct {
		verb, resource string
		times          int
	}{{"create", "pods", 5}, {"create", "configmaps", 2}, {"delete", "pods", 4}, {"patch", "pods", 2}, {"get", "pods", 2}} {
		d.ground.Gate().Inject(faults.Fault{Match: faults.On(call.verb, call.resource), Times: call.times, Lost: true})
	}
}

// confuse has calls refused that mean nothing by it.
func (d *podDrill) confuse() {
	gate := d.ground.Gate()
	gate.Inject(faults.Fault{Match: faults.On("create", "pods"), Times: 4, Answer: faults.Throttled(time.Second)})
	gate.Inject(faults.Fault{Match: faults.On("create", "pods"), Times: 3, Answer: faults.QuotaExceeded("work")})
	gate.Inject(faults.Fault{Match: faults.On("delete", "pods"), Times: 3, Answer: faults.Internal("etcdserver: request timed out")})
	gate.Inject(faults.Fault{Match: faults.On("list", "pods"), Times: 2, Answer: faults.Internal("etcdserver: leader changed")})
	gate.Inject(faults.Fault{Match: faults.On("log", "pods"), Times: 3, Dropped: true})
	gate.CutStreams(nil)
}

// deletePods deletes some pods whose programs run.
func (d *podDrill) deletePods() {
	t, deleted := d.in.t, 0
	for _, p := range d.ground.pods() {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || deleted == 5 {
			continue
		}
		execution, _ := runOf(p.Name)
		d.touched[execution] = true
		o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
		if err := d.ground.Admin().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, o); err == nil {
			deleted++
		}
	}
	t.Logf("%d pods", deleted)
}

// touch notes whose pods a node takes with it that is about to go: those that are on it, and
// those that may be given to it before everybody knows. What was made later goes elsewhere, or
// has the node in the ledger.
func (d *podDrill) touch(node string) {
	n := 0
	for _, p := range d.ground.pods() {
		if p.Spec.NodeName == node || p.Spec.NodeName == "" {
			n++
			execution, _ := runOf(p.Name)
			d.touched[execution] = true
		}
	}
	d.going[node] = d.in.texts(`SELECT now()::text`)[0]
	d.in.t.Logf("%d pods are on %s", n, node)
}

// disrupted says whether an execution may have lost a pod by what was done here.
func (d *podDrill) disrupted(execution string) bool {
	for node, since := range d.going {
		if d.in.count(`SELECT count(*) FROM execution_pods WHERE execution_id::text = $1 AND node = $2
				AND created_at >= $3::text::timestamptz - interval '2 s'`, execution, node, since) > 0 {
			return true
		}
	}
	return d.touched[execution]
}
