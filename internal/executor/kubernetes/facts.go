package kubernetes

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/internal/executor/pods"
)

// Facts returns all that the state of a pod tells, in the order of pods.Phases; none for
// what is not of Millrace's making. Times are the cluster's, in whole seconds.
func Facts(p *corev1.Pod) []pods.Fact {
	pod, ok := PodOf(p)
	if !ok {
		return nil
	}
	facts := []pods.Fact{{Pod: pod, Phase: pods.Created, At: p.CreationTimestamp.Time}}
	if p.Spec.NodeName != "" {
		at := cmpTime(scheduledAt(p), p.CreationTimestamp.Time)
		facts = append(facts, pods.Fact{Pod: pod, Phase: pods.Scheduled, At: at, Node: p.Spec.NodeName})
	}
	if at := startedAt(p); !at.IsZero() {
		facts = append(facts, pods.Fact{Pod: pod, Phase: pods.Running, At: at, Node: p.Spec.NodeName})
	}
	if fact, ended := endFact(p, pod); ended {
		facts = append(facts, fact)
	}
	return facts
}

// endFact is what the cluster says of the end of a pod.
func endFact(p *corev1.Pod, pod pods.Pod) (pods.Fact, bool) {
	if !over(p) {
		return pods.Fact{}, false
	}
	f := pods.Fact{Pod: pod, Phase: pods.Succeeded, At: endedAt(p), Node: p.Spec.NodeName}
	t := terminated(p)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase != corev1.PodFailed && t != nil && t.ExitCode == 0 {
		return f, true
	}
	f.Phase = pods.Failed
	f.Reason, f.Message = p.Status.Reason, p.Status.Message
	if t != nil {
		f.Reason = cmp.Or(f.Reason, t.Reason)
		f.Message = cmp.Or(f.Message, t.Message)
		f.ExitCode = new(int(t.ExitCode))
	}
	f.Reason = cmp.Or(f.Reason, "Error")
	return f, true
}

// StuckFact is the fact that a pod could not begin, in the cluster's word for what it
// waited for; for one that Stuck has given up on, or that was deleted while it waited. It
// is false for a pod that did begin.
func StuckFact(p *corev1.Pod, at time.Time) (pods.Fact, bool) {
	pod, ok := PodOf(p)
	if !ok || !startedAt(p).IsZero() || over(p) {
		return pods.Fact{}, false
	}
	reason, message := waiting(p)
	return pods.Fact{
		Pod: pod, Phase: pods.Failed, At: at, Node: p.Spec.NodeName,
		Reason: cmp.Or(reason, string(corev1.PodPending)), Message: message, Idle: true,
	}, true
}

// DeletedFact is the fact that a pod is gone, p being how it was seen last.
func DeletedFact(p *corev1.Pod, at time.Time) (pods.Fact, bool) {
	pod, ok := PodOf(p)
	if !ok {
		return pods.Fact{}, false
	}
	f := pods.Fact{Pod: pod, Phase: pods.Deleted, At: at, Node: p.Spec.NodeName}
	if why, ok := disrupted(p); ok {
		f.Reason, f.Message = why.Reason, why.Message
	} else if over(p) {
		f.Reason = "finished"
	}
	return f, true
}

// over says whether nothing of the work can run any more, and why can be told. Containers
// that admission has added may hold the pod up; they do not count.
func over(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return true
	default:
		return len(p.Spec.Containers) > 1 && terminated(p) != nil
	}
}

// workStatus is what the node says of the container of the work; nil as long as it says
// nothing.
func workStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == WorkContainer {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := workStatus(p); s != nil {
		return s.State.Terminated
	}
	return nil
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// scheduledAt is when the pod was given a node; zero if it is not known.
func scheduledAt(p *corev1.Pod) time.Time {
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// startedAt is when the container of the work began; zero if it has not. One that could
// not be started is said to have begun in 1970.
func startedAt(p *corev1.Pod) time.Time {
	s := workStatus(p)
	switch {
	case s == nil:
		return time.Time{}
	case s.State.Running != nil:
		return realTime(s.State.Running.StartedAt.Time)
	case s.State.Terminated != nil:
		return realTime(s.State.Terminated.StartedAt.Time)
	default:
		return time.Time{}
	}
}

// endedAt is when the pod ended, as well as it is known.
func endedAt(p *corev1.Pod) time.Time {
	var at time.Time
	if t := terminated(p); t != nil {
		at = realTime(t.FinishedAt.Time)
	}
	if c := condition(p, corev1.PodReady); c != nil {
		at = cmpTime(at, c.LastTransitionTime.Time)
	}
	return cmpTime(at, deletionAsked(p), scheduledAt(p), p.CreationTimestamp.Time)
}

// deletionAsked is when somebody asked for the pod to be deleted; zero if nobody has.
func deletionAsked(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil {
		return time.Time{}
	}
	var grace time.Duration
	if p.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	}
	return p.DeletionTimestamp.Add(-grace)
}

func realTime(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}

// cmpTime is the first that is not zero.
func cmpTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}
