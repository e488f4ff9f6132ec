package configs_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

func TestKubernetes(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
worker: {executors: [kubernetes]}
kubernetes:
  installation: prod
  namespace: work
  namespace_per_tenant: work-{tenant}
  images: ["python:3.*", ghcr.io/acme/**]
  grace: 10s
  patience: {image: 1m, force: 5s}
  capacity: nodes
  classes:
    gpu:
      gpus_max: 4
      cpu: 500m
      memory_max: 64GiB
      node_selector: {nvidia.com/gpu.product: H100}
      tolerations: [nvidia.com/gpu:NoSchedule]
      runtime_class: nvidia
`)
	c, err := configs.Sources{File: file, Environ: []string{
		"MILLRACE_KUBERNETES_CLASSES_GPU_CPU_MAX=16", "MILLRACE_KUBERNETES_CLASSES_SMALL_MEMORY=64MiB", "MILLRACE_KUBERNETES_CLASSES_SMALL_NODE_SELECTOR=pool=small,disk=ssd",
	}}.Load()
	require.NoError(t, err)
	assert.Equal(t, kubernetes.Settings{
		Installation: "prod", Namespace: "work", NamespacePerTenant: "work-{tenant}", CommonTenant: "default", DefaultImage: "docker.io/library/debian:13-slim",
		Images: []string{"python:3.*", "ghcr.io/acme/**"}, Grace: 10 * time.Second, User: kubernetes.UserDefault,
		Capacity: kubernetes.CapacityNodes,
		Classes: map[string]kubernetes.Class{
			"gpu": {
				CPUMillis: 500, MemoryBytes: 256 << 20, ScratchBytes: 1 << 30, MaxCPUMillis: 16_000, MaxMemoryBytes: 64 << 30, MaxGPUs: 4,
				GPUResource: "nvidia.com/gpu", NodeSelector: map[string]string{"nvidia.com/gpu.product": "H100"},
				Tolerations: []string{"nvidia.com/gpu:NoSchedule"}, RuntimeClass: "nvidia",
			},
			"small": {
				CPUMillis: 250, MemoryBytes: 64 << 20, ScratchBytes: 1 << 30, GPUResource: "nvidia.com/gpu",
				NodeSelector: map[string]string{"pool": "small", "disk": "ssd"},
			},
		},
	}, withoutEmpty(c.Kubernetes.PodSettings()))
	assert.Equal(t, kubernetes.Patience{
		Schedule: 5 * time.Minute, Image: time.Minute, Start: 10 * time.Minute, Node: time.Minute, Output: 15 * time.Second, Force: 5 * time.Second,
	}, c.Kubernetes.PodPatience())
	assert.Equal(t, kubernetes.RelistDefault, c.Kubernetes.Relist)
	assert.Equal(t, kubernetes.KeepDefault, c.Kubernetes.Keep)
}

// withoutEmpty makes nil of what is empty.
func withoutEmpty(s kubernetes.Settings) kubernetes.Settings {
	if len(s.PullSecrets) == 0 {
		s.PullSecrets = nil
	}
	for name, c := range s.Classes {
		if len(c.NodeSelector) == 0 {
			c.NodeSelector = nil
		}
		if len(c.Tolerations) == 0 {
			c.Tolerations = nil
		}
		s.Classes[name] = c
	}
	return s
}

func TestTheQuotaOfOneNamespaceIsNotThatOfMany(t *testing.T) {
	t.Parallel()
	settings := func(capacity string) configs.Sources {
		return configs.Sources{Environ: []string{"MILLRACE_KUBERNETES_NAMESPACE_PER_TENANT=work-{tenant}", "MILLRACE_KUBERNETES_CAPACITY=" + capacity}}
	}
	_, err := settings("quota").Load()
	require.ErrorContains(t, err, "kubernetes.namespace_per_tenant has many: use nodes or none")
	_, err = settings("auto").Load()
	require.NoError(t, err)
}

func TestFaultsOfKubernetes(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
kubernetes:
  namespace: Work
  namespace_per_tenant: work
  images: ["a b"]
  default_image: Debian
  user: 0
  grace: 0s
  qps: 0
  burst: 0
  capacity: some
  patience: {node: -1s}
  classes:
    gpu: {cpu: 4, cpu_max: 2, tolerations: ["a:Never"], node_selector: {"a b": c}}
`)
	_, err := configs.Sources{File: file}.Load()
	var invalid *configs.InvalidError
	require.ErrorAs(t, err, &invalid)
	got := make(map[string]string)
	for _, f := range invalid.Faults {
		got[f.Path] = f.String()
	}
	for path, words := range map[string]string{
		"kubernetes.namespace":                 `millrace.yaml:3: kubernetes.namespace: "Work" cannot be a name in Kubernetes`,
		"kubernetes.namespace_per_tenant":      `millrace.yaml:4: kubernetes.namespace_per_tenant: "work" must contain {tenant} once`,
		"kubernetes.images":                    `millrace.yaml:5: kubernetes.images: "a b" is no pattern of images`,
		"kubernetes.default_image":             `millrace.yaml:6: kubernetes.default_image: "Debian" is no name of an image`,
		"kubernetes.user":                      `millrace.yaml:7: kubernetes.user: must be between 1 and 2147483647, not 0`,
		"kubernetes.grace":                     `millrace.yaml:8: kubernetes.grace: must be longer than 0`,
		"kubernetes.qps":                       `millrace.yaml:9: kubernetes.qps: must be between 1`,
		"kubernetes.capacity":                  `millrace.yaml:11: kubernetes.capacity: "some" is not one of auto, nodes, quota, none`,
		"kubernetes.patience.node":             `millrace.yaml:12: kubernetes.patience.node: must be longer than 0`,
		"kubernetes.classes.gpu.cpu":           `millrace.yaml:14: kubernetes.classes.gpu.cpu: what is given to those that ask for nothing must not be more than cpu_max`,
		"kubernetes.classes.gpu.tolerations":   `millrace.yaml:14: kubernetes.classes.gpu.tolerations: "a:Never" is no toleration`,
		"kubernetes.classes.gpu.node_selector": `millrace.yaml:14: kubernetes.classes.gpu.node_selector: a b=c: name part must consist of`,
	} {
		assert.Contains(t, got[path], words)
		delete(got, path)
	}
	assert.Empty(t, got)
	require.NoError(t, configs.Default().Validate(), "the defaults are those of the executor")
}

// In MILLRACE_KUBERNETES_CLASSES_GPU_CPU_MAX the name of the class ends where a key begins.
func TestKeysOfTablesAreNotEndsOfOneAnother(t *testing.T) {
	t.Parallel()
	for _, row := range []reflect.Type{reflect.TypeFor[configs.KubernetesClass](), reflect.TypeFor[configs.Class](), reflect.TypeFor[configs.Limit]()} {
		for i := range row.NumField() {
			for j := range row.NumField() {
				assert.False(t, strings.HasSuffix(row.Field(i).Tag.Get("key"), "_"+row.Field(j).Tag.Get("key")), "%s %s", row.Field(i).Name, row.Field(j).Name)
			}
		}
	}
}
