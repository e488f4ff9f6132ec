package kubernetes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/internal/executor"
)

// Patience is how long a pod may be in a state in which it makes no progress, and how long its
// end is waited for. The zero value of a member is its default.
type Patience struct {
	Schedule time.Duration // no node has room for it; long enough for a node to be added
	Image    time.Duration // its image cannot be pulled
	Start    time.Duration // anything else that keeps it from starting, such as pulling a large image
	Node     time.Duration // it is being deleted, and its node does not answer
	Output   time.Duration // it has ended, and the end of its output cannot be read
	// Force is how long beyond its grace period it may take to end, once Millrace has asked it
	// to, before it is removed by force, as on a node that does not answer.
	Force time.Duration
}

// The defaults of Patience.
const (
	SchedulePatienceDefault = 5 * time.Minute
	ImagePatienceDefault    = 2 * time.Minute
	StartPatienceDefault    = 10 * time.Minute
	NodePatienceDefault     = time.Minute
	OutputPatienceDefault   = 15 * time.Second
	ForcePatienceDefault    = 15 * time.Second
)

func (p Patience) withDefaults() Patience {
	p.Schedule = cmp.Or(p.Schedule, SchedulePatienceDefault)
	p.Image = cmp.Or(p.Image, ImagePatienceDefault)
	p.Start = cmp.Or(p.Start, StartPatienceDefault)
	p.Node = cmp.Or(p.Node, NodePatienceDefault)
	p.Output = cmp.Or(p.Output, OutputPatienceDefault)
	p.Force = cmp.Or(p.Force, ForcePatienceDefault)
	return p
}

// verdict is what becomes of a pod that waits since a moment, once that is longer than
// patience.
type verdict struct {
	result   executor.Result
	since    time.Time
	patience time.Duration
}

// Stuck says whether a pod has been without progress for too long, and what the attempt
// ends with then; the pod is to be deleted before that (by force, where it is being
// deleted already). Otherwise next is when to ask again unless the pod changes before;
// zero: not before.
func Stuck(p *corev1.Pod, now time.Time, patience Patience) (result executor.Result, next time.Time, stuck bool) {
	v, waits := judge(p, patience.withDefaults())
	if !waits {
		return executor.Result{}, time.Time{}, false
	}
	if end := v.since.Add(v.patience); now.Before(end) {
		return executor.Result{}, end, false
	}
	return v.result, time.Time{}, true
}

func judge(p *corev1.Pod, patience Patience) (verdict, bool) {
	switch {
	case over(p):
		return verdict{}, false
	case p.DeletionTimestamp != nil:
		words := "the pod was to be gone by " + p.DeletionTimestamp.UTC().Format(time.RFC3339) + ", and its node does not answer"
		result := disruption(ReasonNodeLost, words)
		if p.Spec.NodeName != "" {
			result.Message = "the node " + p.Spec.NodeName + " was lost: " + words
		}
		return verdict{result, p.DeletionTimestamp.Time, patience.Node}, true
	case p.Status.Phase == corev1.PodUnknown:
		result := disruption(ReasonNodeLost, "the node "+p.Spec.NodeName+" does not answer")
		return verdict{result, lastSign(p), patience.Node}, true
	case p.Spec.NodeName == "":
		return unscheduled(p, patience)
	case !startedAt(p).IsZero():
		return verdict{}, false
	default:
		return unstarted(p, patience), true
	}
}

// unscheduled judges a pod without a node.
func unscheduled(p *corev1.Pod, patience Patience) (verdict, bool) {
	c := condition(p, corev1.PodScheduled)
	switch {
	case c == nil || c.Status != corev1.ConditionFalse:
		result := postponed(ReasonUnschedulable, "no scheduler has looked at the pod: is the cluster's scheduler running?", later)
		return verdict{result, p.CreationTimestamp.Time, patience.Schedule}, true
	case c.Reason == corev1.PodReasonSchedulingGated:
		return verdict{}, false // somebody holds it back on purpose, and will let it go
	default:
		result := postponed(ReasonUnschedulable, explain("no node has room for the pod", c.Message), later)
		return verdict{result, c.LastTransitionTime.Time, patience.Schedule}, true
	}
}

// unstarted judges a pod that has a node, on which its container has not begun.
func unstarted(p *corev1.Pod, patience Patience) verdict {
	since := cmpTime(scheduledAt(p), p.CreationTimestamp.Time)
	reason, message := waiting(p)
	image := workImage(p)
	switch reason {
	case "InvalidImageName":
		return verdict{result: permanent(ReasonImageInvalid, explain("the node cannot read the name of the image "+image, message))}
	case "ErrImageNeverPull":
		return verdict{result: failed(ReasonImagePull, "the image "+image+" is not on the node, and may not be pulled"), since: since, patience: patience.Image}
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return imageVerdict(since, patience, image, message)
	case "CreateContainerConfigError":
		result := failed(ReasonContainerConfig, explain("the container cannot be configured", message))
		if strings.Contains(message, "runAsNonRoot") || strings.Contains(message, "non-root") {
			result.Retryable = false
			return verdict{result: result}
		}
		return verdict{result, since, patience.Start}
	case "CreateContainerError", "RunContainerError", "StartError":
		result := startFailure(message)
		if !result.Retryable {
			return verdict{result: result}
		}
		return verdict{result, since, patience.Start}
	default:
		words := fmt.Sprintf("the node %s has not started the container for %s", p.Spec.NodeName, patience.Start)
		return verdict{failed(ReasonStartTimeout, explain(words, strings.TrimSpace(reason+" "+message))), since, patience.Start}
	}
}

// imageVerdict tells an image that is not there, which a second look does not change, from
// a registry that is not at its best, and from rights that are missing.
func imageVerdict(since time.Time, patience Patience, image, message string) verdict {
	said := strings.ToLower(message)
	for _, missing := range []string{"not found", "manifest unknown", "name unknown", "no match for platform", "does not exist"} {
		if strings.Contains(said, missing) && !strings.Contains(said, "authorization") && !strings.Contains(said, "no such host") {
			return verdict{result: permanent(ReasonImageNotFound, explain("there is no image "+image, message))}
		}
	}
	advice := "the image " + image + " could not be pulled"
	for _, denied := range []string{"unauthorized", "denied", "forbidden", "authorization"} {
		if strings.Contains(said, denied) {
			advice += " (kubernetes.pull_secrets names the secrets for it)"
			break
		}
	}
	return verdict{failed(ReasonImagePull, explain(advice, message)), since, patience.Image}
}

// Waiting says in words what a pod waits for that has not started; empty if it does not
// wait.
func Waiting(p *corev1.Pod) string {
	if over(p) || !startedAt(p).IsZero() {
		return ""
	}
	reason, message := waiting(p)
	return explain(reason, message)
}

// waiting is the cluster's word for what a pod waits for, and what it says of it.
func waiting(p *corev1.Pod) (reason, message string) {
	if s := workStatus(p); s != nil && s.State.Waiting != nil && s.State.Waiting.Reason != "" {
		return s.State.Waiting.Reason, s.State.Waiting.Message
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return c.Reason, c.Message
	}
	if c := condition(p, corev1.PodReadyToStartContainers); c != nil && c.Status == corev1.ConditionFalse && c.Message != "" {
		return c.Reason, c.Message
	}
	if p.Spec.NodeName == "" {
		return string(corev1.PodPending), ""
	}
	return "ContainerCreating", ""
}

// lastSign is when a node was last heard of through the pod, as well as it is known.
func lastSign(p *corev1.Pod) time.Time {
	if c := condition(p, corev1.PodReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return cmpTime(startedAt(p), scheduledAt(p), p.CreationTimestamp.Time)
}

func workImage(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == WorkContainer {
			return c.Image
		}
	}
	return ""
}
