package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

const manifests = "kubernetes"

// all are the objects of the manifests, the tenants' among them.
func all(t *testing.T) []kubetest.Object {
	t.Helper()
	return append(kubetest.Manifests(t, manifests), kubetest.Manifests(t, filepath.Join(manifests, "tenants"))...)
}

// of returns the objects of one kind by their names.
func of[T kubetest.Object](t *testing.T) map[string]T {
	t.Helper()
	found := map[string]T{}
	for _, o := range all(t) {
		if one, ok := o.(T); ok {
			found[o.GetName()] = one
		}
	}
	require.NotEmpty(t, found)
	return found
}

// Each file is a part of what kubectl apply -k applies; no object comes twice.
func TestManifestsAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	namespaces := map[string]bool{}
	for _, o := range all(t) {
		kind := o.GetObjectKind().GroupVersionKind().Kind
		name := kind + " " + o.GetNamespace() + "/" + o.GetName()
		assert.False(t, seen[name], "%s is there twice", name)
		seen[name] = true
		assert.Equal(t, "millrace", o.GetLabels()["app.kubernetes.io/part-of"], name)
		assert.NotEqual(t, kubernetes.ManagedBy, o.GetLabels()[kubernetes.ManagedByLabel], "%s would be taken for work", name)
		if kind == "Namespace" {
			namespaces[o.GetName()] = true
		} else if o.GetNamespace() != "" {
			assert.True(t, namespaces[o.GetNamespace()], "%s comes before its namespace", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(manifests, "*", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		for _, o := range kubetest.Manifests(t, file) {
			name := o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetNamespace() + "/" + o.GetName()
			assert.True(t, seen[name], "%s of %s is in no kustomization", name, file)
		}
	}
}

// Namespaces refuse what is not restricted, those of the work first of all.
func TestManifestsRestrictNamespaces(t *testing.T) {
	t.Parallel()
	spaces := of[*corev1.Namespace](t)
	assert.Len(t, spaces, 3)
	for name, n := range spaces {
		assert.Equal(t, "restricted", n.Labels["pod-security.kubernetes.io/enforce"], name)
	}
	// Whoever makes pods somewhere can give them the accounts of that place.
	for name, account := range of[*corev1.ServiceAccount](t) {
		assert.Equal(t, "millrace", account.Namespace, name)
	}
}

// Nobody reaches a program, and a program nothing of the cluster; the same for tenants.
func TestManifestsFenceTheWork(t *testing.T) {
	t.Parallel()
	var policies []networkingv1.NetworkPolicySpec
	var bounded []string
	for _, o := range all(t) {
		switch o := o.(type) {
		case *networkingv1.NetworkPolicy:
			if o.Name == "work" {
				policies = append(policies, o.Spec)
			}
		case *corev1.ResourceQuota:
			bounded = append(bounded, o.Namespace)
		}
	}
	assert.ElementsMatch(t, []string{"millrace-work", "work-acme"}, bounded)
	require.Len(t, policies, 2)
	assert.Equal(t, policies[0], policies[1])
	p := policies[0]
	assert.Empty(t, p.PodSelector)
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, p.PolicyTypes)
	assert.Empty(t, p.Ingress)
	var except []string
	for _, rule := range p.Egress {
		for _, peer := range rule.To {
			if peer.IPBlock != nil {
				except = append(except, peer.IPBlock.Except...)
			} else {
				assert.Len(t, rule.Ports, 2, "only names")
			}
		}
	}
	assert.Subset(t, except, []string{"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"})
}

func TestManifestsHardenOurPods(t *testing.T) {
	t.Parallel()
	uid := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindAllStringSubmatch(strings.Join(instructions(t), "\n"), -1)
	require.NotEmpty(t, uid)
	for name, d := range of[*appsv1.Deployment](t) {
		p := d.Spec.Template.Spec
		assert.Equal(t, name == "worker", *p.AutomountServiceAccountToken, "only workers talk to the cluster: %s", name)
		assert.Equal(t, name == "worker", p.ServiceAccountName == "millrace-worker", name)
		assert.False(t, *p.EnableServiceLinks, name)
		assert.True(t, *p.SecurityContext.RunAsNonRoot, name)
		assert.Equal(t, uid[len(uid)-1][1], strconv.FormatInt(*p.SecurityContext.RunAsUser, 10), "the user of the image: %s", name)
		assert.GreaterOrEqual(t, *p.TerminationGracePeriodSeconds, int64(120), "docs/operations.md, Stopping: %s", name)
		for _, c := range append(p.InitContainers, p.Containers...) {
			s := c.SecurityContext
			assert.True(t, *s.ReadOnlyRootFilesystem, name)
			assert.False(t, *s.AllowPrivilegeEscalation, name)
			assert.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop, name)
			assert.NotZero(t, c.Resources.Requests.Memory().Value(), name)
			assert.NotZero(t, c.Resources.Limits.Memory().Value(), name)
			assert.Equal(t, "millrace:dev", c.Image, "kustomization.yaml replaces it: %s", name)
		}
		c := p.Containers[0]
		for what, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			require.NotNil(t, probe, name)
			assert.Equal(t, what, probe.HTTPGet.Path, name)
		}
		assert.Equal(t, "/livez", c.StartupProbe.HTTPGet.Path, "what waits for a server is not restarted: %s", name)
		for _, v := range p.Volumes {
			if v.Secret != nil {
				assert.EqualValues(t, 0o440, *v.Secret.DefaultMode, name)
				assert.True(t, v.Secret.SecretName == "millrace-database" || name == "api", "the token is the API's: %s", name)
			}
		}
	}
}

// What selects pods selects those of its Deployment.
func TestManifestsSelectWhatThereIs(t *testing.T) {
	t.Parallel()
	deployments := of[*appsv1.Deployment](t)
	budgets := of[*policyv1.PodDisruptionBudget](t)
	assert.Len(t, budgets, len(deployments))
	selects := func(s *metav1.LabelSelector, d *appsv1.Deployment) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(labels.Set(d.Spec.Template.Labels))
	}
	for name, d := range deployments {
		require.Contains(t, budgets, name)
		for other, o := range deployments {
			assert.Equal(t, other == name, selects(budgets[name].Spec.Selector, o), "budget of %s, pods of %s", name, other)
			assert.Equal(t, other == name, selects(d.Spec.Selector, o), "deployment %s, pods of %s", name, other)
			assert.Equal(t, other == name, selects(d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector, o), "spread of %s, pods of %s", name, other)
		}
	}
	service := of[*corev1.Service](t)["api"]
	require.NotNil(t, service)
	for name, d := range deployments {
		assert.Equal(t, name == "api", labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)), name)
	}
	ports := map[string]int32{}
	for _, port := range deployments["api"].Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, port := range service.Spec.Ports {
		assert.Equal(t, ports[port.TargetPort.String()], port.Port)
	}
}

// TestManifestsSettingsAreKnown loads the configuration of each process as it will.
func TestManifestsSettingsAreKnown(t *testing.T) {
	t.Parallel()
	config := of[*corev1.ConfigMap](t)["millrace"]
	require.NotNil(t, config)
	connections := 0
	var roles []configs.Role
	for name, d := range of[*appsv1.Deployment](t) {
		c := loaded(t, config, d.Spec.Template.Spec.Containers[0])
		roles = append(roles, c.Roles...)
		connections += int(*d.Spec.Replicas) * (int(c.Postgres.MaxConns) + 1)
		assert.Equal(t, configs.Production, c.Env, name)
		if name == "api" {
			assert.Equal(t, configs.TokenFile(c.DataDir), c.API.Auth.TokenFile, "kubectl exec deploy/api -- millrace submit finds it")
		}
		assert.Zero(t, d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue(), "a rollout opens no more connections: %s", name)
		settings := c.Kubernetes.PodSettings()
		settings.Installation = "main"
		_, err := kubernetes.NewBuilder(settings)
		require.NoError(t, err, name)
		assert.Contains(t, of[*corev1.Namespace](t), c.Kubernetes.Namespace, name)
	}
	assert.ElementsMatch(t, configs.Default().Roles, roles, "each role runs in one deployment")
	assert.LessOrEqual(t, connections, 100-3, "PostgreSQL's default, without what is reserved")
}

// loaded is the configuration of a container, whose secrets are files of the test's.
func loaded(t *testing.T, config *corev1.ConfigMap, c corev1.Container) configs.Config {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, filepath.Base(name))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	sources := configs.Sources{Required: []string{"kafka.brokers", "postgres.dsn"}}
	for _, v := range c.Env {
		switch v.Name {
		case "MILLRACE_CONFIG":
			require.Contains(t, config.Data, filepath.Base(v.Value))
			v.Value = write(v.Value, config.Data[filepath.Base(v.Value)])
		case "MILLRACE_POSTGRES_DSN_FILE":
			v.Value = write(v.Value, "postgres://millrace:x@db/millrace")
		case "MILLRACE_DATA_DIR":
			v.Value = dir
			write("token", strings.Repeat("0", 64))
		}
		sources.Environ = append(sources.Environ, v.Name+"="+v.Value)
	}
	require.Equal(t, "--roles", c.Args[1])
	sources.Overrides = []configs.Override{{Path: "roles", Value: c.Args[2], Origin: "--roles"}}
	loaded, err := sources.Load()
	require.NoError(t, err)
	return loaded
}

// Every mount has its volume, and each secret is by reference.
func TestManifestsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	for _, o := range all(t) {
		_, secret := o.(*corev1.Secret)
		assert.False(t, secret, "%s: secrets are made by hand", o.GetName())
	}
	for name, d := range of[*appsv1.Deployment](t) {
		volumes := map[string]bool{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			volumes[v.Name] = false
		}
		for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
			for _, m := range c.VolumeMounts {
				assert.Contains(t, volumes, m.Name, name)
				volumes[m.Name] = true
			}
			for _, v := range c.Env {
				assert.NotRegexp(t, regexp.MustCompile(`(?i)(password|token|dsn|secret)$`), v.Name, "%s is given in the clear", v.Name)
			}
		}
		for volume, used := range volumes {
			assert.True(t, used, "%s: nobody mounts %s", name, volume)
		}
	}
}

// No rule has more than it names: no star, no secrets, nothing that makes rights.
func TestManifestsGrantNothingWide(t *testing.T) {
	t.Parallel()
	var rules []rbacv1.PolicyRule
	for _, o := range all(t) {
		switch o := o.(type) {
		case *rbacv1.Role:
			rules = append(rules, o.Rules...)
		case *rbacv1.ClusterRole:
			rules = append(rules, o.Rules...)
		}
	}
	require.NotEmpty(t, rules)
	for _, r := range rules {
		assert.Equal(t, []string{""}, r.APIGroups)
		assert.Subset(t, []string{"pods", "pods/log", "configmaps", "resourcequotas", "nodes"}, r.Resources)
		assert.NotContains(t, r.Verbs, "*")
	}
}

// TestCommandsOfManifestsExist asks the binary about every command line that the manifests
// give it.
func TestCommandsOfManifestsExist(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	for name, d := range of[*appsv1.Deployment](t) {
		for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
			hasCommand(t, bin, name, c.Args)
		}
	}
}
