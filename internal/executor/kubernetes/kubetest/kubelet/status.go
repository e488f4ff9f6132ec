package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// status is what the API is told about a pod.
type status struct {
	mu      *sync.Mutex
	write   *sync.Mutex // one at a time goes to the API, the newest last
	s       *corev1.PodStatus
	inits   int
	stopped time.Time // when the pod was asked to end; guarded by the pod
}

func newStatus(pod *corev1.Pod) status {
	return status{mu: new(sync.Mutex), write: new(sync.Mutex), s: pod.Status.DeepCopy(), inits: len(pod.Spec.InitContainers)}.with(pod)
}

// with lists the containers of a pod that has just come.
func (st status) with(pod *corev1.Pod) status {
	fresh := func(containers []corev1.Container, why string) []corev1.ContainerStatus {
		var list []corev1.ContainerStatus
		for _, c := range containers {
			list = append(list, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}},
			})
		}
		return list
	}
	why := "ContainerCreating"
	if st.inits > 0 {
		why = "PodInitializing"
	}
	st.s.InitContainerStatuses = fresh(pod.Spec.InitContainers, "PodInitializing")
	st.s.ContainerStatuses = fresh(pod.Spec.Containers, why)
	return st
}

func (st *status) begin() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.s.StartTime = new(metav1.Now())
	st.s.HostIP = "127.0.0.1"
	st.condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", "")
	if st.inits == 0 {
		st.condition(corev1.PodInitialized, corev1.ConditionTrue, "", "")
	} else {
		st.condition(corev1.PodInitialized, corev1.ConditionFalse, "ContainersNotInitialized", "")
	}
	st.ready(false, "ContainersNotReady")
	st.condition(corev1.PodScheduled, corev1.ConditionTrue, "", "")
}

func (st *status) initialized() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.condition(corev1.PodInitialized, corev1.ConditionTrue, "", "")
}

// ready sets both conditions of readiness. The caller holds st.mu.
func (st *status) ready(yes bool, reason string) {
	value := corev1.ConditionFalse
	if yes {
		value = corev1.ConditionTrue
	}
	st.condition(corev1.ContainersReady, value, reason, "")
	st.condition(corev1.PodReady, value, reason, "")
}

// condition sets a condition. The caller holds st.mu.
func (st *status) condition(kind corev1.PodConditionType, value corev1.ConditionStatus, reason, message string) {
	c := corev1.PodCondition{Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	for i, old := range st.s.Conditions {
		if old.Type == kind {
			if old.Status == value {
				c.LastTransitionTime = old.LastTransitionTime
			}
			st.s.Conditions[i] = c
			return
		}
	}
	st.s.Conditions = append(st.s.Conditions, c)
}

// of returns the status of a container. The caller holds st.mu.
func (st *status) of(name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{st.s.InitContainerStatuses, st.s.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return new(corev1.ContainerStatus)
}

// waits says why a container is not there yet, and whether that is news.
func (st *status) waits(name, reason, message string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := st.of(name)
	if w := c.State.Waiting; w != nil && w.Reason == reason && w.Message == message {
		return false
	}
	c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	return true
}

func (st *status) running(name string, number int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := st.of(name)
	c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.Started, c.Ready = new(true), true
	c.ContainerID = fmt.Sprintf("kubetest://%d", number)
	c.ImageID = "kubetest://" + c.Image
	st.condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", "")
	all := true
	for _, other := range st.s.ContainerStatuses {
		all = all && other.State.Running != nil
	}
	for _, init := range st.s.InitContainerStatuses {
		all = all && init.State.Running == nil
	}
	if all {
		st.s.Phase = corev1.PodRunning
		st.ready(true, "")
	}
}

func (st *status) terminated(name string, end ending) {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := st.of(name)
	c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(end.code), Reason: end.reason, Message: end.message, ContainerID: c.ContainerID,
		StartedAt: metav1.NewTime(end.began), FinishedAt: metav1.NewTime(end.ended),
	}}
	c.Ready, c.Started = false, new(false)
}

// fail ends the pod for a fault of the node.
func (st *status) fail(reason, message string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.s.Phase, st.s.Reason, st.s.Message = corev1.PodFailed, reason, message
}

// end says how the pod as a whole has ended.
func (st *status) end(v *verdict) {
	st.mu.Lock()
	defer st.mu.Unlock()
	phase, reason := corev1.PodSucceeded, "PodCompleted"
	for _, c := range append(append([]corev1.ContainerStatus{}, st.s.InitContainerStatuses...), st.s.ContainerStatuses...) {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			phase, reason = corev1.PodFailed, "PodFailed"
		}
	}
	if v != nil {
		phase, reason = corev1.PodFailed, "PodFailed"
		st.s.Reason, st.s.Message = v.reason, v.message
		if v.disruption != "" {
			st.condition(corev1.DisruptionTarget, corev1.ConditionTrue, v.disruption, v.message)
		}
	}
	st.s.Phase = phase
	st.condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", "")
	st.ready(false, reason)
}

// publish writes the status to the API.
func (st *status) publish(ctx context.Context, k *Kubelet, p *pod) {
	st.write.Lock()
	defer st.write.Unlock()
	st.mu.Lock()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": st.s})
	st.mu.Unlock()
	if err != nil {
		k.config.Logger.Error("The status of a pod is not written", "pod", p.name(), "error", err)
		return
	}
	k.insist(ctx, "write the status of pod "+p.name(), func() error {
		_, err := k.config.Client.CoreV1().Pods(p.namespace).Patch(ctx, p.podName, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// insist does something until it is done, or there is nothing any more to do it to.
func (k *Kubelet) insist(ctx context.Context, what string, do func() error) {
	for {
		err := do()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			if apierrors.IsInvalid(err) {
				k.config.Logger.Error("The API refuses", "operation", what, "error", err)
			}
			return
		}
		k.config.Logger.Debug("The API does not answer", "operation", what, "error", err)
		timer := time.NewTimer(k.config.Retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
