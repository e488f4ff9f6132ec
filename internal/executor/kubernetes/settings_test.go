package kubernetes_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor/kubernetes"
)

func TestAllFaultsOfSettingsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := kubernetes.NewBuilder(kubernetes.Settings{
		Namespace: "Work", NamespacePerTenant: "work", DefaultImage: "Debian", Images: []string{"", "a b", "python:", "python@", "ok"},
		Grace: -1, User: -1, Group: 1 << 40, PullSecrets: []string{"a_b"},
		Default: kubernetes.Class{CPUMillis: 2, MaxCPUMillis: 1, MemoryBytes: -1, ScratchBytes: -1, MaxGPUs: -1},
		Classes: map[string]kubernetes.Class{"gpu": {
			GPUResource: "gpu", NodeSelector: map[string]string{"a b": "c", "d": "e f"}, Tolerations: []string{"", "a=b c", "a:Never", "a=b:NoSchedule", "*"},
			RuntimeClass: "G", PriorityClass: "P", MaxMemoryBytes: 1,
		}},
	})
	var got []string
	for _, line := range strings.Split(err.Error(), "\n") {
		path, _, _ := strings.Cut(line, ": ")
		got = append(got, path)
	}
	assert.Equal(t, []string{
		"kubernetes.installation", "kubernetes.namespace", "kubernetes.namespace_per_tenant", "kubernetes.pull_secrets",
		"kubernetes.images", "kubernetes.images", "kubernetes.images", "kubernetes.images", "kubernetes.default_image",
		"kubernetes.grace", "kubernetes.user", "kubernetes.group",
		"kubernetes.default_class.cpu", "kubernetes.default_class.memory", "kubernetes.default_class.scratch", "kubernetes.default_class.gpus_max",
		"kubernetes.classes.gpu.memory", "kubernetes.classes.gpu.gpu_resource", "kubernetes.classes.gpu.node_selector", "kubernetes.classes.gpu.node_selector",
		"kubernetes.classes.gpu.tolerations", "kubernetes.classes.gpu.tolerations", "kubernetes.classes.gpu.tolerations",
		"kubernetes.classes.gpu.runtime_class", "kubernetes.classes.gpu.priority_class",
	}, got, err)
	var fault kubernetes.SettingError
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, "installation", fault.Setting)
	require.Error(t, errors.Unwrap(fault))

	for name, change := range map[string]func(*kubernetes.Settings){
		"nothing can run": func(s *kubernetes.Settings) { s.DefaultImage, s.Images = "", nil },
		"once":            func(s *kubernetes.Settings) { s.NamespacePerTenant = "{tenant}{tenant}" },
		"room":            func(s *kubernetes.Settings) { s.NamespacePerTenant = strings.Repeat("a", 24) + "{tenant}" },
		"cannot be":       func(s *kubernetes.Settings) { s.NamespacePerTenant = "{tenant}_" },
		"must be between": func(s *kubernetes.Settings) { s.Grace = 25 * time.Hour },
	} {
		s := settings()
		change(&s)
		assert.ErrorContains(t, s.Check(), name)
	}
}

// Whoever reads a reason somewhere finds it explained.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/executors.md")
	require.NoError(t, err)
	for _, reason := range kubernetes.Reasons() {
		assert.Contains(t, string(doc), "`"+reason+"`")
		assert.Regexp(t, `^[a-z][a-z0-9_]{0,63}$`, reason)
	}
}
