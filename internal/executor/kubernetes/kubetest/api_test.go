package kubetest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// until reads a watch of pods until one event is as wanted.
func until(t *testing.T, events <-chan watch.Event, wanted func(kind string, pod *corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	limit := time.After(kubetest.Patience)
	for {
		select {
		case e, ok := <-events:
			require.True(t, ok, "the watch has ended")
			pod, isPod := e.Object.(*corev1.Pod)
			if isPod && wanted(string(e.Type), pod) {
				return pod
			}
		case <-limit:
			require.Fail(t, "no such event")
		}
	}
}

func configMap(name string, labels ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Data: map[string]string{"a": "1"}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		cm.Labels[k] = v
	}
	return cm
}

func TestWritesAreChecked(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	made, err := maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, made.UID)
	_, err = maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	_, err = maps.Create(t.Context(), configMap("Not A Name"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	_, err = client.CoreV1().ConfigMaps("nowhere").Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = maps.Get(t.Context(), "two", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	big := configMap("big")
	big.Data["b"] = strings.Repeat("x", 1<<20)
	_, err = maps.Create(t.Context(), big, metav1.CreateOptions{})
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	big.Data["b"] = strings.Repeat("x", 4<<20)
	_, err = maps.Create(t.Context(), big, metav1.CreateOptions{})
	assert.True(t, apierrors.IsRequestEntityTooLargeError(err), "%v", err)

	stale := made.DeepCopy()
	made.Data["a"] = "2"
	changed, err := maps.Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.NotEqual(t, stale.ResourceVersion, changed.ResourceVersion)
	same, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.Equal(t, changed.ResourceVersion, same.ResourceVersion, "what changes nothing is no change")
	stale.Data["a"] = "3"
	_, err = maps.Update(t.Context(), stale, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsConflict(err), "%v", err)

	fixed := configMap("fixed")
	fixed.Immutable = new(true)
	fixed, err = maps.Create(t.Context(), fixed, metav1.CreateOptions{})
	require.NoError(t, err)
	fixed.Data["a"] = "2"
	_, err = maps.Update(t.Context(), fixed, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsInvalid(err), "%v", err)

	other := types.UID("someone-else")
	err = maps.Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	err = maps.Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale.ResourceVersion}})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, maps.Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}))
	err = maps.Delete(t.Context(), "one", metav1.DeleteOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestPatches(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	pod := create(t, client, ns, shell("one", "true"))
	pods := client.CoreV1().Pods(ns)
	patch := func(kind types.PatchType, text string, sub ...string) (*corev1.Pod, error) {
		return pods.Patch(t.Context(), "one", kind, []byte(text), metav1.PatchOptions{}, sub...)
	}
	for kind, text := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"annotations":{"merge":"1"}}}`,
		types.StrategicMergePatchType: `{"metadata":{"annotations":{"strategic":"1"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels","value":{"json":"1"}}]`,
	} {
		_, err := patch(kind, text)
		require.NoError(t, err, kind)
	}
	now, err := pods.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "1", now.Annotations["merge"])
	assert.Equal(t, "1", now.Annotations["strategic"])
	assert.Equal(t, "1", now.Labels["json"])

	_, err = patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/json","value":"2"},{"op":"replace","path":"/metadata/labels/json","value":"3"}]`)
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	_, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"`+pod.ResourceVersion+`","annotations":{"merge":"2"}}}`)
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = patch(types.MergePatchType, `{"metadata":{"uid":"someone-else","annotations":{"merge":"2"}}}`)
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	_, err = patch(types.MergePatchType, `{"spec":{"nodeName":"elsewhere"}}`)
	assert.True(t, apierrors.IsInvalid(err), "%v", err)

	// The status is changed by its subresource alone, and that changes nothing else.
	now, err = patch(types.MergePatchType, `{"status":{"message":"no"}}`)
	require.NoError(t, err)
	assert.Empty(t, now.Status.Message)
	now, err = patch(types.MergePatchType, `{"status":{"message":"yes"}}`, "status")
	require.NoError(t, err)
	assert.Equal(t, "yes", now.Status.Message)
}

func TestLists(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	for i := range 7 {
		_, err := maps.Create(t.Context(), configMap(fmt.Sprintf("map-%d", i), fmt.Sprintf("odd=%v", i%2 == 1)), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	names := func(o metav1.ListOptions) ([]string, *corev1.ConfigMapList) {
		list, err := maps.List(t.Context(), o)
		require.NoError(t, err)
		var names []string
		for i := range list.Items {
			names = append(names, strings.TrimPrefix(list.Items[i].Name, "map-"))
		}
		return names, list
	}
	got, _ := names(metav1.ListOptions{LabelSelector: "odd=true"})
	assert.Equal(t, []string{"1", "3", "5"}, got)
	got, _ = names(metav1.ListOptions{FieldSelector: "metadata.name=map-4"})
	assert.Equal(t, []string{"4"}, got)
	_, err := maps.List(t.Context(), metav1.ListOptions{FieldSelector: "data.a=1"})
	assert.True(t, apierrors.IsBadRequest(err), "%v", err)

	// Pages show one moment, whatever happens in between.
	got, first := names(metav1.ListOptions{Limit: 3})
	assert.Equal(t, []string{"0", "1", "2"}, got)
	require.NoError(t, maps.Delete(t.Context(), "map-4", metav1.DeleteOptions{}))
	got, second := names(metav1.ListOptions{Limit: 3, Continue: first.Continue})
	assert.Equal(t, []string{"3", "4", "5"}, got)
	assert.Equal(t, first.ResourceVersion, second.ResourceVersion)
	got, last := names(metav1.ListOptions{Limit: 3, Continue: second.Continue})
	assert.Equal(t, []string{"6"}, got)
	assert.Empty(t, last.Continue)
	c.Compact(t)
	c.Restart(t) // a real server has pages in memory as well
	_, err = maps.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: first.Continue})
	assert.True(t, apierrors.IsResourceExpired(err), "%v", err)

	require.NoError(t, maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=true"}))
	got, _ = names(metav1.ListOptions{})
	assert.Equal(t, []string{"0", "2", "6"}, got)
}

// follow opens a watch of the config maps of a namespace.
func follow(t *testing.T, client kubernetes.Interface, ns string, o metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := client.CoreV1().ConfigMaps(ns).Watch(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// told reads n events of a watch, bookmarks not counted.
func told(t *testing.T, w watch.Interface, n int) []string {
	t.Helper()
	var list []string
	limit := time.After(kubetest.Patience)
	for len(list) < n {
		select {
		case e, ok := <-w.ResultChan():
			require.True(t, ok, "the watch has ended after %v", list)
			if cm, isMap := e.Object.(*corev1.ConfigMap); isMap && e.Type != watch.Bookmark {
				list = append(list, fmt.Sprintf("%s %s %s", e.Type, cm.Name, cm.Data["a"]))
			}
		case <-limit:
			require.Fail(t, "no more events", list)
		}
	}
	return list
}

func TestWatches(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	one, err := maps.Create(t.Context(), configMap("one", "watched=yes"), metav1.CreateOptions{})
	require.NoError(t, err)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	all := follow(t, client, ns, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	chosen := follow(t, client, ns, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "watched=yes"})
	one.Data["a"] = "2"
	one, err = maps.Update(t.Context(), one, metav1.UpdateOptions{})
	require.NoError(t, err)
	one.Labels["watched"] = "no"
	one, err = maps.Update(t.Context(), one, metav1.UpdateOptions{})
	require.NoError(t, err)
	one.Labels["watched"] = "yes"
	_, err = maps.Update(t.Context(), one, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, maps.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	assert.Equal(t, []string{"MODIFIED one 2", "MODIFIED one 2", "MODIFIED one 2", "DELETED one 2"}, told(t, all, 4))
	assert.Equal(t, []string{"MODIFIED one 2", "DELETED one 2", "ADDED one 2", "DELETED one 2"}, told(t, chosen, 4), "what no longer matches is deleted to who selects")

	// From the past: everything again, in order.
	again := follow(t, client, ns, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	assert.Equal(t, []string{"MODIFIED one 2", "MODIFIED one 2", "MODIFIED one 2", "DELETED one 2"}, told(t, again, 4))

	// From now, beginning with what there is.
	_, err = maps.Create(t.Context(), configMap("two"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"ADDED two 1"}, told(t, follow(t, client, ns, metav1.ListOptions{}), 1))
	initial := follow(t, client, ns, metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	assert.Equal(t, []string{"ADDED two 1"}, told(t, initial, 1))
	mark := <-initial.ResultChan()
	require.Equal(t, watch.Bookmark, mark.Type)
	assert.Equal(t, "true", mark.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey])
}

// A watch that goes on from what is forgotten is told that it is gone.
func TestCompaction(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client, ns := c.Client(t), c.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	alive := follow(t, client, ns, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	_, err = maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"ADDED one 1"}, told(t, alive, 1))
	c.Compact(t)
	c.Restart(t) // a real server has what it watches in memory as well
	require.Eventually(t, func() bool {
		w, err := client.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return true
		}
		if err != nil {
			return false
		}
		defer w.Stop()
		select {
		case e := <-w.ResultChan():
			status := apierrors.FromObject(e.Object)
			return e.Type == watch.Error && (apierrors.IsResourceExpired(status) || apierrors.IsGone(status))
		case <-time.After(time.Second):
			return false
		}
	}, kubetest.Patience, 10*time.Millisecond)
	found, err := maps.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "one", found.Name, "the data outlive a restart")
}

func TestFaults(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	config := c.Config()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ns := c.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)

	c.Gate().Inject(faults.Fault{Match: faults.On("create", "configmaps"), Times: 1, Answer: faults.Internal("out of order")})
	_, err = maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsInternalError(err), "%v", err)

	c.Gate().Inject(faults.Fault{Match: faults.On("create", "configmaps"), Times: 1, Lost: true})
	_, err = maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{})
	require.Error(t, err)
	_, err = maps.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err, "the answer was lost, the effect was not")

	// A call that is held has its effect when it is let go, though nobody waits for it.
	hold, hit := make(chan struct{}), make(chan struct{})
	c.Gate().Inject(faults.Fault{Match: faults.On("create", "configmaps"), Times: 1, Lost: true, Hold: hold, Hit: func(faults.Call) { close(hit) }})
	impatient, leave := context.WithCancel(t.Context())
	go func() {
		<-hit
		leave()
	}()
	_, err = maps.Create(impatient, configMap("late"), metav1.CreateOptions{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Admin().CoreV1().ConfigMaps(ns).Get(t.Context(), "late", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	close(hold)
	require.Eventually(t, func() bool {
		_, err := c.Admin().CoreV1().ConfigMaps(ns).Get(t.Context(), "late", metav1.GetOptions{})
		return err == nil
	}, kubetest.Patience, tick)
	require.NoError(t, maps.Delete(t.Context(), "late", metav1.DeleteOptions{}))

	c.Gate().Inject(faults.Fault{Match: faults.On("create", "configmaps"), Times: 1, Dropped: true})
	_, err = maps.Create(t.Context(), configMap("two"), metav1.CreateOptions{})
	require.Error(t, err)
	_, err = maps.Get(t.Context(), "two", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)

	c.Gate().Inject(faults.Fault{Match: faults.On("create", "pods"), Times: 1, Answer: faults.QuotaExceeded("team")})
	_, err = client.CoreV1().Pods(ns).Create(t.Context(), shell("one", "true"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "exceeded quota: team")

	remove := c.Gate().Inject(faults.Fault{Match: faults.On("get", ""), Answer: faults.Throttled(time.Second)})
	answer, err := http.Get(config.Host + "/api/v1/namespaces/" + ns + "/configmaps/one")
	require.NoError(t, err)
	answer.Body.Close()
	assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.Equal(t, "1", answer.Header.Get("Retry-After"))
	remove()

	w := follow(t, client, ns, metav1.ListOptions{})
	told(t, w, 1)
	assert.Equal(t, 1, c.Gate().Streams(faults.On("watch", "configmaps")))
	assert.Equal(t, 1, c.Gate().CutWatches())
	_, open := <-w.ResultChan()
	assert.False(t, open)

	c.Gate().Shut()
	if answer, err = http.Get(config.Host + "/version"); err == nil { // the client would try ten times
		answer.Body.Close()
	}
	require.Error(t, err)
	c.Gate().Open()
	_, err = maps.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestQuota(t *testing.T) {
	t.Parallel()
	c, client, ns := grounds(t)
	c.SetQuota(t, ns, corev1.ResourceList{"pods": resource.MustParse("1"), "requests.cpu": resource.MustParse("1")})
	sized := func(name, cpu string) *corev1.Pod {
		pod := shell(name, "trap 'exit 0' TERM; while :; do sleep 0.01; done")
		if cpu != "" {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		}
		return pod
	}
	try := func(pod *corev1.Pod) error {
		_, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	err := try(sized("modest", ""))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "failed quota: quota: must specify requests.cpu")
	err = try(sized("greedy", "2"))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "exceeded quota: quota, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1")
	require.NoError(t, try(sized("first", "500m")))
	err = try(sized("second", "100m"))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "exceeded quota")
	require.NoError(t, client.CoreV1().Pods(ns).Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	require.Eventually(t, func() bool { return try(sized("second", "100m")) == nil }, kubetest.Patience, 20*time.Millisecond, "what is gone gives its place back")
}
