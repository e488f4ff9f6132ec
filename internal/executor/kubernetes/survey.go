package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/internal/executor"
)

// CapacitySource is what the room of the cluster is surveyed from.
type CapacitySource string

// The sources.
const (
	// CapacityAuto: the nodes and the quotas, as far as the worker may read them; without a
	// bound where it may read neither.
	CapacityAuto CapacitySource = "auto"
	// CapacityNodes: what the nodes have that a class may use.
	CapacityNodes CapacitySource = "nodes"
	// CapacityQuota: the quotas of the namespace.
	CapacityQuota CapacitySource = "quota"
	// CapacityNone: it is not surveyed, and without a bound.
	CapacityNone CapacitySource = "none"
)

// ofNodes says whether the nodes are asked; the zero value is CapacityAuto.
func (s CapacitySource) ofNodes() bool { return s == "" || s == CapacityAuto || s == CapacityNodes }

// ofQuotas says whether the quotas are.
func (s CapacitySource) ofQuotas() bool { return s == "" || s == CapacityAuto || s == CapacityQuota }

// CapacitySources returns all of them.
func CapacitySources() []CapacitySource {
	return []CapacitySource{CapacityAuto, CapacityNodes, CapacityQuota, CapacityNone}
}

// survey knows the room of the cluster: for each class the sum of the nodes that its pods
// may use, at most what the quotas of the namespace allow. What others use of either is not
// taken off: the cluster refuses what has no room after all, and the work waits.
type survey struct {
	e          *Executor
	nodesOn    bool
	quotasOn   bool
	tolerances map[string][]corev1.Toleration

	mu     sync.Mutex
	nodes  map[string]*corev1.Node
	quotas map[types.UID]*corev1.ResourceQuota
	// nodesKnown and quotasKnown: all were listed once. nodesDenied and quotasDenied: the
	// worker may not.
	nodesKnown, quotasKnown   bool
	nodesDenied, quotasDenied bool
	room                      map[string]executor.Capacity
	changed                   chan struct{}
}

func newSurvey(e *Executor) (*survey, error) {
	s := &survey{
		e: e, nodes: map[string]*corev1.Node{}, quotas: map[types.UID]*corev1.ResourceQuota{},
		room: map[string]executor.Capacity{}, changed: make(chan struct{}, 1), tolerances: map[string][]corev1.Toleration{},
	}
	source := e.cfg.Capacity
	if !slices.Contains(CapacitySources(), source) {
		return nil, fmt.Errorf("capacity %q is unknown: want one of %v", source, CapacitySources())
	}
	some := len(e.cfg.Classes) > 0
	s.nodesOn = some && source.ofNodes()
	// Quotas are of a namespace, and with one for each tenant none is that of the pool.
	s.quotasOn = some && source.ofQuotas() && !e.builder.NamespacesByTenant()
	for _, class := range e.cfg.Classes {
		for _, text := range e.builder.settings.class(class).Tolerations {
			toleration, err := parseToleration(text)
			if err != nil {
				return nil, err
			}
			s.tolerances[class] = append(s.tolerances[class], toleration)
		}
	}
	s.room = s.survey()
	return s, nil
}

// Pool implements executor.Surveyor.
func (e *Executor) Pool() string { return e.cfg.Pool }

// Capacity implements executor.Surveyor.
func (e *Executor) Capacity(class string) (executor.Capacity, bool) {
	e.survey.mu.Lock()
	defer e.survey.mu.Unlock()
	c, ok := e.survey.room[class]
	return c, ok
}

// Surveyed implements executor.Surveyor.
func (e *Executor) Surveyed() <-chan struct{} { return e.survey.changed }

// run keeps the survey up to date until ctx ends.
func (s *survey) run(ctx context.Context) {
	var all sync.WaitGroup
	if s.nodesOn {
		all.Go(func() { s.watchNodes(ctx) })
	}
	if s.quotasOn {
		all.Go(func() { s.watchQuotas(ctx) })
	}
	all.Wait()
}

func (s *survey) watchNodes(ctx context.Context) {
	nodes := s.e.client.CoreV1().Nodes()
	w := &watcher[*corev1.Node]{
		name: "nodes", what: &corev1.Node{}, relist: s.e.cfg.Relist, log: s.e.log, faults: s.e.metrics.watchFaults.WithLabelValues("nodes").Inc,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		open: nodes.Watch,
		changed: func(n *corev1.Node) {
			s.update(func() { s.nodes[n.Name] = bare(n) })
		},
		removed: func(n *corev1.Node) { s.update(func() { delete(s.nodes, n.Name) }) },
		denied:  func() { s.update(func() { s.nodesDenied = true }) },
		all: func(all []*corev1.Node, _ string) {
			s.update(func() {
				clear(s.nodes)
				for _, n := range all {
					s.nodes[n.Name] = bare(n)
				}
				s.nodesKnown = true
			})
		},
	}
	w.run(ctx)
}

// bare keeps of a node what the survey looks at.
func bare(n *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	kept.Spec.Unschedulable, kept.Spec.Taints = n.Spec.Unschedulable, n.Spec.Taints
	kept.Status.Allocatable = n.Status.Allocatable
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept
}

func (s *survey) watchQuotas(ctx context.Context) {
	quotas := s.e.client.CoreV1().ResourceQuotas(s.e.scope())
	w := &watcher[*corev1.ResourceQuota]{
		name: "resource quotas", what: &corev1.ResourceQuota{}, relist: s.e.cfg.Relist, log: s.e.log,
		faults:  s.e.metrics.watchFaults.WithLabelValues("quotas").Inc,
		list:    func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return quotas.List(ctx, o) },
		open:    quotas.Watch,
		changed: func(q *corev1.ResourceQuota) { s.update(func() { s.quotas[q.UID] = q }) },
		removed: func(q *corev1.ResourceQuota) { s.update(func() { delete(s.quotas, q.UID) }) },
		denied:  func() { s.update(func() { s.quotasDenied = true }) },
		all: func(all []*corev1.ResourceQuota, _ string) {
			s.update(func() {
				clear(s.quotas)
				for _, q := range all {
					s.quotas[q.UID] = q
				}
				s.quotasKnown = true
			})
		},
	}
	w.run(ctx)
}

// update changes what is known, and signals when that makes a difference.
func (s *survey) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	room := s.survey()
	if maps.Equal(room, s.room) {
		return
	}
	s.room = room
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// survey returns the room of each class of which it is known.
func (s *survey) survey() map[string]executor.Capacity {
	if !s.known() {
		return nil
	}
	room := map[string]executor.Capacity{}
	for _, class := range s.e.cfg.Classes {
		c := executor.Capacity{Slots: -1, CPUMillis: -1, MemoryBytes: -1, GPUs: -1}
		settings := s.e.builder.settings.class(class)
		gpu := corev1.ResourceName(settings.GPUResource)
		if s.nodesKnown {
			c = s.ofNodes(class, settings.NodeSelector, gpu)
		}
		for _, q := range s.quotas {
			c = bounded(c, q, gpu, settings.PriorityClass)
		}
		room[class] = c
	}
	return room
}

// known says whether anything is known of the room. As long as it is not, nothing is
// admitted; so where there is nobody to ask the room has no bound.
func (s *survey) known() bool {
	switch s.e.cfg.Capacity {
	case CapacityNone:
		return true
	case CapacityNodes:
		return s.nodesKnown
	case CapacityQuota:
		return s.quotasKnown
	default:
		return s.nodesKnown || s.quotasKnown || s.nodesDenied && (s.quotasDenied || !s.quotasOn)
	}
}

// ofNodes is the room of the nodes that pods of a class may use.
func (s *survey) ofNodes(class string, selector map[string]string, gpu corev1.ResourceName) executor.Capacity {
	var c executor.Capacity
	for _, n := range s.nodes {
		if !ready(n) || !labels.SelectorFromSet(selector).Matches(labels.Set(n.Labels)) || !tolerated(n.Spec.Taints, s.tolerances[class]) {
			continue
		}
		a := n.Status.Allocatable
		c.Slots += int(a.Pods().Value())
		c.CPUMillis += a.Cpu().MilliValue()
		c.MemoryBytes += a.Memory().Value()
		if q, ok := a[gpu]; ok {
			c.GPUs += int(q.Value())
		}
	}
	return c
}

// ready says whether a node takes pods.
func ready(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// tolerated says whether pods with these tolerations may be put on a node with these taints.
func tolerated(taints []corev1.Taint, tolerations []corev1.Toleration) bool {
	for _, t := range taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(o corev1.Toleration) bool { return tolerates(o, t) }) {
			return false
		}
	}
	return true
}

func tolerates(o corev1.Toleration, t corev1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	return o.Operator == corev1.TolerationOpExists || o.Value == t.Value
}

// bounded is what a quota leaves of a room.
func bounded(c executor.Capacity, q *corev1.ResourceQuota, gpu corev1.ResourceName, priority string) executor.Capacity {
	if !concerns(q, priority) {
		return c
	}
	hard := q.Spec.Hard
	for name, quantity := range hard {
		switch name { //nolint:exhaustive // the others say nothing of pods
		case corev1.ResourcePods, "count/pods":
			c.Slots = int(least(int64(c.Slots), quantity.Value()))
		case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU:
			c.CPUMillis = least(c.CPUMillis, milli(quantity))
		case corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory:
			c.MemoryBytes = least(c.MemoryBytes, quantity.Value())
		case "requests." + gpu:
			c.GPUs = int(least(int64(c.GPUs), quantity.Value()))
		}
	}
	return c
}

func milli(q resource.Quantity) int64 { return q.MilliValue() }

// least is the lesser of two rooms, of which a may be without a bound.
func least(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// concerns says whether a quota counts pods like ours, which have requests and a deadline,
// or may. One that is for other pods only bounds nothing.
func concerns(q *corev1.ResourceQuota, priority string) bool {
	for _, scope := range q.Spec.Scopes {
		if scope == corev1.ResourceQuotaScopeBestEffort {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		if e.ScopeName != corev1.ResourceQuotaScopePriorityClass {
			continue
		}
		has := slices.Contains(e.Values, priority)
		switch e.Operator {
		case corev1.ScopeSelectorOpIn:
			if !has {
				return false
			}
		case corev1.ScopeSelectorOpNotIn:
			if has {
				return false
			}
		case corev1.ScopeSelectorOpExists:
			if priority == "" {
				return false
			}
		case corev1.ScopeSelectorOpDoesNotExist:
			if priority != "" {
				return false
			}
		}
	}
	return true
}
