package kubernetes

import (
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/spec"
)

// Where a program finds things in its pod.
const (
	// WorkDir is its working directory, its HOME and its TMPDIR.
	WorkDir = "/millrace/work"

	stdinPath      = "/millrace/stdin"
	checkpointPath = "/millrace/checkpoint"
	tmpPath        = "/tmp"
	shell          = "/bin/sh"
)

// allotment is what one pod gets of the cluster.
type allotment struct {
	cpuMillis, memoryBytes int64
	gpus                   int
}

// requirements asks for what was allotted and makes it the limit, so that a pod's end by
// memory is its own doing and nobody's program is slowed down by a neighbour's.
func (a allotment) requirements(c Class) corev1.ResourceRequirements {
	cpu, memory := cores(a.cpuMillis), bytesText(a.memoryBytes)
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *cpu, corev1.ResourceMemory: *memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: *memory},
	}
	if !c.CPUBurst {
		r.Limits[corev1.ResourceCPU] = *cpu
	}
	if a.gpus > 0 {
		gpus := *resource.NewQuantity(int64(a.gpus), resource.DecimalSI)
		r.Requests[corev1.ResourceName(c.GPUResource)] = gpus
		r.Limits[corev1.ResourceName(c.GPUResource)] = gpus
	}
	return r
}

func cores(millis int64) *resource.Quantity {
	return resource.NewMilliQuantity(millis, resource.DecimalSI)
}

func bytesText(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// podSpec is the pod without what the Builder has to look up.
func (b *Builder) podSpec(t executor.Task, s spec.Kubernetes, c Class) corev1.PodSpec {
	scratch := func(name string) corev1.Volume {
		room := corev1.EmptyDirVolumeSource{SizeLimit: bytesText(c.ScratchBytes)}
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &room}}
	}
	p := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(wholeSeconds(b.settings.Grace)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		// With a process of the pod's own as its first, a program that does not care about
		// signals ends by them as it does anywhere else, and nobody's children stay zombies.
		ShareProcessNamespace: new(true),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(b.settings.User), RunAsGroup: new(b.settings.Group), FSGroup: new(b.settings.Group),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		NodeSelector:      c.NodeSelector,
		PriorityClassName: c.PriorityClass,
		Volumes:           []corev1.Volume{scratch("work"), scratch("tmp")},
		Containers:        []corev1.Container{container(s)},
	}
	if t.RunLimit > 0 {
		p.ActiveDeadlineSeconds = new(wholeSeconds(t.RunLimit))
	}
	if b.settings.UserNamespaces {
		p.HostUsers = new(false)
	}
	if c.RuntimeClass != "" {
		p.RuntimeClassName = new(c.RuntimeClass)
	}
	for _, text := range c.Tolerations {
		toleration, _ := parseToleration(text) // Check has read it
		p.Tolerations = append(p.Tolerations, toleration)
	}
	for _, name := range b.settings.PullSecrets {
		p.ImagePullSecrets = append(p.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return p
}

// container is the container of the work.
func container(s spec.Kubernetes) corev1.Container {
	c := corev1.Container{
		Name:       WorkContainer,
		WorkingDir: s.WorkingDir,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Privileged: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             []corev1.VolumeMount{{Name: "work", MountPath: WorkDir}, {Name: "tmp", MountPath: tmpPath}},
	}
	words := s.Words(WorkDir + "/" + spec.ScriptName)
	if len(words) == 0 {
		return c // the program of the image, where the image has it start
	}
	if c.WorkingDir == "" {
		c.WorkingDir = WorkDir
	}
	for _, word := range launch(s.Process, words) {
		c.Command = append(c.Command, literal(word))
	}
	return c
}

// environment is that of the program: Millrace's own variables, which the spec's win over,
// and what only it may set.
func environment(t executor.Task, s spec.Process, input carried) []corev1.EnvVar {
	own := []corev1.EnvVar{
		{Name: "HOME", Value: WorkDir}, {Name: "TMPDIR", Value: WorkDir}, {Name: "LANG", Value: "C.UTF-8"},
		{Name: "MILLRACE_EXECUTION_ID", Value: literal(t.ExecutionID)},
		{Name: "MILLRACE_ATTEMPT", Value: strconv.Itoa(t.Origin())},
		{Name: "MILLRACE_WORKDIR", Value: WorkDir},
	}
	if input.checkpoint {
		own = append(own, corev1.EnvVar{Name: "MILLRACE_CHECKPOINT", Value: checkpointPath})
	}
	var env []corev1.EnvVar
	for _, v := range own {
		if _, overridden := s.Env[v.Name]; !overridden {
			env = append(env, v)
		}
	}
	for _, name := range sortedKeys(s.Env) {
		env = append(env, corev1.EnvVar{Name: name, Value: literal(s.Env[name])})
	}
	return env
}

// literal keeps the kubelet from reading $(NAME) in a text as a variable. It reads $$ as
// one dollar; so where either is in the text, each dollar is doubled.
func literal(text string) string {
	if !strings.Contains(text, "$(") && !strings.Contains(text, "$$") {
		return text
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// wholeSeconds rounds up to the seconds that Kubernetes counts in.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}
