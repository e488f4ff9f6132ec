package kubetest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

// Rights are those that RBAC gives: only a real API server knows.
func TestRights(t *testing.T) {
	t.Parallel()
	if !kubetest.IsReal() {
		t.Skip("a served API gives everybody all rights: run make test-k8s")
	}
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	_, err := c.Admin().RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Admin().RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "worker", Namespace: ns}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	worker, err := kubernetes.NewForConfig(c.ConfigAs("system:serviceaccount:" + ns + ":worker"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := worker.CoreV1().Pods(ns).Create(t.Context(), shell("one", "true"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	}, kubetest.Patience, tick, "rights are known after a moment")
	err = worker.CoreV1().Pods(ns).Delete(t.Context(), "one", metav1.DeleteOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = worker.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)

	nobody := rest.CopyConfig(c.Config())
	nobody.BearerToken = "wrong"
	client, err := kubernetes.NewForConfig(nobody)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

// The encoding that busy clients use says the same as JSON.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	config := c.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	made, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	require.NoError(t, err)
	list, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, made.UID, list.Items[0].UID)
	assert.Equal(t, []string{"ADDED one 1"}, told(t, follow(t, client, ns, metav1.ListOptions{}), 1))
	require.NoError(t, client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))}))
}
