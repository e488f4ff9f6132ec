package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/pods"
)

func TestNamesAreThoseOfTheRun(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "millrace-"+executionID+"-1", kubernetes.Name(executionID, 1))
	assert.Equal(t, "millrace-"+executionID+"-2147483647", kubernetes.Name(executionID, 1<<31-1))
	assert.Regexp(t, `^millrace--[a-v0-9]{32}-3$`, kubernetes.Name("Order #7", 3))
}

// ids are those that are apt to collide: alike, long, with hyphens and digits at their ends.
func ids() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z0-9-]{1,60}`), rapid.StringMatching(`[aA._-]{1,4}`), rapid.StringMatching(`-?[a-v0-9]{32}(-1)?`), rapid.StringN(1, 40, 255),
	)
}

func TestNamesAreValidAndEachRunHasItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids().Draw(t, "a"), ids().Draw(t, "b")
		m, n := rapid.IntRange(1, 1<<31-1).Draw(t, "m"), rapid.IntRange(1, 12).Draw(t, "n")
		for _, name := range []string{kubernetes.Name(a, m), kubernetes.Name(b, n)} {
			if said := validation.IsDNS1123Label(name); len(said) > 0 {
				t.Fatalf("%q: %v", name, said)
			}
		}
		if kubernetes.Name(a, m) == kubernetes.Name(b, n) && (a != b || m != n) {
			t.Fatalf("%q %d and %q %d have one name", a, m, b, n)
		}
		if kubernetes.Name(a, n) == kubernetes.Name(a, n+1) {
			t.Fatalf("two runs of %q have one name", a)
		}
	})
}

func TestNamespacesOfTenants(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	assert.Equal(t, "work", b.Namespace("acme"))
	assert.False(t, b.NamespacesByTenant())

	b = newBuilder(t, func(s *kubernetes.Settings) { s.NamespacePerTenant, s.CommonTenant = "work-{tenant}-jobs", "default" })
	assert.True(t, b.NamespacesByTenant())
	assert.Equal(t, "work", b.Namespace(""), "those without a tenant have the common one")
	assert.Equal(t, "work", b.Namespace("default"), "and so has the tenant of those who name none")
	assert.Equal(t, "work-acme-jobs", b.Namespace("acme"))
	assert.Regexp(t, `^work-acme--[a-v0-9]{32}-jobs$`, b.Namespace("Acme"))
	assert.NotEqual(t, b.Namespace("Acme"), b.Namespace("ACME"), "tenants that differ in case")
	rapid.Check(t, func(t *rapid.T) {
		x, y := ids().Draw(t, "x"), ids().Draw(t, "y")
		if said := validation.IsDNS1123Label(b.Namespace(x)); len(said) > 0 {
			t.Fatalf("%q: %v", b.Namespace(x), said)
		}
		if x != y && b.Namespace(x) == b.Namespace(y) {
			t.Fatalf("%q and %q share a namespace", x, y)
		}
		// One tenant cannot take the name that another one was given.
		if taken := strings.TrimSuffix(strings.TrimPrefix(b.Namespace(x), "work-"), "-jobs"); taken != x && b.Namespace(taken) == b.Namespace(x) {
			t.Fatalf("%q gets the namespace of %q", taken, x)
		}
	})
}

func TestLabelsSelectWhatBelongsTogether(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, func(s *kubernetes.Settings) { s.Installation = "Main Street" })
	rapid.Check(t, func(t *rapid.T) {
		one := task(`{"script":"echo"}`)
		one.ExecutionID, one.Tenant, one.Class = ids().Draw(t, "id"), ids().Draw(t, "tenant"), rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`).Draw(t, "class")
		one.First, one.Attempt = 3, 5
		o, err := b.Build(one)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range []metav1.Object{o.Pod, o.ConfigMap} {
			for key, value := range obj.GetLabels() {
				if said := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(said) > 0 {
					t.Fatalf("%s=%q: %v", key, value, said)
				}
			}
			set := labels.Set(obj.GetLabels())
			if !kubernetes.Selector("Main Street").Matches(set) || kubernetes.Selector("Main").Matches(set) {
				t.Fatal("the installation's selector")
			}
			if !kubernetes.ExecutionSelector("Main Street", one.ExecutionID).Matches(set) || kubernetes.ExecutionSelector("Main Street", one.ExecutionID+"x").Matches(set) {
				t.Fatal("the execution's selector")
			}
			if run, ok := kubernetes.RunOf(obj); !ok || run != (pods.Run{ExecutionID: one.ExecutionID, First: 3}) {
				t.Fatalf("%v %v", run, ok)
			}
		}
	})
}

func TestWhatMillraceHasNotMadeIsNoRun(t *testing.T) {
	t.Parallel()
	o, _ := build(t, newBuilder(t), task(`{"command":["true"]}`))
	pod := o.Pod
	pod.UID = "u"
	got, ok := kubernetes.PodOf(pod)
	require.True(t, ok)
	assert.Equal(t, pods.Pod{ExecutionID: executionID, First: 1, UID: "u", Namespace: "work", Name: pod.Name}, got)
	for _, change := range []func(*corev1.Pod){
		func(p *corev1.Pod) { delete(p.Labels, kubernetes.ManagedByLabel) },
		func(p *corev1.Pod) { p.Labels[kubernetes.FirstLabel] = "0" },
		func(p *corev1.Pod) { p.Labels[kubernetes.FirstLabel] = "one" },
		func(p *corev1.Pod) { p.Annotations = nil },
	} {
		other := pod.DeepCopy()
		change(other)
		_, ok := kubernetes.RunOf(other)
		assert.False(t, ok)
		_, ok = kubernetes.PodOf(other)
		assert.False(t, ok)
		assert.Empty(t, kubernetes.Facts(other))
	}
}

func TestObjectsOfOthersClash(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	one := task(`{"script":"echo"}`)
	o, _ := build(t, b, one)
	_, clash := b.Clash(o.Pod, one)
	assert.False(t, clash)
	_, clash = b.Clash(o.ConfigMap, one)
	assert.False(t, clash)
	next := one
	next.Attempt = 2
	_, clash = b.Clash(o.Pod, next)
	assert.False(t, clash, "a later attempt carries the same run on")

	result, clash := b.Clash(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.Pod.Name, Namespace: "work"}}, one)
	assert.True(t, clash)
	assert.Equal(t, kubernetes.ReasonNameClash, result.Reason)
	assert.False(t, result.Retryable)
	assert.Equal(t, fmt.Sprintf("an object that Millrace has not made has the name %s in the namespace work: delete it, or give each installation a namespace of its own (kubernetes.namespace)", o.Pod.Name), result.Message)
	theirs, _ := build(t, newBuilder(t, func(s *kubernetes.Settings) { s.Installation = "other" }), one)
	result, clash = b.Clash(theirs.Pod, one)
	assert.True(t, clash)
	assert.Contains(t, result.Message, `an object of the installation "other" has the name`)
}
