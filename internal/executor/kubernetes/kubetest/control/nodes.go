package control

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func (m *Manager) nodeChanged(o any) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	m.scheduler.node(node)
	if ready(node) && slices.ContainsFunc(node.Spec.Taints, notReady) {
		m.later("untaint node "+node.Name, func(ctx context.Context) error { return m.untaint(ctx, node.Name) })
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Effect == corev1.TaintEffectNoExecute {
			m.drive(node, &node.Spec.Taints[i])
		}
	}
}

// notReady says whether a taint is the one with which a real API server makes every node.
func notReady(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }

func (m *Manager) untaint(ctx context.Context, name string) error {
	node, err := m.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !ready(node) {
		return err
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, notReady)
	_, err = m.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// on returns the pods of a node.
func (m *Manager) on(node string) []*corev1.Pod {
	all, err := m.factory.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil
	}
	var pods []*corev1.Pod
	for _, pod := range all {
		if pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// drive deletes the pods of a node that do not tolerate a taint, or not for longer.
func (m *Manager) drive(node *corev1.Node, taint *corev1.Taint) {
	for _, pod := range m.on(node.Name) {
		m.driveOne(pod, taint)
	}
}

// driveOne is drive for one pod, once. A second for which it tolerates the taint counts as
// ten milliseconds: every pod of a real API server tolerates for five minutes that its node
// cannot be reached.
func (m *Manager) driveOne(pod *corev1.Pod, taint *corev1.Taint) {
	t := tolerated(pod, taint)
	if t != nil && t.TolerationSeconds == nil || pod.DeletionTimestamp != nil || !m.first(pod.UID) {
		return
	}
	wait := time.Duration(0)
	if t != nil {
		wait = time.Duration(*t.TolerationSeconds) * 10 * time.Millisecond
	}
	m.loops.Go(func() {
		m.pause(wait)
		m.disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", false)
	})
}

// first says whether a pod is driven away for the first time.
func (m *Manager) first(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.driven[pod] {
		return false
	}
	m.driven[pod] = true
	return true
}

func (m *Manager) nodeDeleted(o any) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	m.scheduler.nodeGone(node.Name)
	for _, pod := range m.on(node.Name) {
		m.lose(pod)
	}
}

// strand deletes a pod that was given to a node of which it was not known yet that it goes,
// or is gone.
func (m *Manager) strand(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return
	}
	node, err := m.factory.Core().V1().Nodes().Lister().Get(pod.Spec.NodeName)
	if err != nil { // there is none: it comes from memory
		m.lose(pod)
		return
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Effect == corev1.TaintEffectNoExecute {
			m.driveOne(pod, &node.Spec.Taints[i])
		}
	}
}

// lose deletes a pod whose node is deleted, once.
func (m *Manager) lose(pod *corev1.Pod) {
	m.mu.Lock()
	known := m.lost[pod.UID]
	m.lost[pod.UID] = true
	m.mu.Unlock()
	if !known {
		m.disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", true)
	}
}

// disrupt deletes a pod for the sake of its node, and says so on it before. What is gone
// with its node has failed.
func (m *Manager) disrupt(pod *corev1.Pod, reason, message string, gone bool) {
	m.later("disrupt pod "+pod.Name, func(ctx context.Context) error {
		now, err := m.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil || now.UID != pod.UID {
			return err
		}
		if now.Status.Phase != corev1.PodSucceeded && now.Status.Phase != corev1.PodFailed {
			now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
			})
			status := map[string]any{"conditions": now.Status.Conditions}
			if gone {
				status["phase"] = corev1.PodFailed
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
			if err != nil {
				return err
			}
			if _, err := m.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				return err
			}
		}
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
		if gone {
			options.GracePeriodSeconds = new(int64(0))
		}
		return m.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	})
}
