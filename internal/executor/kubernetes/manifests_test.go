package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

// The API server takes the manifests as they are; admission lets through our own pods and,
// within the bounds that are shipped, those of the work.
func TestTheAPIServerTakesTheManifests(t *testing.T) {
	t.Parallel()
	if !kubetest.IsReal() {
		t.Skip("needs the API server of Kubernetes: run make test-k8s")
	}
	c := kubetest.Start(t)
	dir := kubetest.ManifestsDir(t)
	_, account := c.Deploy(t, "tenants", "work/limits.yaml", "work/network.yaml", "millrace")
	var settings configs.Config
	for _, o := range kubetest.Manifests(t, filepath.Join(dir, "millrace")) {
		switch o := o.(type) {
		case *appsv1.Deployment:
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: o.Name + "-", Labels: o.Spec.Template.Labels}, Spec: o.Spec.Template.Spec}
			_, err := c.Admin().CoreV1().Pods(o.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			require.NoError(t, err, o.Name)
		case *corev1.ConfigMap:
			settings = configured(t, o.Data["millrace.yaml"])
		}
	}
	pods := settings.Kubernetes.PodSettings()
	pods.Installation = "main"
	b, err := kubernetes.NewBuilder(pods)
	require.NoError(t, err)
	client, err := clientset.NewForConfig(account)
	require.NoError(t, err)
	report, err := kubernetes.Probe(t.Context(), client, b, []string{"default"})
	require.NoError(t, err)
	assert.Empty(t, report.Missing)
	assert.Empty(t, report.Wanting)
	assert.Empty(t, report.Refused)

	o, _ := build(t, b, task(`{"command":["true"]}`))
	o.Pod.Spec.SecurityContext.RunAsNonRoot, o.Pod.Spec.SecurityContext.RunAsUser = nil, nil
	_, err = client.CoreV1().Pods(o.Pod.Namespace).Create(t.Context(), o.Pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.Error(t, err)
	result, refused := kubernetes.Refused(err)
	assert.True(t, refused)
	assert.Equal(t, kubernetes.ReasonPodRefused, result.Reason, result.Message)
}

// configured are the settings of a file.
func configured(t *testing.T, text string) configs.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := configs.Sources{File: file, Environ: []string{"MILLRACE_POSTGRES_DSN=postgres://millrace@db/millrace", "MILLRACE_DATA_DIR=" + t.TempDir()}}.Load()
	require.NoError(t, err)
	return c
}
