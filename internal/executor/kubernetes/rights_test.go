package kubernetes_test

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// everywhere is the namespace of a right that is not in a namespace.
const everywhere = "*"

// right is a verb on a resource in a namespace.
type right struct{ namespace, verb, resource string }

// rightsSet are rights.
type rightsSet map[right]bool

// has says whether a right is granted, be it everywhere.
func (s rightsSet) has(r right) bool { return s[r] || s[right{everywhere, r.verb, r.resource}] }

// without returns those that are not in other.
func (s rightsSet) without(other rightsSet) []right {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s)), func(r right) bool { return other[r] })
}

// granted are the rights that bindings in manifests give to workers.
func granted(t *testing.T, all []kubetest.Object) rightsSet {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range all {
		switch o := o.(type) {
		case *rbacv1.Role:
			rules["Role "+o.Namespace+"/"+o.Name] = o.Rules
		case *rbacv1.ClusterRole:
			rules["ClusterRole "+o.Name] = o.Rules
		}
	}
	set := rightsSet{}
	grant := func(namespace, role string, subjects []rbacv1.Subject) {
		require.Contains(t, rules, role)
		require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "millrace-worker", Namespace: "millrace"}}, subjects)
		for _, rule := range rules[role] {
			require.Equal(t, []string{""}, rule.APIGroups)
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					set[right{namespace, verb, resource}] = true
				}
			}
		}
	}
	for _, o := range all {
		switch o := o.(type) {
		case *rbacv1.RoleBinding:
			role := "ClusterRole " + o.RoleRef.Name
			if o.RoleRef.Kind == "Role" {
				role = "Role " + o.Namespace + "/" + o.RoleRef.Name
			}
			grant(o.Namespace, role, o.Subjects)
		case *rbacv1.ClusterRoleBinding:
			grant(everywhere, "ClusterRole "+o.RoleRef.Name, o.Subjects)
		}
	}
	require.NotEmpty(t, set)
	return set
}

// deployment is one way in which the manifests have the work done.
type deployment struct {
	// further are the manifests beside those of Deploy, and files those whose rights it needs.
	further, files []string
	// namespace is where the pods of tenant are.
	namespace, perTenant, tenant string
}

func deployments() map[string]deployment {
	return map[string]deployment{
		"one namespace":               {nil, []string{"work/rights.yaml", "work/nodes.yaml"}, "millrace-work", "", "acme"},
		"a namespace for each tenant": {[]string{"tenants"}, []string{"tenants", "work/nodes.yaml"}, "work-acme", "work-{tenant}", "acme"},
	}
}

// manifests are the objects of its files.
func (d deployment) manifests(t *testing.T) []kubetest.Object {
	t.Helper()
	var all []kubetest.Object
	for _, file := range d.files {
		all = append(all, kubetest.Manifests(t, filepath.Join(kubetest.ManifestsDir(t), filepath.FromSlash(file)))...)
	}
	return all
}

// What the executor says that it needs, and asks the cluster for when it starts, is what the
// manifests grant.
func TestTheManifestsGrantTheRightsOfTheExecutor(t *testing.T) {
	t.Parallel()
	for name, d := range deployments() {
		b := newBuilder(t, func(s *kubernetes.Settings) { s.NamespacePerTenant = d.perTenant })
		needed := rightsSet{}
		for _, r := range b.Rights() {
			namespace := d.namespace
			if r.ClusterWide {
				namespace = everywhere
			}
			for _, verb := range r.Verbs {
				needed[right{namespace, verb, r.Resource}] = true
			}
		}
		assert.Equal(t, needed, granted(t, d.manifests(t)), name)
	}
}

// The page that people grant them by has the same.
func TestTheRightsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(kubetest.ManifestsDir(t), "..", "..", "docs", "kubernetes.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Rights\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	documented, resource := map[string]bool{}, ""
	for _, row := range regexp.MustCompile("(?m)^\\| *(?:`([a-z/]+)`[^|]*)?\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
		if row[1] != "" {
			resource = row[1]
		}
		for verb := range strings.SplitSeq(row[2], ", ") {
			documented[strings.Trim(verb, "`")+" "+resource] = true
		}
	}
	needed := map[string]bool{}
	for _, r := range newBuilder(t).Rights() {
		for _, verb := range r.Verbs {
			needed[verb+" "+r.Resource] = true
		}
	}
	assert.Equal(t, needed, documented)

	_, section, found = strings.Cut(string(page), "\n## Troubleshooting\n")
	require.True(t, found)
	known := append(kubernetes.Reasons(), "start_failed")
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(section, -1) {
		for _, reason := range regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`").FindAllStringSubmatch(row[1], -1) {
			assert.Contains(t, known, reason[1], "docs/kubernetes.md explains a reason that there is not")
		}
	}
}

// accounting keeps which rights calls take, and what the API server refuses.
type accounting struct {
	mu      sync.Mutex
	used    rightsSet
	refused []string
}

// note implements faults.Match, and matches nothing.
func (a *accounting) note(c faults.Call) bool {
	r := right{c.Namespace, c.Verb, c.Resource}
	if c.Namespace == "" {
		r.namespace = everywhere
	}
	if c.Subresource != "" {
		r.resource += "/" + c.Subresource
	}
	if c.Verb == "log" {
		r.verb = "get"
	}
	// What everybody may who is known to the cluster, and /version.
	if c.Resource != "" && c.Resource != "selfsubjectaccessreviews" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.used[r] = true
	}
	return false
}

// watch is what a client's transport is wrapped in.
func (a *accounting) watch(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && answer.StatusCode == http.StatusForbidden {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.refused = append(a.refused, r.Method+" "+r.URL.Path)
		}
		return answer, err
	})
}

func (a *accounting) get() (used rightsSet, refused []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.used), slices.Clone(a.refused)
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The executor does all that it does with the rights of the manifests, and uses each.
func TestTheExecutorUsesEachRightOfTheManifestsAndNoOther(t *testing.T) {
	t.Parallel()
	for name, d := range deployments() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t)
			s := &side{Cluster: c, t: t, node: c.AddNode(t, kubetest.Node{}), book: newBook()}
			common, account := c.Deploy(t, d.further...)
			s.namespace, s.account = d.namespace, account
			s.settings = kubernetes.Settings{
				Installation: "test", Namespace: common, NamespacePerTenant: d.perTenant, DefaultImage: "busybox", Grace: time.Second,
			}
			books := &accounting{used: rightsSet{}}
			s.account.Wrap(books.watch)
			c.Gate().Inject(faults.Fault{Match: books.note})
			exercise(t, s, d.tenant)

			allowed := granted(t, d.manifests(t))
			require.Eventually(t, func() bool {
				used, _ := books.get()
				return len(allowed.without(used)) == 0
			}, executortest.Patience, 10*time.Millisecond, "not everything that is granted is used")
			used, refused := books.get()
			for r := range used {
				assert.True(t, allowed.has(r), "%v is used and not granted", r)
			}
			assert.Empty(t, refused)
		})
	}
}

// exercise has executors do what they do: an answer is lost, a worker dies, another one
// carries on, cancels, runs, tidies up.
func exercise(t *testing.T, s *side, tenant string) {
	t.Helper()
	for _, resource := range []string{"pods", "configmaps"} {
		s.Gate().Inject(faults.Fault{Match: faults.On("create", resource), Times: 1, Lost: true})
	}
	// An API server that does not stream lists, as those before 1.34 do not.
	s.Gate().Inject(faults.Fault{
		Match: func(c faults.Call) bool {
			return c.Verb == "watch" && c.Request.URL.Query().Get("sendInitialEvents") != ""
		},
		Answer: apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
	})
	first, kill := s.worker(classes)
	task := taskOf(script(beat))
	task.Tenant = tenant
	a := executortest.StartTask(t, first, task, long)
	a.WaitStdout(t, "beat")
	kill()
	a.Lease.Extend(0)
	require.Equal(t, executor.Abandoned, a.Wait(t).Outcome)

	second, _ := s.worker(classes)
	task.First, task.Attempt = 1, 2
	a = executortest.StartTask(t, second, task, long)
	a.WaitStdout(t, "beat")
	a.Cancel(executor.ErrCancelled)
	require.Equal(t, executor.Cancelled, a.Wait(t).Outcome)
	second.Settle(t.Context(), task)
	require.NoError(t, second.Sweep(t.Context()))
	s.empty(task.ExecutionID)
	require.Equal(t, 1, s.Started(task.ExecutionID))

	other := taskOf(script("true"))
	other.Tenant = tenant
	require.Equal(t, executor.Completed, executortest.StartTask(t, second, other, long).Wait(t).Outcome)
	second.Settle(t.Context(), other)
	s.empty(other.ExecutionID)
}

// Whatever right is taken away, the worker says at its start which one it was.
func TestARightThatIsTakenAwayIsMissed(t *testing.T) {
	t.Parallel()
	if !kubetest.IsReal() {
		t.Skip("a served API gives everybody all rights: run make test-k8s")
	}
	for name, d := range deployments() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t)
			_, account := c.Deploy(t, d.further...)
			account.QPS, account.Burst = 1000, 1000
			client, err := clientset.NewForConfig(account)
			require.NoError(t, err)
			b := newBuilder(t, func(s *kubernetes.Settings) {
				s.Namespace, s.NamespacePerTenant = d.namespace, d.perTenant
			})
			// Roles take effect after a moment, in the middle of a probe perhaps.
			lacks := func(wanted ...string) {
				t.Helper()
				require.Eventually(t, func() bool {
					report, err := kubernetes.Probe(t.Context(), client, b, []string{"default"})
					found := slices.Concat(report.Missing, report.Wanting)
					return err == nil && len(report.Refused) == 0 && slices.EqualFunc(found, wanted, strings.HasPrefix)
				}, executortest.Patience, 20*time.Millisecond, "lacking %v", wanted)
			}
			lacks()
			for _, o := range d.manifests(t) {
				each(o, func(less kubetest.Object, verb, resource string) {
					replaceRole(t, c, less)
					lacks(verb + " " + resource)
				}, func() { replaceRole(t, c, o) })
			}
			lacks()
		})
	}
}

// each calls try with a copy of a role for each of its rights, which it lacks; done after
// the last.
func each(o kubetest.Object, try func(less kubetest.Object, verb, resource string), done func()) {
	var rules []rbacv1.PolicyRule
	var copied func() (kubetest.Object, []rbacv1.PolicyRule)
	switch o := o.(type) {
	case *rbacv1.Role:
		rules = o.Rules
		copied = func() (kubetest.Object, []rbacv1.PolicyRule) { r := o.DeepCopy(); return r, r.Rules }
	case *rbacv1.ClusterRole:
		rules = o.Rules
		copied = func() (kubetest.Object, []rbacv1.PolicyRule) { r := o.DeepCopy(); return r, r.Rules }
	default:
		return
	}
	for i, rule := range rules {
		for _, verb := range rule.Verbs {
			less, left := copied()
			// A rule needs a verb; this one means nothing.
			left[i].Verbs = append(slices.DeleteFunc(left[i].Verbs, func(v string) bool { return v == verb }), "none")
			try(less, verb, rule.Resources[0])
		}
	}
	done()
}

// replaceRole replaces a role.
func replaceRole(t *testing.T, c *kubetest.Cluster, o kubetest.Object) {
	t.Helper()
	var err error
	switch o := o.(type) {
	case *rbacv1.Role:
		_, err = c.Admin().RbacV1().Roles(o.Namespace).Update(t.Context(), o, metav1.UpdateOptions{})
	case *rbacv1.ClusterRole:
		_, err = c.Admin().RbacV1().ClusterRoles().Update(t.Context(), o, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
}
