package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/distribution/reference"
)

// Settings is what pods are built from beside the request. The zero value of a member is
// its default where it has one.
type Settings struct {
	// Installation tells the pods of one installation of Millrace from those of another
	// that uses the same cluster; required. It becomes a label.
	Installation string
	// Namespace is where pods are made; required. NamespacePerTenant is a pattern with
	// {tenant}, such as "work-{tenant}", for one namespace per tenant; executions without
	// a tenant, and those of CommonTenant, then go to Namespace.
	Namespace, NamespacePerTenant, CommonTenant string
	// DefaultImage is for requests that name none. Images are patterns of the images that
	// a request may name; DefaultImage may always be named.
	DefaultImage string
	Images       []string
	// Classes says by resource class what pods get. Default is for classes that it does
	// not name.
	Classes map[string]Class
	Default Class
	// Grace is how long a program may take between SIGTERM and SIGKILL; rounded up to
	// seconds. Defaults to GraceDefault.
	Grace time.Duration
	// User and Group are the ids that programs run as, never 0. Default to UserDefault.
	User, Group int64
	// PullSecrets are names of secrets for pulling images, in the namespace of the pod.
	PullSecrets []string
	// UserNamespaces gives each pod a user namespace of its own, on nodes that can.
	UserNamespaces bool
	// Capacity is what the room of the cluster is known from, which takes rights. Empty is
	// CapacityAuto.
	Capacity CapacitySource
}

// Class is what pods of one resource class get.
type Class struct {
	// CPUMillis, MemoryBytes and ScratchBytes are for what asks for nothing; the latter is
	// the room on disk, which cannot be asked for. They default to CPUDefault and so on.
	CPUMillis, MemoryBytes, ScratchBytes int64
	// MaxCPUMillis, MaxMemoryBytes and MaxGPUs are the most that a request may ask for; 0:
	// any, and for MaxGPUs none.
	MaxCPUMillis, MaxMemoryBytes int64
	MaxGPUs                      int
	// GPUResource is what the cluster calls a graphics processor. Defaults to
	// GPUResourceDefault.
	GPUResource string
	// CPUBurst lets programs use processor time that nobody else wants, beyond what they
	// asked for.
	CPUBurst bool
	// NodeSelector are labels of the nodes, Tolerations what is tolerated of them, as
	// "key=value:Effect", "key=value", "key:Effect", "key" or "*".
	NodeSelector map[string]string
	Tolerations  []string
	// RuntimeClass and PriorityClass are names of objects of the cluster; empty: none.
	RuntimeClass, PriorityClass string
}

// The defaults of Settings and Class.
const (
	GraceDefault       = 2 * time.Second
	UserDefault  int64 = 65532

	CPUDefault         int64 = 250
	MemoryDefault      int64 = 256 << 20
	ScratchDefault     int64 = 1 << 30
	GPUResourceDefault       = "nvidia.com/gpu"
)

// SettingError is one fault of Settings.
type SettingError struct {
	// Setting is the path of the setting below kubernetes, as in "classes.gpu.tolerations".
	Setting string
	Err     error
}

// Error returns both.
func (e SettingError) Error() string { return "kubernetes." + e.Setting + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e SettingError) Unwrap() error { return e.Err }

// SettingErrors returns those in an error of Check.
func SettingErrors(err error) []SettingError {
	var all []SettingError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, inner := range joined.Unwrap() {
			if fault, ok := errors.AsType[SettingError](inner); ok {
				all = append(all, fault)
			}
		}
	}
	return all
}

// faults collects what is wrong with settings.
type faults []error

func (f *faults) add(setting, format string, args ...any) {
	*f = append(*f, SettingError{Setting: setting, Err: fmt.Errorf(format, args...)})
}

// Check returns a SettingError for each fault, joined.
func (s Settings) Check() error {
	var f faults
	if s.Installation == "" {
		f.add("installation", "is required: a name of this installation, so that its pods can be told from those of another one")
	}
	f.names("namespace", validation.IsDNS1123Label, s.Namespace)
	if p := s.NamespacePerTenant; p != "" {
		f.namespacePattern(p)
	}
	f.names("pull_secrets", validation.IsDNS1123Subdomain, s.PullSecrets...)
	for _, pattern := range s.Images {
		if _, err := parseImagePattern(pattern); err != nil {
			f.add("images", "%w", err)
		}
	}
	if s.DefaultImage != "" {
		if _, err := reference.ParseNormalizedNamed(s.DefaultImage); err != nil {
			f.add("default_image", "%q is no name of an image: %w", s.DefaultImage, err)
		}
	}
	if s.DefaultImage == "" && len(s.Images) == 0 {
		f.add("images", "nothing can run: give images that requests may name, or a default_image")
	}
	if s.Grace < 0 || s.Grace > maxGrace {
		f.add("grace", "must be between 0s and %s, not %s", maxGrace, s.Grace)
	}
	for _, id := range []struct {
		setting string
		value   int64
	}{{"user", s.User}, {"group", s.Group}} {
		if id.value < 0 || id.value > math.MaxInt32 {
			f.add(id.setting, "must be the id of a user, from 1, not %d", id.value)
		}
	}
	f.class("default_class", s.Default)
	for _, name := range slices.Sorted(maps.Keys(s.Classes)) {
		f.class("classes."+name, s.Classes[name])
	}
	return errors.Join(f...)
}

// maxGrace is a bound against slips.
const maxGrace = time.Hour

func (f *faults) names(setting string, check func(string) []string, names ...string) {
	for _, name := range names {
		if said := check(name); len(said) > 0 {
			f.add(setting, "%q cannot be a name in Kubernetes: %s", name, said[0])
		}
	}
}

func (f *faults) namespacePattern(p string) {
	most := maxLabel - minReadable + len(tenantMark)
	switch {
	case strings.Count(p, tenantMark) != 1:
		f.add("namespace_per_tenant", "%q must contain %s once", p, tenantMark)
	case len(p) > most:
		f.add("namespace_per_tenant", "%q has %d letters, %d are allowed, so that there is room for the tenant", p, len(p), most)
	default:
		f.names("namespace_per_tenant", validation.IsDNS1123Label, strings.Replace(p, tenantMark, "a", 1))
	}
}

func (f *faults) class(path string, c Class) {
	for _, n := range []struct {
		setting        string
		value, ceiling int64
	}{
		{"cpu", cmp.Or(c.CPUMillis, CPUDefault), c.MaxCPUMillis},
		{"memory", cmp.Or(c.MemoryBytes, MemoryDefault), c.MaxMemoryBytes},
		{"scratch", c.ScratchBytes, 0},
	} {
		switch {
		case n.value < 0 || n.ceiling < 0:
			f.add(path+"."+n.setting, "must not be negative")
		case n.ceiling > 0 && n.value > n.ceiling:
			f.add(path+"."+n.setting, "what is given to those that ask for nothing must not be more than %s_max", n.setting)
		}
	}
	if c.MaxGPUs < 0 {
		f.add(path+".gpus_max", "must not be negative")
	}
	if c.GPUResource != "" {
		if said := validation.IsQualifiedName(c.GPUResource); len(said) > 0 || !strings.Contains(c.GPUResource, "/") {
			f.add(path+".gpu_resource", "%q is no name of a resource: want one such as %s", c.GPUResource, GPUResourceDefault)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeSelector)) {
		for _, said := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.NodeSelector[key])) {
			f.add(path+".node_selector", "%s=%s: %s", key, c.NodeSelector[key], said)
		}
	}
	for _, text := range c.Tolerations {
		if _, err := parseToleration(text); err != nil {
			f.add(path+".tolerations", "%w", err)
		}
	}
	for _, object := range []struct{ setting, name string }{{"runtime_class", c.RuntimeClass}, {"priority_class", c.PriorityClass}} {
		if object.name != "" {
			f.names(path+"."+object.setting, validation.IsDNS1123Subdomain, object.name)
		}
	}
}

// parseToleration reads "key=value:Effect", the shape in which kubectl taint writes taints;
// value and effect may be left out, and "*" tolerates everything.
func parseToleration(text string) (corev1.Toleration, error) {
	if text == "*" {
		return corev1.Toleration{Operator: corev1.TolerationOpExists}, nil
	}
	rest, effect, hasEffect := strings.Cut(text, ":")
	key, value, hasValue := strings.Cut(rest, "=")
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if hasValue {
		t.Operator = corev1.TolerationOpEqual
	}
	effects := []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}
	said := validation.IsQualifiedName(key)
	if hasValue {
		said = append(said, validation.IsValidLabelValue(value)...)
	}
	if hasEffect && !slices.Contains(effects, effect) {
		said = append(said, "the effect must be one of "+strings.Join(effects, ", "))
	}
	if len(said) > 0 {
		return t, fmt.Errorf("%q is no toleration: want key=value:Effect, key:Effect, key or *: %s", text, said[0])
	}
	return t, nil
}

// withDefaults fills in what was left out.
func (s Settings) withDefaults() Settings {
	s.Grace = cmp.Or(s.Grace, GraceDefault)
	s.User = cmp.Or(s.User, UserDefault)
	s.Group = cmp.Or(s.Group, s.User)
	s.Default = s.Default.withDefaults()
	classes := make(map[string]Class, len(s.Classes))
	for name, c := range s.Classes {
		classes[name] = c.withDefaults()
	}
	s.Classes = classes
	return s
}

func (c Class) withDefaults() Class {
	c.CPUMillis = cmp.Or(c.CPUMillis, CPUDefault)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, MemoryDefault)
	c.ScratchBytes = cmp.Or(c.ScratchBytes, ScratchDefault)
	c.GPUResource = cmp.Or(c.GPUResource, GPUResourceDefault)
	return c
}

// class returns what pods of a resource class get.
func (s Settings) class(name string) Class {
	if c, ok := s.Classes[name]; ok {
		return c
	}
	return s.Default
}
