package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

var update = flag.Bool("update", false, "write the golden files")

// Golden files show whole objects to those who want to know what is created.
func TestObjects(t *testing.T) {
	t.Parallel()
	gpu := func(s *kubernetes.Settings) {
		s.Classes = map[string]kubernetes.Class{"gpu": {
			CPUMillis: 2000, MemoryBytes: 8 << 30, ScratchBytes: 20 << 30, MaxGPUs: 2, CPUBurst: true,
			NodeSelector: map[string]string{"accelerator": "h100"}, Tolerations: []string{"nvidia.com/gpu:NoSchedule", "pool=batch:NoExecute", "spot"},
			RuntimeClass: "nvidia", PriorityClass: "batch",
		}}
		s.NamespacePerTenant, s.PullSecrets, s.UserNamespaces, s.Grace, s.User = "work-{tenant}", []string{"registry"}, true, 1500*time.Millisecond, 1000
	}
	full := task(`{"image":"ghcr.io/acme/train:7","command":["python3","-u"],"script":"import rates\nprint('$$', '$(HOME)')\n",
		"files":{"lib/rates.py":"x = 1\n","logo.png":{"base64":"iVBO"}},"env":{"LANG":"de_DE.UTF-8","PRICE":"$(5)"},"stdin":"hello\n",
		"limits":{"cpu_seconds":10,"memory_bytes":268435456,"file_bytes":1000},"working_dir":"/app"}`)
	full.Attempt, full.First, full.Tenant, full.Class, full.RunLimit = 5, 3, "acme", "gpu", 90*time.Second+1
	full.Needs, full.Checkpoint = executor.Needs{GPUs: 1, CPUMillis: 4000}, []byte("row 3")
	for name, c := range map[string]struct {
		builder *kubernetes.Builder
		task    executor.Task
	}{
		"plain": {newBuilder(t), task(`{"command":["sh","-c","echo one"]}`)},
		"own":   {newBuilder(t), task(`{"image":"hello-world"}`)},
		"full":  {newBuilder(t, gpu), full},
	} {
		o, _ := build(t, c.builder, c.task)
		var got bytes.Buffer
		encoder := json.NewEncoder(&got)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		require.NoError(t, encoder.Encode(o))
		golden := filepath.Join("testdata", name+".json")
		if *update {
			require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		assert.Equal(t, string(want), got.String(), "%s: go test ./internal/executor/kubernetes -run TestObjects -update", name)
	}
}

// Whatever is asked for, a pod keeps to the "restricted" profile of the Pod Security
// Standards, and to what else its builder promises.
func TestPodsAreHardened(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	for _, spec := range []string{`{"command":["true"]}`, `{"image":"hello-world"}`, `{"script":"echo","stdin":"x","limits":{"open_files":9}}`} {
		o, work := build(t, b, task(spec))
		p := o.Pod.Spec
		assert.Equal(t, corev1.RestartPolicyNever, p.RestartPolicy)
		assert.False(t, *p.AutomountServiceAccountToken)
		assert.False(t, *p.EnableServiceLinks)
		assert.False(t, p.HostNetwork || p.HostPID || p.HostIPC)
		assert.True(t, *p.SecurityContext.RunAsNonRoot)
		assert.Equal(t, kubernetes.UserDefault, *p.SecurityContext.RunAsUser)
		assert.Equal(t, kubernetes.UserDefault, *p.SecurityContext.RunAsGroup)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, p.SecurityContext.SeccompProfile.Type)
		assert.False(t, *work.SecurityContext.AllowPrivilegeEscalation)
		assert.False(t, *work.SecurityContext.Privileged)
		assert.True(t, *work.SecurityContext.ReadOnlyRootFilesystem)
		assert.Equal(t, []corev1.Capability{"ALL"}, work.SecurityContext.Capabilities.Drop)
		assert.Empty(t, work.SecurityContext.Capabilities.Add)
		assert.NotNil(t, work.Resources.Limits.Memory())
		for _, v := range p.Volumes {
			assert.True(t, v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil, "volume %s", v.Name)
		}
		for _, m := range work.VolumeMounts {
			assert.True(t, m.ReadOnly || m.Name == "work" || m.Name == "tmp", "mount %s", m.MountPath)
		}
	}
}

func TestAConfigMapIsMadeWhereThereIsSomethingToMount(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	o, _ := build(t, b, task(`{"command":["true"]}`))
	assert.Nil(t, o.ConfigMap)
	o.Own(o.Pod) // has nothing to do

	o, work := build(t, b, task(`{"command":["cat","a"],"files":{"a":"text","b":{"base64":"AP8="}},"stdin":"in"}`))
	require.NotNil(t, o.ConfigMap)
	assert.True(t, *o.ConfigMap.Immutable)
	assert.Equal(t, o.Pod.Name, o.ConfigMap.Name)
	assert.Equal(t, o.Pod.Namespace, o.ConfigMap.Namespace)
	assert.NotContains(t, o.ConfigMap.Annotations, kubernetes.AttemptAnnotation, "who carries the run on is said in one place")
	content := make(map[string]string)
	for _, m := range work.VolumeMounts {
		if m.SubPath == "" {
			continue
		}
		text, isText := o.ConfigMap.Data[m.SubPath]
		binary, isBinary := o.ConfigMap.BinaryData[m.SubPath]
		assert.NotEqual(t, isText, isBinary, m.SubPath)
		content[m.MountPath] = text + string(binary)
	}
	assert.Equal(t, map[string]string{kubernetes.WorkDir + "/a": "text", kubernetes.WorkDir + "/b": "\x00\xff", "/millrace/stdin": "in"}, content)

	created := o.Pod.DeepCopy()
	created.UID = types.UID("7f3a")
	o.Own(created)
	owner := o.ConfigMap.OwnerReferences[0]
	assert.Equal(t, "v1 Pod "+o.Pod.Name+" 7f3a", owner.APIVersion+" "+owner.Kind+" "+owner.Name+" "+string(owner.UID))
}

func TestWhatIsTooLargeForAConfigMapIsRefused(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	one := task(`{"script":"` + strings.Repeat("x", 960<<10) + `"}`)
	one.Checkpoint = make([]byte, executor.MaxCheckpointBytes)
	o, _ := build(t, b, one)
	assert.Equal(t, 1<<20, len(o.ConfigMap.Data["script"])+len(o.ConfigMap.Data["checkpoint"]), "what a spec may carry always has room, with the longest checkpoint")

	one.Checkpoint = make([]byte, executor.MaxCheckpointBytes+1)
	result := refused(t, b, one)
	assert.Equal(t, kubernetes.ReasonInputTooLarge, result.Reason)
	assert.Contains(t, result.Message, "1048577 bytes together, a ConfigMap has room for 1048576")
	assert.Equal(t, "invalid_spec", refused(t, b, task(`{"script":"`+strings.Repeat("x", 1<<20)+`"}`)).Reason)
}

func TestTheSameRunIsBuiltTheSame(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	one := task(`{"script":"echo","files":{"a":"1","b":"2","c":"3"},"env":{"A":"1","B":"2","C":"3"}}`)
	first, _ := build(t, b, one)
	for attempt := 2; attempt < 20; attempt++ {
		one.Attempt = attempt
		again, _ := build(t, b, one)
		again.Pod.Annotations[kubernetes.AttemptAnnotation] = "1"
		require.Equal(t, first, again)
	}
	one.First = 19
	fresh, _ := build(t, b, one)
	assert.NotEqual(t, first.Pod.Name, fresh.Pod.Name)
}

func TestWhatIsAskedForIsGivenUpToTheCeilingOfTheClass(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, func(s *kubernetes.Settings) {
		s.Default = kubernetes.Class{CPUMillis: 100, MemoryBytes: 1 << 27, MaxCPUMillis: 2000, MaxMemoryBytes: 1 << 30}
		s.Classes = map[string]kubernetes.Class{"gpu": {MaxGPUs: 2, GPUResource: "amd.com/gpu"}}
	})
	given := func(class string, needs executor.Needs) corev1.ResourceRequirements {
		one := task(`{"command":["true"]}`)
		one.Class, one.Needs = class, needs
		_, work := build(t, b, one)
		return work.Resources
	}
	r := given("any", executor.Needs{})
	assert.Equal(t, "100m 128Mi", r.Requests.Cpu().String()+" "+r.Requests.Memory().String())
	assert.Equal(t, r.Requests, r.Limits)
	r = given("any", executor.Needs{CPUMillis: 2000, MemoryBytes: 1 << 30})
	assert.Equal(t, "2 1Gi", r.Requests.Cpu().String()+" "+r.Requests.Memory().String())
	r = given("gpu", executor.Needs{GPUs: 2})
	assert.Equal(t, "2", r.Limits.Name("amd.com/gpu", "").String())
	assert.Equal(t, r.Requests, r.Limits)

	for _, c := range []struct {
		class string
		needs executor.Needs
		words string
	}{
		{"any", executor.Needs{CPUMillis: 2001}, `asks for 2001m cores, more than the 2 that pods of the class "any" get here`},
		{"any", executor.Needs{MemoryBytes: 1<<30 + 1<<20}, `asks for 1025Mi of memory, more than the 1Gi that`},
		{"any", executor.Needs{GPUs: 1}, `asks for 1 graphics processors, and the class "any" has none`},
		{"gpu", executor.Needs{GPUs: 3}, `asks for 3 graphics processors, more than the 2 that`},
	} {
		one := task(`{"command":["true"]}`)
		one.Class, one.Needs = c.class, c.needs
		result := refused(t, b, one)
		assert.Equal(t, kubernetes.ReasonNeedsTooLarge, result.Reason)
		assert.Contains(t, result.Message, c.words)
	}
}

// expand does to a word what the kubelet does to those of command, args and env
// (third_party/forked/golang/expansion in Kubernetes); every variable is worth "EXPANDED".
func expand(word string) string {
	var out strings.Builder
	for i := 0; i < len(word); i++ {
		switch rest := word[i:]; {
		case strings.HasPrefix(rest, "$$"):
			out.WriteByte('$')
			i++
		case strings.HasPrefix(rest, "$(") && strings.Contains(rest, ")"):
			out.WriteString("EXPANDED")
			i += strings.IndexByte(rest, ')')
		default:
			out.WriteByte(word[i])
		}
	}
	return out.String()
}

func TestTheKubeletReadsNoVariablesIntoWords(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[$()a]{0,12}`).Draw(t, "word")
		text, _ := json.Marshal(map[string]any{"command": []string{"echo", word}, "env": map[string]string{"X": word}})
		o, err := b.Build(task(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		work := o.Pod.Spec.Containers[0]
		if got := expand(work.Command[1]); got != word {
			t.Fatalf("%q arrives as %q", word, got)
		}
		if got := expand(work.Env[len(work.Env)-1].Value); got != word {
			t.Fatalf("%q arrives as %q", word, got)
		}
	})
}
