package kubernetes

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor"
)

// Refused makes a Result of the API server's answer to a creation: what cannot succeed is
// Failed, what has no room, or no right, just now is Abandoned with a RetryAfter. False is
// for faults that are gone in a moment (the server cannot be reached, 5xx), which the
// caller tries again, and for AlreadyExists, which is an answer (Clash).
//
// A refusal whose cause lies with the cluster or with the worker's settings fails no
// execution: a person may take it away while it waits.
func Refused(err error) (executor.Result, bool) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return executor.Result{}, false
	}
	s := status.Status()
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return executor.Result{}, false
	case apierrors.IsForbidden(err):
		return forbidden(s), true
	case apierrors.IsUnauthorized(err):
		return postponed(ReasonUnauthorized, explain("the API server does not know the worker: its token or certificate is wrong, or has expired", s.Message), byPerson), true
	case apierrors.IsTooManyRequests(err):
		after := soon
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			after = max(after, time.Duration(seconds)*time.Second)
		}
		return postponed(ReasonThrottled, explain("the API server asks for fewer requests (kubernetes.qps bounds those of this worker)", s.Message), after), true
	case apierrors.IsNotFound(err) && s.Details != nil && s.Details.Kind == "namespaces":
		return postponed(ReasonNoNamespace, fmt.Sprintf("there is no namespace %s: create it (kubectl create namespace %s)", s.Details.Name, s.Details.Name), byPerson), true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err):
		return refusedPod(s.Message), true
	default:
		return executor.Result{}, false
	}
}

// refusedPod is for what validation and admission refuse. A class or an account that is
// not there is no fault of the request.
func refusedPod(message string) executor.Result {
	if missing := missingObject.FindString(message); missing != "" {
		return postponed(ReasonClusterObject, explain("the cluster lacks what the settings of the worker name", message), byPerson)
	}
	return permanent(ReasonPodRefused, explain("the cluster refuses the pod", message))
}

// missingObject is how admission speaks of what a pod names and the cluster does not have.
var missingObject = regexp.MustCompile(`(?i)no PriorityClass with name|RuntimeClass "[^"]*" not found|runtimeclass\S* "[^"]*" not found|error looking up service ?account|serviceaccounts? "[^"]*" not found`)

// forbidden tells the many things that are 403 from each other; words are all that there is
// to tell them by.
func forbidden(s metav1.Status) executor.Result {
	switch message := s.Message; {
	case hasCause(s, corev1.NamespaceTerminatingCause) || strings.Contains(message, "because it is being terminated"):
		return postponed(ReasonNamespaceClosing, explain("the namespace is being deleted", message), byPerson)
	case strings.Contains(message, "exceeded quota:"):
		return overQuota(message)
	case strings.Contains(message, "failed quota:"):
		return permanent(ReasonPodRefused, explain("a ResourceQuota counts what pods of this class do not ask for", message))
	case strings.Contains(message, "status unknown for quota"):
		return postponed(ReasonQuotaExceeded, explain("a ResourceQuota is not counted yet", message), soon)
	case strings.Contains(message, "User \"") && strings.Contains(message, "cannot "):
		return postponed(ReasonForbidden, explain("the worker lacks a right: apply deploy/kubernetes/work, or see docs/kubernetes.md, \"Rights\"", message), byPerson)
	default:
		return refusedPod(message)
	}
}

func hasCause(s metav1.Status, cause metav1.CauseType) bool {
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Type == cause {
				return true
			}
		}
	}
	return false
}

// quotaPart is one part of a quota's refusal:
//
//	exceeded quota: work, requested: cpu=2,pods=1, used: cpu=3,pods=2, limited: cpu=4,pods=2
var quotaPart = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*?), used: .*?, limited: (\S*?)(?:, exceeded quota|$)`)

// overQuota tells a quota that is used up from one that the pod alone is more than, for
// which there is nothing to wait but a person.
func overQuota(message string) executor.Result {
	if m := quotaPart.FindStringSubmatch(message); m != nil {
		requested, limited := quantities(m[2]), quantities(m[3])
		for _, name := range sortedKeys(requested) {
			want := requested[name]
			if most, ok := limited[name]; ok && want.Cmp(most) > 0 {
				return postponed(ReasonQuotaTooSmall, fmt.Sprintf(
					"the pod asks for %s of %s, and the quota %s allows %s in all: raise the quota, or ask for less", want.String(), name, m[1], most.String()), byPerson)
			}
		}
	}
	return postponed(ReasonQuotaExceeded, explain("the cluster has no room", message), later)
}

func quantities(list string) map[string]resource.Quantity {
	all := make(map[string]resource.Quantity)
	for pair := range strings.SplitSeq(list, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if q, err := resource.ParseQuantity(text); err == nil {
			all[name] = q
		}
	}
	return all
}
