package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pull waits until the image of a container is there.
func (p *pod) pull(ctx context.Context, spec *corev1.Container) error {
	for n := 0; ; n++ {
		if strings.ContainsAny(spec.Image, " \t") || strings.ToLower(path(spec.Image)) != path(spec.Image) {
			p.holdUp(ctx, spec.Name, "InvalidImageName", "Failed to apply default image tag %q: couldn't parse image name %q: invalid reference format", spec.Image, spec.Image)
		} else {
			err := p.kubelet.config.Pull(spec.Image)
			if err == nil {
				return nil
			}
			if n%2 == 0 {
				p.holdUp(ctx, spec.Name, "ErrImagePull", "%v", err)
			} else {
				p.holdUp(ctx, spec.Name, "ImagePullBackOff", "Back-off pulling image %q: ErrImagePull: %v", spec.Image, err)
			}
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// path is the name of an image without its tag.
func path(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// layOut makes the volumes of the pod.
func (p *pod) layOut(ctx context.Context) error {
	first := p.spec.Spec.Containers[0].Name
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		dir := p.volume(v.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for {
			err := p.fill(ctx, dir, v)
			if err == nil {
				break
			}
			p.kubelet.config.Logger.Debug("A volume cannot be made", "pod", p.name(), "volume", v.Name, "error", err)
			p.holdUp(ctx, first, "ContainerCreating", "")
			p.event(ctx, "FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", v.Name, err))
			if err := p.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pod) volume(name string) string { return filepath.Join(p.dir, "volumes", name) }

func (p *pod) fill(ctx context.Context, dir string, v *corev1.Volume) error {
	switch {
	case v.EmptyDir != nil:
		return os.Chmod(dir, 0o777)
	case v.ConfigMap != nil:
		return p.fillConfigMap(ctx, dir, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return p.fillDownward(dir, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			var err error
			switch {
			case source.ConfigMap != nil:
				err = p.fillConfigMap(ctx, dir, source.ConfigMap.Name, source.ConfigMap.Items, v.Projected.DefaultMode, source.ConfigMap.Optional)
			case source.DownwardAPI != nil:
				err = p.fillDownward(dir, source.DownwardAPI.Items, v.Projected.DefaultMode)
			default:
				err = fmt.Errorf("this kind of projected source is not known to the test kubelet")
			}
			if err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("this kind of volume is not known to the test kubelet")
	}
}

func (p *pod) fillConfigMap(ctx context.Context, dir, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	cm, err := p.kubelet.config.Client.CoreV1().ConfigMaps(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	if items == nil {
		for k := range data {
			items = append(items, corev1.KeyToPath{Key: k, Path: k})
		}
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		if err := place(dir, item.Path, content, item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) fillDownward(dir string, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("downward items without a fieldRef are not known to the test kubelet")
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := place(dir, item.Path, []byte(value), item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

// place writes a file of a volume.
func place(dir, name string, content []byte, mode, fallback *int32) error {
	perm := os.FileMode(0o644)
	for _, m := range []*int32{fallback, mode} {
		if m != nil {
			perm = os.FileMode(*m).Perm()
		}
	}
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	return os.Chmod(file, perm)
}

// event records an event of the pod, if the API takes it.
func (p *pod) event(ctx context.Context, reason, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: p.podName + ".", Namespace: p.namespace},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: p.namespace, Name: p.podName, UID: p.uid,
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "kubelet", Host: p.kubelet.config.Node},
	}
	if _, err := p.kubelet.config.Client.CoreV1().Events(p.namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		p.kubelet.config.Logger.Debug("An event is not recorded", "pod", p.name(), "error", err)
	}
}
