package kubernetes

import (
	"fmt"
	"strconv"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/spec"
)

// Builder makes the objects of pods. It is safe for concurrent use.
type Builder struct {
	settings Settings
	images   []imagePattern
}

// NewBuilder checks settings. The error holds all faults, each as a SettingError.
func NewBuilder(settings Settings) (*Builder, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	b := &Builder{settings: settings.withDefaults()}
	for _, text := range settings.Images {
		pattern, err := parseImagePattern(text)
		if err != nil {
			return nil, err
		}
		b.images = append(b.images, pattern)
	}
	return b, nil
}

// Objects is what is created for one run of the work. Building it again for a later
// attempt of the same run gives the same, but for Task.Attempt in AttemptAnnotation and
// for Task.Checkpoint.
//
// The pod comes first: a ConfigMap needs its UID (Own), and the kubelet waits for it. So
// there can be no ConfigMap that nobody owns.
type Objects struct {
	// ConfigMap is nil when there is nothing to mount. It has the name and the namespace
	// of the pod.
	ConfigMap *corev1.ConfigMap
	Pod       *corev1.Pod
}

// Own makes the pod, as it was created, the owner of the ConfigMap.
func (o Objects) Own(pod *corev1.Pod) {
	if o.ConfigMap == nil {
		return
	}
	o.ConfigMap.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true),
	}}
}

// Refusal is the error of Build: what the attempt ends with.
type Refusal struct{ Result executor.Result }

// Error returns the message of the result.
func (r *Refusal) Error() string { return r.Result.Message }

func refuse(reason, format string, args ...any) error {
	return &Refusal{Result: permanent(reason, fmt.Sprintf(format, args...))}
}

// Build makes the objects for a task. The error is a *Refusal.
func (b *Builder) Build(t executor.Task) (Objects, error) {
	s, err := spec.ParseKubernetes(t.Spec)
	if err != nil {
		return Objects{}, &Refusal{Result: executor.InvalidSpec(err)}
	}
	class := b.settings.class(t.Class)
	needs, err := class.needs(t)
	if err != nil {
		return Objects{}, err
	}
	image, err := b.image(s.Image)
	if err != nil {
		return Objects{}, err
	}
	input, err := carry(s.Process, t.Checkpoint)
	if err != nil {
		return Objects{}, err
	}
	meta := b.meta(t)
	pod := &corev1.Pod{ObjectMeta: meta, Spec: b.podSpec(t, s, class)}
	pod.Annotations = map[string]string{
		ExecutionAnnotation: t.ExecutionID, AttemptAnnotation: strconv.Itoa(t.Attempt),
		// What the two autoscalers of nodes ask for before they move a pod away.
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
	}
	if t.Tenant != "" {
		pod.Annotations[TenantAnnotation] = t.Tenant
	}
	work := &pod.Spec.Containers[0]
	work.Image = image
	work.Resources = needs.requirements(class)
	work.Env = environment(t, s.Process, input)
	work.VolumeMounts = append(work.VolumeMounts, input.mounts...)
	objects := Objects{Pod: pod}
	if len(input.mounts) > 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, input.volume(meta.Name))
		objects.ConfigMap = input.configMap(meta)
	}
	return objects, nil
}

// meta is what the pod and the ConfigMap are found by.
func (b *Builder) meta(t executor.Task) metav1.ObjectMeta {
	marks := map[string]string{
		ManagedByLabel: ManagedBy, InstallationLabel: asLabel(b.settings.Installation),
		ExecutionLabel: asLabel(t.ExecutionID), FirstLabel: strconv.Itoa(t.Origin()),
	}
	if t.Class != "" {
		marks[ClassLabel] = asLabel(t.Class)
	}
	if t.Tenant != "" {
		marks[TenantLabel] = asLabel(t.Tenant)
	}
	return metav1.ObjectMeta{
		Namespace: b.Namespace(t.Tenant), Name: Name(t.ExecutionID, t.Origin()), Labels: marks,
		Annotations: map[string]string{ExecutionAnnotation: t.ExecutionID},
	}
}

// Clash says whether an object that was found under a name of the task's is somebody
// else's, and what the attempt ends with then.
func (b *Builder) Clash(found metav1.Object, t executor.Task) (executor.Result, bool) {
	run, ok := RunOf(found)
	if ok && run.ExecutionID == t.ExecutionID && run.First == t.Origin() &&
		found.GetLabels()[InstallationLabel] == asLabel(b.settings.Installation) {
		return executor.Result{}, false
	}
	whose := "that Millrace has not made"
	if ok {
		whose = fmt.Sprintf("of the installation %q", found.GetLabels()[InstallationLabel])
	}
	return permanent(ReasonNameClash, fmt.Sprintf(
		"an object %s has the name %s in the namespace %s: delete it, or give each installation a namespace of its own (kubernetes.namespace)",
		whose, found.GetName(), found.GetNamespace())), true
}

// image returns the image that a request gets.
func (b *Builder) image(asked string) (string, error) {
	fallback := b.settings.DefaultImage
	switch {
	case asked == "" && fallback == "":
		return "", refuse(ReasonNoImage, "the request names no image, and there is no default: name one in spec.image, or set kubernetes.default_image")
	case asked == "" || asked == fallback:
		return fallback, nil
	}
	named, err := reference.ParseNormalizedNamed(asked)
	if err != nil {
		return "", &Refusal{Result: executor.InvalidSpec(err)}
	}
	for _, p := range b.images {
		if p.allows(named) {
			return asked, nil
		}
	}
	return "", refuse(ReasonImageNotAllowed, "the image %s is not allowed here: ask for one that is, or add a pattern for it to kubernetes.images", named)
}

// needs returns what a task gets: what it asks for, or else what its class gives.
func (c Class) needs(t executor.Task) (allotment, error) {
	a := allotment{cpuMillis: t.Needs.CPUMillis, memoryBytes: t.Needs.MemoryBytes, gpus: t.Needs.GPUs}
	if a.cpuMillis <= 0 {
		a.cpuMillis = c.CPUMillis
	}
	if a.memoryBytes <= 0 {
		a.memoryBytes = c.MemoryBytes
	}
	advice := fmt.Sprintf("pods of the class %q get here: ask for less, or for another class", t.Class)
	switch {
	case c.MaxCPUMillis > 0 && a.cpuMillis > c.MaxCPUMillis:
		return a, refuse(ReasonNeedsTooLarge, "the request asks for %s cores, more than the %s that %s", cores(a.cpuMillis), cores(c.MaxCPUMillis), advice)
	case c.MaxMemoryBytes > 0 && a.memoryBytes > c.MaxMemoryBytes:
		return a, refuse(ReasonNeedsTooLarge, "the request asks for %s of memory, more than the %s that %s", bytesText(a.memoryBytes), bytesText(c.MaxMemoryBytes), advice)
	case a.gpus > c.MaxGPUs && c.MaxGPUs == 0:
		return a, refuse(ReasonNeedsTooLarge, "the request asks for %d graphics processors, and the class %q has none: ask for another class", a.gpus, t.Class)
	case a.gpus > c.MaxGPUs:
		return a, refuse(ReasonNeedsTooLarge, "the request asks for %d graphics processors, more than the %d that %s", a.gpus, c.MaxGPUs, advice)
	}
	return a, nil
}
