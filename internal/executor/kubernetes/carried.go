package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/internal/executor/spec"
)

// maxConfigMap is how much all values of a ConfigMap may have together.
const maxConfigMap = 1 << 20

// inputVolume is the volume of the ConfigMap.
const inputVolume = "input"

// carried is what a pod is given through its ConfigMap: each item is mounted by itself,
// read-only, where the program expects it. What an item is for says its key.
type carried struct {
	text       map[string]string
	binary     map[string][]byte
	mounts     []corev1.VolumeMount
	bytes      int
	checkpoint bool
}

// carry collects what a spec carries. The error is a *Refusal.
func carry(s spec.Process, checkpoint []byte) (carried, error) {
	c := carried{text: make(map[string]string), binary: make(map[string][]byte)}
	if s.Script != "" {
		c.add("script", WorkDir+"/"+spec.ScriptName, []byte(s.Script))
	}
	for i, name := range sortedKeys(s.Files) {
		c.add(fmt.Sprintf("file-%d", i), WorkDir+"/"+name, s.Files[name])
	}
	if len(s.Stdin) > 0 {
		c.add("stdin", stdinPath, s.Stdin)
	}
	if checkpoint != nil {
		c.checkpoint = true
		c.add("checkpoint", checkpointPath, checkpoint)
	}
	if c.bytes > maxConfigMap {
		return c, refuse(ReasonInputTooLarge,
			"script, files, stdin and the checkpoint of the attempt before have %d bytes together, a ConfigMap has room for %d: let the program fetch what is larger",
			c.bytes, maxConfigMap)
	}
	return c, nil
}

func (c *carried) add(key, path string, content []byte) {
	if utf8.Valid(content) {
		c.text[key] = string(content)
	} else {
		c.binary[key] = content
	}
	c.bytes += len(content)
	c.mounts = append(c.mounts, corev1.VolumeMount{Name: inputVolume, MountPath: path, SubPath: key, ReadOnly: true})
}

func (c *carried) volume(configMap string) corev1.Volume {
	source := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, DefaultMode: new(int32(0o444))}
	return corev1.Volume{Name: inputVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &source}}
}

func (c *carried) configMap(meta metav1.ObjectMeta) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Immutable: new(true), Data: c.text, BinaryData: c.binary}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
