package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

func ofPods(point crash.Point) bool { return strings.HasPrefix(point.Name, "pods.") }

// podPoints are those at which a worker of pods is killed: its own, and, where there is
// the time for a real API server, those that all workers pass.
func podPoints() []crash.Point {
	return slices.DeleteFunc(selected(crash.Points()), func(p crash.Point) bool {
		if kubetest.IsReal() && strings.HasPrefix(p.Name, "worker.") {
			return p.Name == "worker.offered" // it takes a worker of another class
		}
		return !ofPods(p)
	})
}

// The worker is killed at each point between two things that it does about a pod. The
// attempt that follows carries on with what is there: no program is started twice, its
// output is whole, and in the end nothing is left in the cluster.
func TestPodCrashPoints(t *testing.T) {
	t.Parallel()
	ground := newPodGround(t, 1)
	in := installEmbedded(t, append(crashSettings(), ground.settings()...)...)
	newPodCrasher(in, ground).each(podPoints())
}

// podCrasher is a crasher whose workers run pods. The cluster lives on.
type podCrasher struct {
	*crasher
	ground *podGround
	done   []*program
}

func newPodCrasher(in *installation, g *podGround) *podCrasher {
	c := &podCrasher{crasher: crasherOf(in), ground: g}
	c.serve(backRoles)
	return c
}

func (c *podCrasher) each(points []crash.Point) {
	for _, point := range points {
		c.crash(point)
	}
	// Everything is judged at the end once more, with what the keeper has made good.
	c.ground.judge(c.in, c.front.client(), c.done, nobody)
	c.in.stopAll()
}

// crash arms a point, has the worker pass it, and judges what has become of the programs
// after a restart.
func (c *podCrasher) crash(point crash.Point) {
	t, in := c.in.t, c.in
	defer c.blame(point.Name)
	began := time.Now()
	if !c.later(point) {
		c.arm(point.Name, 1)
	}
	all := c.workload(point)
	w := newWorkload(in, c.front.client())
	w.submit(all)
	defer func() { c.tellOf(all) }()
	all = append(all, c.provoke(point, w)...)
	died := c.awaitDeath(point)
	reached := time.Since(began)
	in.holds()

	c.bury(true)
	c.restart(died)
	w.movedAt = time.Now()
	w.until("all have ended", func() bool { c.ground.look(); return len(w.open) == 0 })
	c.done = append(c.done, all...)
	c.ground.once(in, all, nobody)
	for _, p := range all {
		c.ground.result(in, w.client, p, false)
	}
	if t.Failed() {
		c.ground.tell()
	}
	c.over(point.Name, began, reached)
}

// tellOf prints what became of programs if it was not as it should be.
func (c *podCrasher) tellOf(all []*program) {
	if !c.in.t.Failed() {
		return
	}
	for _, p := range all {
		c.in.t.Logf("%s %s:\n%s", p.kind, p.id, c.in.story(p.id))
	}
}

// nobody says of each execution that its pods were left alone.
func nobody(string) bool { return false }

// later says whether a point is armed only when something else has happened.
func (c *podCrasher) later(point crash.Point) bool {
	return point.Name == "pods.adopted" || point.Name == "pods.swept"
}

// provoke does what it takes for a point to be passed, beyond running programs, and returns
// the further programs that this has taken.
func (c *podCrasher) provoke(point crash.Point, w *workload) (more []*program) {
	switch point.Name {
	case "pods.adopted": // once the worker before was lost
		w.until("a program runs", func() bool { return len(c.ground.Running()) > 0 })
		c.replace(point, true)
	case "pods.swept": // by a keeper that begins
		c.ground.orphan()
		c.replace(point, true)
	case "pods.stopped":
		w.until("the one that is to be cancelled was", func() bool { return len(w.asked) > 0 })
	case "pods.cut_short", "pods.expired": // unless the node was quicker to end the pod at its deadline
		w.until("the worker ends a pod at its run limit", func() bool {
			if len(w.open) == 0 && c.back.running() {
				again := c.special(point)
				again.request.IdempotencyKey = fmt.Sprintf("%s-again-%d", point.Name, len(more))
				w.submit(inPods([]*program{again}))
				more = append(more, again)
			}
			return !c.back.running()
		})
	}
	return more
}

// runLimit is one at which a worker ends a pod well before its node does, whose deadline is in
// whole seconds, and before which a program has begun even where all is slow.
const runLimit = "2050ms"

// workload is a little of what pods run: a quick program, one that needs a ConfigMap, one
// that has to be run again, and what the point itself is about.
func (c *podCrasher) workload(point crash.Point) []*program {
	text := "at " + point.Name + "\n"
	quick := run(client.ProcessSpec{Command: []string{"printf", "%s", text}}, want{state: client.Completed, stdout: fixed(text)})
	quick.kind = "quick"
	files := scripted(len(c.done))
	again := run(client.ProcessSpec{Command: []string{"sh", "-c",
		`echo "attempt $MILLRACE_ATTEMPT"; ` + c.lasting(point, "sleep 0.5; ") + `[ "$MILLRACE_ATTEMPT" -ge 2 ] || exit 9`}},
		want{state: client.Completed, failures: 1, stdout: func(attempt int) []byte { return fmt.Appendf(nil, "attempt %d\n", attempt) }})
	again.kind = "run again"
	all := []*program{&quick, &files, &again}
	if special := c.special(point); special != nil {
		all = append(all, special)
	}
	for i, p := range all {
		p.request.IdempotencyKey = fmt.Sprintf("%s-%d", point.Name, i)
	}
	return inPods(all)
}

// special is the program that a point is about, nil for those that any program passes.
func (*podCrasher) special(point crash.Point) *program {
	switch point.Name {
	case "pods.stopped":
		stopped := run(client.ProcessSpec{Command: []string{"sh", "-c", "echo begun; while :; do sleep 0.1; done"}}, want{state: client.Cancelled, reason: "cancelled"})
		stopped.kind, stopped.cancel = "cancelled", client.Running
		return &stopped
	case "pods.expired":
		limited := run(client.ProcessSpec{Command: []string{"sh", "-c", "echo begun; while :; do sleep 0.1; done"}},
			want{state: client.TimedOut, reason: "run_limit", limit: "run", stdout: fixed("begun\n")})
		limited.kind, limited.request.Limits = "run limit", &client.Limits{Run: runLimit}
		return &limited
	case "pods.cut_short":
		late := run(client.ProcessSpec{Command: []string{"true"}, Image: "unreachable/image"},
			want{state: client.TimedOut, reason: "run_limit", limit: "run", stdout: fixed("")})
		late.kind, late.request.Limits = "run limit before it began", &client.Limits{Run: runLimit}
		return &late
	case "pods.given_up":
		missing := run(client.ProcessSpec{Command: []string{"true"}, Image: "missing/image"},
			want{state: client.Failed, reason: kubernetes.ReasonImageNotFound, stdout: fixed("")})
		missing.kind = "missing image"
		return &missing
	}
	return nil
}
