package kubernetes

import (
	"time"

	"github.com/millrace/millrace/internal/executor"
)

// The reasons of Results that only this executor gives, beside those that every program
// can end for (exit_code, signal, start_failed, run_limit, invalid_spec). They are stable:
// retry policies name them.
const (
	// The request asks for what cannot be had here; no attempt can end otherwise.

	ReasonImageNotAllowed = "image_not_allowed" // no pattern of kubernetes.images allows the image
	ReasonNoImage         = "no_image"          // the request names none, and there is no default
	ReasonImageInvalid    = "image_invalid"     // the node cannot read its name
	ReasonImageNotFound   = "image_not_found"   // its registry does not have it
	ReasonNeedsTooLarge   = "needs_too_large"   // more than the class gives to one execution
	ReasonInputTooLarge   = "input_too_large"   // script, files, stdin and checkpoint do not fit into a ConfigMap
	ReasonPodRefused      = "pod_refused"       // validation, admission or a policy of the cluster says no
	ReasonNameClash       = "name_clash"        // the name belongs to an object that Millrace has not made

	// The attempt failed, and another one may not.

	ReasonOutOfMemory     = "out_of_memory"     // the kernel ended the program at its memory limit
	ReasonScratchExceeded = "scratch_exceeded"  // it wrote more than its room on disk
	ReasonEvicted         = "evicted"           // the node was short of something, or is being drained
	ReasonPreempted       = "preempted"         // a more urgent pod took its room
	ReasonNodeLost        = "node_lost"         // the node does not answer, or is gone
	ReasonNodeShutdown    = "node_shutdown"     // the node was shut down
	ReasonPodDeleted      = "pod_deleted"       // somebody deleted the pod
	ReasonPodFailed       = "pod_failed"        // the cluster gives no better word
	ReasonImagePull       = "image_pull"        // the image could not be pulled for patience.image
	ReasonContainerConfig = "container_config"  // something that the container needs is missing
	ReasonStartTimeout    = "pod_start_timeout" // the pod had a node, and did not start for patience.start

	// There is no room, or no right, just now: the execution waits and spends no attempt.

	ReasonUnschedulable    = "unschedulable"     // no node has taken the pod for patience.schedule
	ReasonNodeRefused      = "node_refused"      // the node that it was given to has no room after all
	ReasonQuotaExceeded    = "quota_exceeded"    // a ResourceQuota is used up
	ReasonQuotaTooSmall    = "quota_too_small"   // the pod alone is more than a ResourceQuota allows
	ReasonThrottled        = "cluster_throttled" // the API server asks for fewer requests
	ReasonForbidden        = "cluster_forbidden" // the worker lacks a right
	ReasonUnauthorized     = "cluster_unauthorized"
	ReasonNoNamespace      = "namespace_missing"
	ReasonNamespaceClosing = "namespace_terminating"
	ReasonClusterObject    = "cluster_object_missing" // a class, an account or a secret that the settings name
)

// Reasons returns all of them.
func Reasons() []string {
	return []string{
		ReasonImageNotAllowed, ReasonNoImage, ReasonImageInvalid, ReasonImageNotFound, ReasonNeedsTooLarge, ReasonInputTooLarge,
		ReasonPodRefused, ReasonNameClash,
		ReasonOutOfMemory, ReasonScratchExceeded, ReasonEvicted, ReasonPreempted, ReasonNodeLost, ReasonNodeShutdown,
		ReasonPodDeleted, ReasonPodFailed, ReasonImagePull, ReasonContainerConfig, ReasonStartTimeout,
		ReasonUnschedulable, ReasonNodeRefused, ReasonQuotaExceeded, ReasonQuotaTooSmall, ReasonThrottled, ReasonForbidden,
		ReasonUnauthorized, ReasonNoNamespace, ReasonNamespaceClosing, ReasonClusterObject,
	}
}

// How long the work waits before it is offered again: as long as it takes until what it
// waits for may have changed, by itself or by a person.
const (
	soon     = 10 * time.Second
	later    = 30 * time.Second
	byPerson = time.Minute
)

// permanent is a failure that every attempt would end in.
func permanent(reason, message string) executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: reason, Message: message}
}

// failed is a failure that another attempt may not end in.
func failed(reason, message string) executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: reason, Message: message, Retryable: true}
}

// disruption is a failure that is not the work's doing: what it ran on was lost, or taken away.
func disruption(reason, message string) executor.Result {
	r := failed(reason, message)
	r.Disrupted = true
	return r
}

// postponed is no failure: the work is offered again later.
func postponed(reason, message string, after time.Duration) executor.Result {
	return executor.Result{Outcome: executor.Abandoned, Reason: reason, Message: message, Retryable: true, RetryAfter: after}
}
