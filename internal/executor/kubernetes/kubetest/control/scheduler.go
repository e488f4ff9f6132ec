package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// placed is a pod that takes room of a node.
type placed struct {
	node  string
	needs corev1.ResourceList
}

// scheduler gives pods a node: the first, by name, that fits.
type scheduler struct {
	m *Manager

	mu      sync.Mutex
	nodes   map[string]*corev1.Node
	taken   map[types.UID]placed
	used    map[string]corev1.ResourceList // by node
	pending map[types.UID]*corev1.Pod
	told    map[types.UID]string // what a pod was told last of why it has no node
	wake    chan struct{}
}

func newScheduler(m *Manager) *scheduler {
	return &scheduler{
		m: m, nodes: map[string]*corev1.Node{}, taken: map[types.UID]placed{}, used: map[string]corev1.ResourceList{},
		pending: map[types.UID]*corev1.Pod{}, told: map[types.UID]string{}, wake: make(chan struct{}, 1),
	}
}

func (s *scheduler) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// requests is what a pod asks for: the sum of its containers, and its place.
func requests(pod *corev1.Pod) corev1.ResourceList {
	needs := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for name, quantity := range c.Resources.Requests {
			sum := needs[name].DeepCopy()
			sum.Add(quantity)
			needs[name] = sum
		}
		for name, quantity := range c.Resources.Limits {
			if _, set := c.Resources.Requests[name]; !set {
				sum := needs[name].DeepCopy()
				sum.Add(quantity)
				needs[name] = sum
			}
		}
	}
	return needs
}

func (s *scheduler) pod(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case ended:
		delete(s.pending, pod.UID)
		s.release(pod.UID)
	case pod.Spec.NodeName != "":
		delete(s.pending, pod.UID)
		s.take(pod.UID, pod.Spec.NodeName, requests(pod))
	case pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && pod.Spec.SchedulerName == corev1.DefaultSchedulerName:
		if _, assumed := s.taken[pod.UID]; !assumed {
			s.pending[pod.UID] = pod
			s.kick()
		}
	}
}

func (s *scheduler) podGone(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, pod.UID)
	delete(s.told, pod.UID)
	s.release(pod.UID)
}

// take books the room of a pod. The caller holds s.mu.
func (s *scheduler) take(uid types.UID, node string, needs corev1.ResourceList) {
	if _, booked := s.taken[uid]; booked {
		return
	}
	s.taken[uid] = placed{node, needs}
	if s.used[node] == nil {
		s.used[node] = corev1.ResourceList{}
	}
	for name, quantity := range needs {
		sum := s.used[node][name].DeepCopy()
		sum.Add(quantity)
		s.used[node][name] = sum
	}
}

// release gives the room of a pod back. The caller holds s.mu.
func (s *scheduler) release(uid types.UID) {
	p, booked := s.taken[uid]
	if !booked {
		return
	}
	delete(s.taken, uid)
	for name, quantity := range p.needs {
		sum := s.used[p.node][name].DeepCopy()
		sum.Sub(quantity)
		s.used[p.node][name] = sum
	}
	s.kick()
}

func (s *scheduler) node(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node.Name] = node
	s.kick()
}

func (s *scheduler) nodeGone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// run places what is pending whenever something has changed.
func (s *scheduler) run() {
	for {
		select {
		case <-s.wake:
		case <-s.m.ctx.Done():
			return
		}
		s.mu.Lock()
		var waiting []*corev1.Pod
		for _, pod := range s.pending {
			waiting = append(waiting, pod)
		}
		s.mu.Unlock()
		slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
			if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
				return c
			}
			return strings.Compare(a.Name, b.Name)
		})
		for _, pod := range waiting {
			s.place(pod)
		}
	}
}

// place gives one pod a node, or says why there is none.
func (s *scheduler) place(pod *corev1.Pod) {
	s.mu.Lock()
	node, why := s.choose(pod)
	if node != "" {
		delete(s.pending, pod.UID)
		delete(s.told, pod.UID)
		s.take(pod.UID, node, requests(pod))
	}
	news := s.told[pod.UID] != why
	if node == "" {
		s.told[pod.UID] = why
	}
	s.mu.Unlock()
	switch {
	case node != "":
		s.m.later("bind pod "+pod.Name, func(ctx context.Context) error { return s.bind(ctx, pod, node) })
	case news:
		s.m.later("tell pod "+pod.Name, func(ctx context.Context) error { return s.tell(ctx, pod, why) })
	}
}

func (s *scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	err := s.m.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release(pod.UID)
	}
	return err
}

// tell writes on a pod why it has no node.
func (s *scheduler) tell(ctx context.Context, pod *corev1.Pod, why string) error {
	pods := s.m.client.CoreV1().Pods(pod.Namespace)
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		return err
	}
	c := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
		LastTransitionTime: metav1.Now(),
	}
	i := slices.IndexFunc(now.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i < 0 {
		now.Status.Conditions = append(now.Status.Conditions, c)
	} else {
		now.Status.Conditions[i] = c
	}
	if _, err := pods.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		return err
	}
	at := metav1.Now()
	_, err = s.m.client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "FailedScheduling", Message: why, Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: corev1.DefaultSchedulerName},
	}, metav1.CreateOptions{})
	return err
}

// choose returns the node for a pod, or why there is none. The caller holds s.mu.
func (s *scheduler) choose(pod *corev1.Pod) (node, why string) {
	names := make([]string, 0, len(s.nodes))
	for name := range s.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	needs, reasons := requests(pod), map[string]int{}
	for _, name := range names {
		reason := s.obstacle(pod, s.nodes[name], needs)
		if reason == "" {
			return name, ""
		}
		reasons[reason]++
	}
	var parts []string
	for reason, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return "", "no nodes available to schedule pods"
	}
	return "", fmt.Sprintf("0/%d nodes are available: %s.", len(names), strings.Join(parts, ", "))
}

// obstacle says why a pod cannot be on a node. The caller holds s.mu.
func (s *scheduler) obstacle(pod *corev1.Pod, node *corev1.Node, needs corev1.ResourceList) string {
	if node.Spec.Unschedulable {
		return "node(s) were unschedulable"
	}
	if !ready(node) {
		return "node(s) were not ready"
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && tolerated(pod, taint) == nil {
			return fmt.Sprintf("node(s) had untolerated taint(s) {%s: %s}", taint.Key, taint.Value)
		}
	}
	if !selected(pod, node) {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	var short []string
	for name, quantity := range needs {
		sum := s.used[node.Name][name].DeepCopy()
		sum.Add(quantity)
		if sum.Cmp(node.Status.Allocatable[name]) > 0 {
			if name == corev1.ResourcePods {
				return "Too many pods"
			}
			short = append(short, "Insufficient "+string(name))
		}
	}
	slices.Sort(short)
	return strings.Join(short, ", ")
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tolerated returns the toleration of a taint, nil if there is none.
func tolerated(pod *corev1.Pod, taint *corev1.Taint) *corev1.Toleration {
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		if t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value {
			return t
		}
	}
	return nil
}

// selected says whether a node is one that a pod asks for.
func selected(pod *corev1.Pod, node *corev1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if got, ok := node.Labels[k]; !ok || got != v {
			return false
		}
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return !meets(node, r) })
	})
}

func meets(node *corev1.Node, r corev1.NodeSelectorRequirement) bool {
	value, has := node.Labels[r.Key]
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	default:
		return false
	}
}
