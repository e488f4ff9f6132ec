package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

func forbidden(format string, args ...any) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "millrace-x-1", fmt.Errorf(format, args...))
}

func TestWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	ofPods, ofNamespaces := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "namespaces"}
	terminating := forbidden("unable to create new content in namespace work because it is being terminated")
	terminating.(*apierrors.StatusError).ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}} //nolint:errorlint // it was made above
	for name, c := range map[string]struct {
		err     error
		reason  string
		after   time.Duration // zero: Failed for good
		message string
	}{
		"quota used up": {
			forbidden("exceeded quota: work, requested: cpu=250m,pods=1, used: cpu=900m,pods=4, limited: cpu=1,pods=10"),
			kubernetes.ReasonQuotaExceeded, 30 * time.Second, "the cluster has no room: pods \"millrace-x-1\" is forbidden: exceeded quota: work"},
		"quota too small": {
			forbidden("exceeded quota: work, requested: cpu=2,memory=1Gi, used: cpu=0,memory=0, limited: cpu=1500m,memory=8Gi"),
			kubernetes.ReasonQuotaTooSmall, time.Minute, "the pod asks for 2 of cpu, and the quota work allows 1500m in all: raise the quota, or ask for less"},
		"quota of nothing": {
			forbidden("exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"),
			kubernetes.ReasonQuotaTooSmall, time.Minute, "the pod asks for 1 of pods, and the quota none allows 0 in all"},
		"two quotas": {
			forbidden("exceeded quota: a, requested: pods=1, used: pods=2, limited: pods=2, exceeded quota: b, requested: pods=1, used: pods=3, limited: pods=3"),
			kubernetes.ReasonQuotaExceeded, 30 * time.Second, "exceeded quota: b"},
		"quota in other words": {forbidden("exceeded quota: by far"), kubernetes.ReasonQuotaExceeded, 30 * time.Second, "by far"},
		"quota not counted":    {forbidden("status unknown for quota: work, resources: pods"), kubernetes.ReasonQuotaExceeded, 10 * time.Second, "not counted yet"},
		"quota of what is not asked for": {
			forbidden("failed quota: work: must specify limits.cpu for: work"), kubernetes.ReasonPodRefused, 0, "must specify limits.cpu"},
		"no right": {
			errors.Join(apierrors.NewForbidden(ofPods, "", errors.New(`User "system:serviceaccount:millrace:worker" cannot create resource "pods" in API group "" in the namespace "work"`))),
			kubernetes.ReasonForbidden, time.Minute, `the worker lacks a right: apply deploy/kubernetes/work, or see docs/kubernetes.md, "Rights": pods is forbidden: User "system:serviceaccount:millrace:worker" cannot create`},
		"namespace that goes": {terminating, kubernetes.ReasonNamespaceClosing, time.Minute, "the namespace is being deleted"},
		"no namespace":        {apierrors.NewNotFound(ofNamespaces, "work-acme"), kubernetes.ReasonNoNamespace, time.Minute, "create it (kubectl create namespace work-acme)"},
		"pod security":        {forbidden(`violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`), kubernetes.ReasonPodRefused, 0, "violates PodSecurity"},
		"limit range":         {forbidden("maximum cpu usage per Container is 1, but limit is 2"), kubernetes.ReasonPodRefused, 0, "maximum cpu usage"},
		"webhook":             {forbidden(`admission webhook "policy.example" denied the request: images must be signed`), kubernetes.ReasonPodRefused, 0, "images must be signed"},
		"no priority class":   {forbidden("no PriorityClass with name batch was found"), kubernetes.ReasonClusterObject, time.Minute, "the cluster lacks what the settings of the worker name"},
		"no runtime class":    {forbidden(`pod rejected: RuntimeClass "gvisor" not found`), kubernetes.ReasonClusterObject, time.Minute, "gvisor"},
		"no account":          {forbidden("error looking up service account work/default: serviceaccount \"default\" not found"), kubernetes.ReasonClusterObject, time.Minute, "service account"},
		"invalid": {
			apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "millrace-x-1", field.ErrorList{field.Invalid(field.NewPath("spec", "x"), 1, "must be 2")}),
			kubernetes.ReasonPodRefused, 0, "spec.x: Invalid value: 1: must be 2"},
		"bad request":  {apierrors.NewBadRequest("no"), kubernetes.ReasonPodRefused, 0, "the cluster refuses the pod: no"},
		"too large":    {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), kubernetes.ReasonPodRefused, 0, "limit is 3145728"},
		"who are you":  {apierrors.NewUnauthorized("Unauthorized"), kubernetes.ReasonUnauthorized, time.Minute, "its token or certificate is wrong, or has expired"},
		"slow down":    {apierrors.NewTooManyRequests("too many", 25), kubernetes.ReasonThrottled, 25 * time.Second, "kubernetes.qps"},
		"slow down..":  {apierrors.NewTooManyRequests("too many", 1), kubernetes.ReasonThrottled, 10 * time.Second, ""},
		"slow down...": {apierrors.NewTooManyRequestsError("too many"), kubernetes.ReasonThrottled, 10 * time.Second, ""},
	} {
		got, refused := kubernetes.Refused(fmt.Errorf("create pod: %w", c.err))
		require.True(t, refused, name)
		assert.Equal(t, c.reason, got.Reason, name)
		assert.Contains(t, got.Message, c.message, name)
		assert.Equal(t, c.after, got.RetryAfter, name)
		if c.after == 0 {
			assert.Equal(t, executor.Failed, got.Outcome, name)
			assert.False(t, got.Retryable, name)
		} else {
			assert.Equal(t, executor.Abandoned, got.Outcome, "%s: somebody may change it while the work waits", name)
		}
	}
}

func TestFaultsThatPass(t *testing.T) {
	t.Parallel()
	ofPods := schema.GroupResource{Resource: "pods"}
	for name, err := range map[string]error{
		"nil":             nil,
		"unreachable":     &url.Error{Op: "Post", URL: "https://127.0.0.1:1", Err: syscall.ECONNREFUSED},
		"stopped":         context.Canceled,
		"there already":   apierrors.NewAlreadyExists(ofPods, "a"),
		"changed":         apierrors.NewConflict(ofPods, "a", errors.New("the object has been modified")),
		"timeout":         apierrors.NewTimeoutError("slow", 1),
		"server timeout":  apierrors.NewServerTimeout(ofPods, "create", 1),
		"internal":        apierrors.NewInternalError(errors.New("etcdserver: leader changed")),
		"unavailable":     apierrors.NewServiceUnavailable("starting"),
		"gone":            apierrors.NewNotFound(ofPods, "a"),
		"bad gateway":     apierrors.NewGenericServerResponse(http.StatusBadGateway, "post", ofPods, "a", "", 0, true),
		"webhook is down": apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example": connection refused`)),
	} {
		_, refused := kubernetes.Refused(err)
		assert.False(t, refused, name)
	}
}
