package apiserver

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxConfigMap is how much data a config map takes.
const maxConfigMap = 1 << 20

// prepare fills in what the API server fills in.
func prepare(o object) {
	switch o := o.(type) {
	case *corev1.Namespace:
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
	case *corev1.Pod:
		preparePod(o)
	case *corev1.ResourceQuota:
		o.Status = corev1.ResourceQuotaStatus{}
	case *corev1.Secret:
		for k, v := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
	}
}

func preparePod(pod *corev1.Pod) {
	spec := &pod.Spec
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qos(spec)}
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.DNSPolicy == "" {
		spec.DNSPolicy = corev1.DNSClusterFirst
	}
	if spec.SchedulerName == "" {
		spec.SchedulerName = corev1.DefaultSchedulerName
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = new(corev1.PodSecurityContext)
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = new(corev1.DefaultEnableServiceLinks)
	}
	if spec.PreemptionPolicy == nil {
		spec.PreemptionPolicy = new(corev1.PreemptLowerPriority)
	}
	if spec.Priority == nil {
		spec.Priority = new(int32(0))
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			prepareContainer(&containers[i])
		}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.ConfigMap != nil && v.ConfigMap.DefaultMode == nil:
			v.ConfigMap.DefaultMode = new(corev1.ConfigMapVolumeSourceDefaultMode)
		case v.DownwardAPI != nil && v.DownwardAPI.DefaultMode == nil:
			v.DownwardAPI.DefaultMode = new(corev1.DownwardAPIVolumeSourceDefaultMode)
		case v.Projected != nil && v.Projected.DefaultMode == nil:
			v.Projected.DefaultMode = new(corev1.ProjectedVolumeSourceDefaultMode)
		}
	}
}

func prepareContainer(c *corev1.Container) {
	if c.TerminationMessagePath == "" {
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
	}
	if c.TerminationMessagePolicy == "" {
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	}
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = corev1.PullIfNotPresent
	}
	for name, quantity := range c.Resources.Limits {
		if _, set := c.Resources.Requests[name]; !set {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = quantity
		}
	}
}

// qos is the class of a pod's quality of service.
func qos(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, c := range spec.Containers {
		any = any || len(c.Resources.Requests)+len(c.Resources.Limits) > 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			request, set := c.Resources.Requests[name]
			guaranteed = guaranteed && ok && (!set || request.Cmp(limit) == 0)
		}
	}
	switch {
	case guaranteed:
		return corev1.PodQOSGuaranteed
	case any:
		return corev1.PodQOSBurstable
	default:
		return corev1.PodQOSBestEffort
	}
}

// validate finds what is wrong with a new object.
func validate(res *servedKind, o object) field.ErrorList {
	name := validation.NameIsDNSSubdomain
	if res.kind == "Namespace" {
		name = validation.NameIsDNSLabel
	}
	errs := validation.ValidateObjectMetaAccessor(o, res.namespaced, name, field.NewPath("metadata"))
	switch o := o.(type) {
	case *corev1.Pod:
		errs = append(errs, validatePod(o)...)
	case *corev1.ConfigMap:
		errs = append(errs, validateConfigMap(o)...)
	}
	return errs
}

func validatePod(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), ""))
	}
	volumes := map[string]bool{}
	for i, v := range pod.Spec.Volumes {
		path := spec.Child("volumes").Index(i).Child("name")
		for _, message := range validation.NameIsDNSLabel(v.Name, false) {
			errs = append(errs, field.Invalid(path, v.Name, message))
		}
		if volumes[v.Name] {
			errs = append(errs, field.Duplicate(path, v.Name))
		}
		volumes[v.Name] = true
	}
	if d := pod.Spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > 1<<31-1) {
		errs = append(errs, field.Invalid(spec.Child("activeDeadlineSeconds"), *d, "must be between 1 and 2147483647, inclusive"))
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		errs = append(errs, field.Invalid(spec.Child("terminationGracePeriodSeconds"), *g, "must be greater than or equal to 0"))
	}
	names := map[string]bool{}
	for kind, containers := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i := range containers {
			errs = append(errs, validateContainer(spec.Child(kind).Index(i), &containers[i], names, volumes)...)
		}
	}
	return errs
}

func validateContainer(path *field.Path, c *corev1.Container, names, volumes map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSLabel(c.Name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), c.Name, message))
	}
	if names[c.Name] {
		errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
	}
	names[c.Name] = true
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	paths := map[string]bool{}
	for j, m := range c.VolumeMounts {
		mount := path.Child("volumeMounts").Index(j)
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(mount.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(mount.Child("mountPath"), ""))
		}
		if paths[m.MountPath] {
			errs = append(errs, field.Invalid(mount.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
	}
	for name, request := range c.Resources.Requests {
		resources := path.Child("resources")
		if request.Sign() < 0 {
			errs = append(errs, field.Invalid(resources.Child("requests").Key(string(name)), request.String(), "must be greater than or equal to 0"))
		}
		if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(resources.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

func validateConfigMap(o *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	total := 0
	for k, v := range o.Data {
		total += len(v)
		if _, both := o.BinaryData[k]; both {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(k), k, "duplicate of key present in binaryData"))
		}
	}
	for _, v := range o.BinaryData {
		total += len(v)
	}
	if total > maxConfigMap {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxConfigMap))
	}
	return errs
}

// validateUpdate finds what an update may not change.
func validateUpdate(o, old object) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessorUpdate(o, old, field.NewPath("metadata"))
	switch o := o.(type) {
	case *corev1.Pod:
		before := old.(*corev1.Pod)
		if !equality.Semantic.DeepEqual(frozen(&o.Spec, &before.Spec), &before.Spec) {
			errs = append(errs, field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than `spec.containers[*].image`,"+
				"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
				"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
		}
		errs = append(errs, validateDeadline(o.Spec.ActiveDeadlineSeconds, before.Spec.ActiveDeadlineSeconds)...)
	case *corev1.ConfigMap:
		before := old.(*corev1.ConfigMap)
		errs = append(errs, validateConfigMap(o)...)
		if before.Immutable != nil && *before.Immutable {
			if o.Immutable == nil || !*o.Immutable {
				errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
			}
			if !maps.Equal(o.Data, before.Data) || !equality.Semantic.DeepEqual(o.BinaryData, before.BinaryData) {
				errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
			}
		}
	}
	return errs
}

// validateDeadline has an active deadline set and moved forward only.
func validateDeadline(now, before *int64) field.ErrorList {
	at := field.NewPath("spec", "activeDeadlineSeconds")
	switch {
	case now == nil && before != nil:
		return field.ErrorList{field.Invalid(at, now, "must not update from a positive integer to nil value")}
	case now != nil && (*now < 1 || *now > 1<<31-1):
		return field.ErrorList{field.Invalid(at, *now, "must be between 1 and 2147483647, inclusive")}
	case now != nil && before != nil && *now > *before:
		return field.ErrorList{field.Invalid(at, *now, "must be less than or equal to previous value")}
	}
	return nil
}

// frozen returns the new spec with what may change set back.
func frozen(now, before *corev1.PodSpec) *corev1.PodSpec {
	spec := now.DeepCopy()
	for i := range spec.Containers {
		if i < len(before.Containers) {
			spec.Containers[i].Image = before.Containers[i].Image
		}
	}
	spec.ActiveDeadlineSeconds = before.ActiveDeadlineSeconds
	spec.Tolerations = before.Tolerations
	return spec
}
