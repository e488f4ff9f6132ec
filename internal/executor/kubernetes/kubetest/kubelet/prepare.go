package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pathDefault is the PATH of all images.
const pathDefault = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// errConfig is a fault in a container's configuration that may be mended.
type errConfig struct{ error }

// prepare makes a container of its spec. It waits as long as its configuration has faults.
func (p *pod) prepare(ctx context.Context, spec *corev1.Container) (*container, error) {
	for {
		c, err := p.build(ctx, spec)
		var config errConfig
		if !errors.As(err, &config) {
			return c, err
		}
		p.holdUp(ctx, spec.Name, "CreateContainerConfigError", "%v", config.error)
		if err := p.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (p *pod) build(ctx context.Context, spec *corev1.Container) (*container, error) {
	c := &container{name: spec.Name, workingDir: spec.WorkingDir, asRoot: os.Getuid() == 0}
	if err := c.secure(p.spec.Spec.SecurityContext, spec.SecurityContext); err != nil {
		return nil, err
	}
	set(&c.beside, p.spec.Spec.ShareProcessNamespace)
	values, err := p.environment(ctx, spec)
	if err != nil {
		return nil, err
	}
	lookup := map[string]string{}
	for _, v := range values {
		name, value, _ := strings.Cut(v, "=")
		lookup[name] = value
	}
	for _, word := range append(slices.Clone(spec.Command), spec.Args...) {
		c.command = append(c.command, expand(word, lookup))
	}
	if len(c.command) == 0 {
		c.command = []string{"true"} // what an image without an entry point would refuse
	}
	c.env = values
	dir := filepath.Join(p.dir, "containers", spec.Name)
	c.root = filepath.Join(dir, "root")
	if err := os.MkdirAll(c.root, 0o755); err != nil {
		return nil, err
	}
	c.messagePath = filepath.Join(dir, "termination-log")
	if err := os.WriteFile(c.messagePath, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.messagePath, 0o666); err != nil {
		return nil, err
	}
	if c.mounts, err = p.mounts(spec, c.messagePath); err != nil {
		return nil, err
	}
	c.log, err = newJournal(filepath.Join(dir, "log"))
	return c, err
}

// secure takes over what the security contexts say.
func (c *container) secure(pod *corev1.PodSecurityContext, own *corev1.SecurityContext) error {
	nonRoot := false
	if pod != nil {
		set(&c.uid, pod.RunAsUser)
		set(&c.gid, pod.RunAsGroup)
		set(&nonRoot, pod.RunAsNonRoot)
	}
	if own != nil {
		set(&c.uid, own.RunAsUser)
		set(&c.gid, own.RunAsGroup)
		set(&nonRoot, own.RunAsNonRoot)
		set(&c.readOnlyRoot, own.ReadOnlyRootFilesystem)
		if own.AllowPrivilegeEscalation != nil {
			c.noNewPrivileges = !*own.AllowPrivilegeEscalation
		}
	}
	if nonRoot && c.uid == 0 {
		return errConfig{errors.New("container has runAsNonRoot and image will run as root")}
	}
	return nil
}

// set takes a value over if there is one.
func set[T any](into *T, from *T) {
	if from != nil {
		*into = *from
	}
}

// mounts lists what the container sees besides the programs, outer folders first.
func (p *pod) mounts(spec *corev1.Container, message string) ([]mount, error) {
	list := []mount{{from: p.kubelet.config.Program, to: ProgramPath, readOnly: true}}
	if spec.TerminationMessagePath != "" {
		list = append(list, mount{from: message, to: spec.TerminationMessagePath})
	}
	for _, m := range spec.VolumeMounts {
		from := filepath.Join(p.volume(m.Name), filepath.Clean("/"+m.SubPath))
		if _, err := os.Stat(from); err != nil {
			if err := os.MkdirAll(from, 0o777); err != nil {
				return nil, err
			}
		}
		readOnly := m.ReadOnly
		for _, v := range p.spec.Spec.Volumes {
			readOnly = readOnly || v.Name == m.Name && v.EmptyDir == nil
		}
		list = append(list, mount{from: from, to: filepath.Clean(m.MountPath), readOnly: readOnly})
	}
	slices.SortStableFunc(list, func(a, b mount) int { return strings.Count(a.to, "/") - strings.Count(b.to, "/") })
	return list, nil
}

// environment returns the variables of a container.
func (p *pod) environment(ctx context.Context, spec *corev1.Container) ([]string, error) {
	values := map[string]string{"PATH": pathDefault, "HOSTNAME": p.podName, "HOME": "/"}
	for _, from := range spec.EnvFrom {
		if from.ConfigMapRef == nil {
			return nil, errConfig{errors.New("envFrom other than config maps is not known to the test kubelet")}
		}
		cm, err := p.kubelet.config.Client.CoreV1().ConfigMaps(p.namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, errConfig{err}
		}
		for k, v := range cm.Data {
			values[from.Prefix+k] = v
		}
	}
	for _, e := range spec.Env {
		value, err := p.variable(ctx, spec, &e)
		if err != nil {
			return nil, err
		}
		values[e.Name] = expand(value, values)
	}
	list := make([]string, 0, len(values))
	for name, value := range values {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

func (p *pod) variable(ctx context.Context, spec *corev1.Container, e *corev1.EnvVar) (string, error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value, nil
	case from.FieldRef != nil:
		return p.field(from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		cm, err := p.kubelet.config.Client.CoreV1().ConfigMaps(p.namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", errConfig{fmt.Errorf("configmap %q not found", from.ConfigMapKeyRef.Name)}
		}
		value, ok := cm.Data[from.ConfigMapKeyRef.Key]
		if !ok {
			return "", errConfig{fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", from.ConfigMapKeyRef.Key, p.namespace, from.ConfigMapKeyRef.Name)}
		}
		return value, nil
	case from.ResourceFieldRef != nil:
		return resourceField(spec, from.ResourceFieldRef)
	default:
		return "", errConfig{fmt.Errorf("the source of %s is not known to the test kubelet", e.Name)}
	}
}

// resourceField is a request or a limit of the container, in whole units.
func resourceField(spec *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := spec.Resources.Limits
	if kind == "requests" {
		list = spec.Resources.Requests
	}
	quantity := list[corev1.ResourceName(name)]
	return strconv.FormatInt(quantity.Value(), 10), nil
}

// field is a field of the pod, by the path of the downward API.
func (p *pod) field(path string) (string, error) {
	p.mu.Lock()
	pod := p.latest
	p.mu.Unlock()
	for prefix, set := range map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations} {
		if path == prefix {
			var lines []string
			for k, v := range set {
				lines = append(lines, fmt.Sprintf("%s=%q", k, v))
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n"), nil
		}
		if key, ok := strings.CutPrefix(path, prefix+"['"); ok {
			return set[strings.TrimSuffix(key, "']")], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.hostIP":
		return "127.0.0.1", nil
	default:
		return "", errConfig{fmt.Errorf("field %q is not known to the test kubelet", path)}
	}
}

// expand replaces $(NAME) by the variable of that name, and $$ by $.
func expand(s string, vars map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				b.WriteByte('$')
				continue
			}
			name := s[i+2 : i+end]
			if value, ok := vars[name]; ok {
				b.WriteString(value)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}
