package configs

import (
	"errors"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

// Kubernetes configures the executor kubernetes.
type Kubernetes struct {
	Kubeconfig         string                     `key:"kubeconfig" file:"read" unset:"the account of the pod that the worker runs in, else KUBECONFIG, else ~/.kube/config" doc:"The file that says where the cluster is and how to be let in."`
	Context            string                     `key:"context" unset:"the current one" doc:"The context of the kubeconfig."`
	Installation       string                     `key:"installation" unset:"made of the identity of the database" doc:"What tells the pods of this installation from those of another one in the same cluster. All workers of an installation have the same. What carries the name and belongs to no execution is deleted."`
	Namespace          string                     `key:"namespace" doc:"Where pods are made."`
	NamespacePerTenant string                     `key:"namespace_per_tenant" unset:"one for all" doc:"The pattern of the namespaces of tenants, such as work-{tenant}. Millrace does not make them. Executions of the tenant default, which is that of those who name none, go to kubernetes.namespace."`
	DefaultImage       string                     `key:"default_image" unset:"a request has to name one" doc:"The image of programs whose request names none."`
	Images             []string                   `key:"images" unset:"the default image only" doc:"Patterns of the images that a request may name: python:3.*, acme/*, ghcr.io/acme/**. One * is anything but a slash, two are anything; a pattern without a tag allows every one."`
	PullSecrets        []string                   `key:"pull_secrets" unset:"none" doc:"Secrets for pulling images, by name, in the namespace of the pod."`
	User               int                        `key:"user" doc:"The user id that programs run as; never 0."`
	Group              int                        `key:"group" unset:"the same as the user" doc:"The group id that programs run as; 0 is that of the user."`
	UserNamespaces     bool                       `key:"user_namespaces" doc:"Give each pod a user namespace of its own. Nodes that cannot refuse such pods."`
	Grace              time.Duration              `key:"grace" doc:"How long a program that is to be stopped may take between SIGTERM and SIGKILL, in whole seconds."`
	Patience           KubernetesPatience         `key:"patience" doc:"How long pods may make no progress."`
	Classes            map[string]KubernetesClass `key:"classes" doc:"What pods get, by resource class: kubernetes.classes.gpu.node_selector. A class that is not named has the defaults."`
	Capacity           string                     `key:"capacity" oneof:"auto,nodes,quota,none" doc:"What the room of the cluster is known from: its nodes and quotas as far as the worker may read them, only the nodes, only the quotas of the namespace, or not at all. Where it is not known, for want of rights or by choice, the worker's own slots are all that counts."`
	Relist             time.Duration              `key:"relist" doc:"How often all pods are listed, whatever the watch has brought. Longer is less work for the API server of a cluster with very many pods."`
	Keep               time.Duration              `key:"keep" doc:"How often the keeper looks for pods and config maps that were left over."`
	SplitStreams       bool                       `key:"split_streams" doc:"Read standard output and standard error apart, in clusters with the feature gate PodLogsQuerySplitStreams. Elsewhere all output of a pod is standard output."`
	QPS                int                        `key:"qps" doc:"How many requests per second this worker sends to the API server at most, in the long run."`
	Burst              int                        `key:"burst" doc:"How many requests this worker sends at once after a pause."`
}

// KubernetesPatience configures what a pod is given up for.
type KubernetesPatience struct {
	Schedule time.Duration `key:"schedule" doc:"How long a pod waits for a node that has room, one that is being added perhaps. Then its execution goes back to the queue, and spends no attempt."`
	Image    time.Duration `key:"image" doc:"How long the image may fail to be pulled."`
	Start    time.Duration `key:"start" doc:"How long a pod with a node may take to start for any other reason, the pulling of a large image among them."`
	Node     time.Duration `key:"node" doc:"How long a node may be silent about a pod that is being deleted, until it counts as lost."`
	Output   time.Duration `key:"output" doc:"How long the end of the output of a pod that has ended is tried to be read."`
	Force    time.Duration `key:"force" doc:"How long beyond its grace period a pod may take to end that Millrace ends, until it is removed by force. On a node that is only cut off its program may go on then."`
}

// KubernetesClass configures the pods of one resource class. No key may end in an
// underscore and another one: in the name of a variable nobody could tell where the name
// of the class ends.
type KubernetesClass struct {
	CPU           Cores             `key:"cpu" doc:"The processor time of what asks for none, in cores."`
	Memory        Size              `key:"memory" doc:"The memory of what asks for none."`
	Scratch       Size              `key:"scratch" doc:"The room on disk for the working directory, and again for /tmp."`
	MaxCPU        Cores             `key:"cpu_max" doc:"The most processor time that one execution may ask for; 0 is any."`
	MaxMemory     Size              `key:"memory_max" doc:"The most memory that one execution may ask for; 0 is any."`
	MaxGPUs       int               `key:"gpus_max" doc:"The most graphics processors that one execution may ask for; 0 is none."`
	GPUResource   string            `key:"gpu_resource" doc:"What the cluster calls a graphics processor."`
	CPUBurst      bool              `key:"cpu_burst" doc:"Let programs use processor time that nobody else wants, beyond what they asked for."`
	NodeSelector  map[string]string `key:"node_selector" unset:"any node" doc:"Labels of the nodes that the pods go to."`
	Tolerations   []string          `key:"tolerations" unset:"none" doc:"What is tolerated of nodes, as kubectl taint writes taints: key=value:NoSchedule, key:NoExecute, key; * is everything."`
	RuntimeClass  string            `key:"runtime_class" unset:"the cluster's default" doc:"The runtime class, such as gvisor or nvidia."`
	PriorityClass string            `key:"priority_class" unset:"the cluster's default" doc:"The priority class."`
}

func defaultKubernetes() Kubernetes {
	return Kubernetes{
		Namespace: "millrace-work", DefaultImage: "docker.io/library/debian:13-slim",
		User: int(kubernetes.UserDefault), Grace: kubernetes.GraceDefault,
		Patience: KubernetesPatience{
			Schedule: kubernetes.SchedulePatienceDefault, Image: kubernetes.ImagePatienceDefault,
			Start: kubernetes.StartPatienceDefault, Node: kubernetes.NodePatienceDefault,
			Output: kubernetes.OutputPatienceDefault, Force: kubernetes.ForcePatienceDefault,
		},
		Classes: map[string]KubernetesClass{}, Capacity: "auto", QPS: 50, Burst: 100,
		Relist: kubernetes.RelistDefault, Keep: kubernetes.KeepDefault,
	}
}

func defaultKubernetesClass() KubernetesClass {
	return KubernetesClass{
		CPU: Cores(kubernetes.CPUDefault), Memory: Size(kubernetes.MemoryDefault), Scratch: Size(kubernetes.ScratchDefault),
		GPUResource: kubernetes.GPUResourceDefault,
	}
}

// PodSettings returns what pods are built from. The installation may be unset still.
func (k Kubernetes) PodSettings() kubernetes.Settings {
	s := kubernetes.Settings{
		Installation: k.Installation, Namespace: k.Namespace, NamespacePerTenant: k.NamespacePerTenant, CommonTenant: execution.DefaultTenant,
		DefaultImage: k.DefaultImage, Images: k.Images, Grace: k.Grace, User: int64(k.User), Group: int64(k.Group),
		PullSecrets: k.PullSecrets, UserNamespaces: k.UserNamespaces, Capacity: kubernetes.CapacitySource(k.Capacity), Classes: make(map[string]kubernetes.Class, len(k.Classes)),
	}
	for name, c := range k.Classes {
		s.Classes[name] = kubernetes.Class{
			CPUMillis: int64(c.CPU), MemoryBytes: int64(c.Memory), ScratchBytes: int64(c.Scratch),
			MaxCPUMillis: int64(c.MaxCPU), MaxMemoryBytes: int64(c.MaxMemory), MaxGPUs: c.MaxGPUs,
			GPUResource: c.GPUResource, CPUBurst: c.CPUBurst, NodeSelector: c.NodeSelector, Tolerations: c.Tolerations,
			RuntimeClass: c.RuntimeClass, PriorityClass: c.PriorityClass,
		}
	}
	return s
}

// PodPatience returns how long pods may make no progress.
func (k Kubernetes) PodPatience() kubernetes.Patience { return kubernetes.Patience(k.Patience) }

func (v *validation) kubernetes() {
	k := v.c.Kubernetes
	number(v, "kubernetes.user", k.User, 1, maxUserID)
	number(v, "kubernetes.group", k.Group, 0, maxUserID)
	number(v, "kubernetes.qps", k.QPS, 1, maxQPS)
	number(v, "kubernetes.burst", k.Burst, k.QPS, maxQPS)
	if k.Capacity == string(kubernetes.CapacityQuota) && k.NamespacePerTenant != "" {
		v.fault("kubernetes.capacity", "quota is that of one namespace, and kubernetes.namespace_per_tenant has many: use nodes or none")
	}
	s := k.PodSettings()
	if s.Installation == "" {
		s.Installation = "unset" // it is known when the database is
	}
	s.User, s.Group = max(s.User, 1), max(s.Group, 0) // told above
	for _, fault := range kubernetes.SettingErrors(s.Check()) {
		path := "kubernetes." + fault.Setting
		v.found.add(v.originOf(path), path, "%s", errors.Unwrap(fault))
	}
}

// The bounds of numbers.
const (
	maxUserID = 1<<31 - 1
	maxQPS    = 100_000
)
