package kubetest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	yaml "go.yaml.in/yaml/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

const (
	// manifests is where those of the repository are.
	manifests = "deploy/kubernetes"
	// workNamespace is where they have the work done, and who workers are.
	workNamespace = "millrace-work"
	accounts      = "system:serviceaccounts"
	workers       = accounts + ":millrace"
	worker        = "system:serviceaccount:millrace:millrace-worker"
)

// ManifestsDir is where the manifests of the repository are, seen from the test that runs.
func ManifestsDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		path := filepath.Join(dir, filepath.FromSlash(manifests))
		if _, err := os.Stat(path); err == nil {
			return path
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, dir, up, "there is no %s above", manifests)
		dir = up
	}
}

// Deploy prepares a cluster for work as the manifests of the repository do, but for the
// bounds: with the namespace of the work, which takes restricted pods only, and with the
// rights of workers. further are more of its files. It returns the namespace, and what a
// client of a worker is made from, which has those rights and no others.
//
// A served cluster gives everybody all rights, and knows nothing of restrictions.
func (c *Cluster) Deploy(t testing.TB, further ...string) (namespace string, config *rest.Config) {
	t.Helper()
	dir := ManifestsDir(t)
	config = c.ConfigAs(worker, accounts, workers, "system:authenticated")
	var all []Object
	for _, file := range append([]string{"work/namespaces.yaml", "work/rights.yaml", "work/nodes.yaml"}, further...) {
		all = append(all, Manifests(t, filepath.Join(dir, filepath.FromSlash(file)))...)
	}
	for _, o := range all {
		if IsReal() || o.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
			c.Apply(t, o)
		}
	}
	if IsReal() {
		c.counted(t, all)
		known(t, config, all)
	}
	return workNamespace, config
}

// counted returns when quotas hold: until then pods are refused.
func (c *Cluster) counted(t testing.TB, all []Object) {
	t.Helper()
	for _, o := range all {
		if quota, ok := o.(*corev1.ResourceQuota); ok {
			require.Eventually(t, func() bool {
				now, err := c.admin.CoreV1().ResourceQuotas(quota.Namespace).Get(t.Context(), quota.Name, metav1.GetOptions{})
				return err == nil && marshal(t, now.Status.Hard) == marshal(t, quota.Spec.Hard)
			}, Patience, 10*time.Millisecond)
		}
	}
}

// known returns when the API server knows the rights that roles give.
func known(t testing.TB, config *rest.Config, all []Object) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	may := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				resource, sub, _ := strings.Cut(rule.Resources[0], "/")
				asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: resource, Subresource: sub},
				}}
				require.Eventually(t, func() bool {
					answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), asked, metav1.CreateOptions{})
					return err == nil && answer.Status.Allowed
				}, Patience, 20*time.Millisecond, "%s %s", verb, rule.Resources[0])
			}
		}
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range all {
		switch o := o.(type) {
		case *rbacv1.Role:
			rules[o.Namespace+"/"+o.Name] = o.Rules
		case *rbacv1.ClusterRole:
			rules["/"+o.Name] = o.Rules
		case *rbacv1.RoleBinding:
			from := ""
			if o.RoleRef.Kind == "Role" {
				from = o.Namespace
			}
			may(o.Namespace, rules[from+"/"+o.RoleRef.Name])
		case *rbacv1.ClusterRoleBinding:
			may("", rules["/"+o.RoleRef.Name])
		}
	}
}

// kustomization is what is understood of a kustomization; anything else is an error.
type kustomization struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Resources  []string `yaml:"resources"`
	Images     []struct {
		Name    string `yaml:"name"`
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
	} `yaml:"images"`
}

// Manifests reads what kubectl apply -k would apply of a folder, in its order, or what is in
// one file. It is strict: a member that its kind does not have fails the test. The images of
// kustomizations are not put in.
func Manifests(t testing.TB, path string) []Object {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	if !info.IsDir() {
		return objects(t, path)
	}
	text, err := os.ReadFile(filepath.Join(path, "kustomization.yaml"))
	require.NoError(t, err)
	var k kustomization
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&k), path)
	require.Equal(t, "kustomize.config.k8s.io/v1beta1 Kustomization", k.APIVersion+" "+k.Kind, path)
	var all []Object
	for _, resource := range k.Resources {
		all = append(all, Manifests(t, filepath.Join(path, resource))...)
	}
	return all
}

// objects are those of a file.
func objects(t testing.TB, path string) []Object {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []Object
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, all, path)
			return all
		}
		require.NoError(t, err, path)
		decoded, _, err := decoder.Decode(document, nil, nil)
		require.NoError(t, err, "%s:\n%s", path, document)
		object, ok := decoded.(Object)
		require.True(t, ok, "%s: %T", path, decoded)
		all = append(all, object)
	}
}

// Apply makes objects, as an administrator.
func (c *Cluster) Apply(t testing.TB, all ...Object) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.direct())
	require.NoError(t, err)
	for _, o := range all {
		kind := o.GetObjectKind().GroupVersionKind()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		of := client.Resource(resource)
		made := &unstructured.Unstructured{Object: content}
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if namespace := o.GetNamespace(); namespace != "" {
			_, err = of.Namespace(namespace).Create(t.Context(), made, options)
		} else {
			_, err = of.Create(t.Context(), made, options)
		}
		require.NoError(t, err, "%s %s/%s", kind.Kind, o.GetNamespace(), o.GetName())
	}
}
