package kubernetes

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/pods"
)

// Ended returns how the work of a pod ended, and false while it has not. Where the Result
// is Abandoned with a RetryAfter (a node refused the pod), the pod must be deleted before
// the attempt returns, for the next one has the same name. The summaries of the output are
// left to the caller.
//
// What a program did by itself before the pod was deleted counts; what it did after that
// it did because it was asked to stop, whatever its exit code.
func Ended(p *corev1.Pod) (executor.Result, bool) {
	if !over(p) {
		return executor.Result{}, false
	}
	t := terminated(p)
	if p.Status.Phase == corev1.PodFailed {
		if result, ok := podReason(p); ok {
			return withExit(result, t), true
		}
	}
	byItself := t != nil && !t.FinishedAt.IsZero() && p.DeletionTimestamp != nil && t.FinishedAt.Time.Before(deletionAsked(p))
	if result, ok := disrupted(p); ok && !byItself && (t == nil || t.ExitCode != 0 || p.DeletionTimestamp != nil) {
		return withExit(result, t), true
	}
	if p.DeletionTimestamp != nil && !byItself && (t != nil || p.Status.Phase == corev1.PodFailed) {
		return withExit(deleted(p), t), true
	}
	return exited(p, t), true
}

// Gone returns what a pod's end by deletion means that Millrace has not asked for, p being
// how it was seen last.
func Gone(p *corev1.Pod) executor.Result {
	if result, ok := Ended(p); ok {
		return result
	}
	if result, ok := disrupted(p); ok {
		return result
	}
	return deleted(p)
}

// verdictOf and resultOf turn a Result into what the ledger keeps of it, and back.
func verdictOf(r executor.Result) pods.Verdict {
	return pods.Verdict{Outcome: r.Outcome, Reason: r.Reason, Message: r.Message, Retryable: r.Retryable, Disrupted: r.Disrupted}
}

func resultOf(v pods.Verdict) executor.Result {
	return executor.Result{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Retryable: v.Retryable, Disrupted: v.Disrupted}
}

// forgotten is what a run has come to whose pod is gone while nobody watched it.
func forgotten(p pods.Last) executor.Result {
	where := ""
	if p.Node != "" {
		where = " on the node " + p.Node
	}
	words := "and nobody saw how it ended: somebody deleted it, or it went with its node"
	if p.Phase == pods.Succeeded || p.Phase == pods.Failed {
		words = "it had " + string(p.Phase) + ", and somebody deleted it before that was recorded"
	}
	return disruption(ReasonPodDeleted, fmt.Sprintf("the pod %s/%s of this run%s is gone while no worker watched it, %s", p.Namespace, p.Name, where, words))
}

func deleted(p *corev1.Pod) executor.Result {
	return disruption(ReasonPodDeleted, fmt.Sprintf("somebody deleted the pod %s/%s before its work had ended", p.Namespace, p.Name))
}

// podReason reads the reason of a pod that failed as a whole: what its node, or what
// watches nodes, did to it.
func podReason(p *corev1.Pod) (executor.Result, bool) {
	reason, message := p.Status.Reason, p.Status.Message
	switch reason {
	case "":
		return executor.Result{}, false
	case "DeadlineExceeded":
		return executor.Stopped(executor.ErrRunLimit), true
	case "Evicted":
		return evicted(message), true
	case "Preempting", "Preempted":
		return disruption(ReasonPreempted, explain("a more urgent pod took the room of this one", message)), true
	case "NodeLost":
		return disruption(ReasonNodeLost, explain("the node "+p.Spec.NodeName+" was lost", message)), true
	case "NodeShutdown", "Shutdown", "Terminated":
		return disruption(ReasonNodeShutdown, explain("the node "+p.Spec.NodeName+" was shut down", message)), true
	}
	if startedAt(p).IsZero() && refusedByNode(reason) {
		return postponed(ReasonNodeRefused, explain("the node "+p.Spec.NodeName+" refused the pod: "+reason, message), soon), true
	}
	return executor.Result{}, false
}

// refusedByNode says whether a reason is one for which a node does not take a pod that the
// scheduler gave to it: the two have met with other pods in between.
func refusedByNode(reason string) bool {
	switch reason {
	case "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "InvalidNodeInfo", "PodToleratesNodeTaints", "Taint", "TopologyAffinityError":
		return true
	default:
		return strings.HasPrefix(reason, "OutOf")
	}
}

// evicted tells a node that was short of something from a program that was greedy.
func evicted(message string) executor.Result {
	for _, greedy := range []string{"Usage of EmptyDir volume", "local ephemeral storage usage exceeds", "ephemeral local storage usage exceeds", "exceeded its local ephemeral storage limit"} {
		if strings.Contains(message, greedy) {
			return failed(ReasonScratchExceeded, explain("the program wrote more than its room on disk (kubernetes.classes.<class>.scratch)", message))
		}
	}
	return disruption(ReasonEvicted, explain("the node evicted the pod", message))
}

// disrupted reads the condition in which the cluster announces that it ends a pod.
func disrupted(p *corev1.Pod) (executor.Result, bool) {
	c := condition(p, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue {
		return executor.Result{}, false
	}
	switch c.Reason {
	case corev1.PodReasonPreemptionByScheduler:
		return disruption(ReasonPreempted, explain("a more urgent pod took the room of this one", c.Message)), true
	case "DeletionByTaintManager", "DeletionByPodGC":
		return disruption(ReasonNodeLost, explain("the node "+p.Spec.NodeName+" was lost", c.Message)), true
	case corev1.PodReasonTerminationByKubelet:
		return evicted(c.Message), true
	default: // EvictionByEvictionAPI: a drain, an autoscaler
		return disruption(ReasonEvicted, explain("the pod was evicted from the node "+p.Spec.NodeName, c.Message)), true
	}
}

// exited reads the end of the container.
func exited(p *corev1.Pod, t *corev1.ContainerStateTerminated) executor.Result {
	switch {
	case t == nil && p.Status.Phase == corev1.PodSucceeded:
		return executor.Result{Outcome: executor.Completed, ExitCode: new(0)}
	case t == nil:
		return failed(ReasonPodFailed, explain("the pod failed", cmp.Or(p.Status.Message, p.Status.Reason)))
	case t.Reason == "OOMKilled":
		return withExit(failed(ReasonOutOfMemory, "the program used more than its "+memoryLimit(p)+" of memory: ask for more in requirements.memory_bytes"), t)
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		return startFailure(t.Message)
	case t.Reason == "ContainerStatusUnknown":
		return disruption(ReasonNodeLost, explain("the node "+p.Spec.NodeName+" does not know how the container ended", t.Message))
	case strings.HasPrefix(t.Message, startFailedMark):
		return permanent("start_failed", strings.TrimSpace(strings.TrimPrefix(t.Message, startFailedMark)))
	case t.ExitCode == 0:
		return executor.Result{Outcome: executor.Completed, ExitCode: new(0)}
	}
	if name := signalOf(t); name != "" {
		return withExit(failed("signal", explain("the program was ended by "+signalText(name), said(t))), t)
	}
	return withExit(failed("exit_code", explain(fmt.Sprintf("the program exited with code %d", t.ExitCode), said(t))), t)
}

// said is what the program has written to /dev/termination-log, as far as it is for people.
func said(t *corev1.ContainerStateTerminated) string {
	text, more, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(t.Message, "")), "\n")
	if more != "" {
		text += " ..."
	}
	return text
}

// withExit adds how the container exited, if it did.
func withExit(r executor.Result, t *corev1.ContainerStateTerminated) executor.Result {
	if t == nil || r.Outcome == executor.Abandoned {
		return r
	}
	r.ExitCode = new(int(t.ExitCode))
	r.Signal = signalOf(t)
	return r
}

// signalBase is what a container's runtime, as a shell, adds to the number of the signal
// that ended a program.
const signalBase = 128

// signals are the names of Linux, whatever the worker runs on, by their numbers.
const signals = " HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"

// signalOf names the signal that ended a container; empty if none did.
func signalOf(t *corev1.ContainerStateTerminated) string {
	number := int(t.Signal)
	if number == 0 {
		number = int(t.ExitCode) - signalBase
	}
	names := strings.Split(signals, " ")
	if number <= 0 || number >= len(names) {
		return ""
	}
	return "SIG" + names[number]
}

func signalText(name string) string {
	switch name {
	case "SIGXCPU":
		return name + ": its limit of cpu_seconds was reached"
	case "SIGXFSZ":
		return name + ": its limit of file_bytes was reached"
	default:
		return name
	}
}

// startFailure reads a runtime's words for why it could not start the program.
func startFailure(message string) executor.Result {
	r := failed("start_failed", explain("the container could not be started", message))
	for _, hopeless := range []string{"executable file not found", "no such file or directory", "permission denied", "exec format error", "not a directory", "is a directory"} {
		r.Retryable = r.Retryable && !strings.Contains(message, hopeless)
	}
	return r
}

func memoryLimit(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && c.Name == WorkContainer {
			return limit.String()
		}
	}
	return "limit"
}

// explain adds the cluster's own words to ours.
func explain(what, words string) string {
	words = strings.TrimSpace(words)
	if words == "" {
		return what
	}
	return what + ": " + words
}
