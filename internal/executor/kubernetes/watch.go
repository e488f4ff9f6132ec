package kubernetes

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// watchPauseMin and watchPauseMax bound the pause before a watch that has failed is
	// begun again.
	watchPauseMin = 100 * time.Millisecond
	watchPauseMax = 15 * time.Second
	// watchGood is how long a watch has to last to be forgotten as a failure.
	watchGood = 30 * time.Second
	// pageSize is how many objects are asked for at once.
	pageSize = 500
)

// watcher keeps up one watch. client-go's reflector knows how: it begins where it has
// stopped, by the resource version of the last event or bookmark, and with a list when that
// version is gone (410).
type watcher[T runtime.Object] struct {
	name string
	// what is an object of the kind that is watched.
	what T
	list func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	open func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
	// changed, removed and all are told what comes. They must not wait.
	changed, removed func(T)
	all              func(objects []T, version string)
	// relist is how often everything is listed again, whatever the watch has brought: that
	// makes good what it may have missed, and ends one that hangs.
	relist time.Duration
	log    *slog.Logger
	faults func()
	// denied is told when the account may not; nil: nobody asks.
	denied func()
	// works is told whether the watch brings what happens; nil: nobody asks.
	works func(bool)
}

// run watches until ctx ends. An error is logged once for each new cause.
func (w *watcher[T]) run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.open}, w.what, w,
		cache.ReflectorOptions{
			Name: w.name, TypeDescription: w.name, Logger: new(logr.Discard()),
			Backoff: &wait.Backoff{Duration: watchPauseMin, Cap: watchPauseMax, Steps: 10, Factor: 2, Jitter: 0.5},
		})
	reflector.WatchListPageSize = pageSize
	// What client-go would log is said here, in our words.
	quiet := klog.NewContext(ctx, logr.Discard())
	pause, said := watchPauseMin, ""
	for ctx.Err() == nil {
		began := time.Now()
		round, cancel := context.WithTimeout(quiet, w.relist+rand.N(w.relist/4+1))
		err := reflector.ListAndWatchWithContext(round)
		cancel()
		if time.Since(began) > watchGood {
			pause, said = watchPauseMin, ""
		}
		if err == nil || ctx.Err() != nil {
			// The reflector also says nothing of a watch that was cut or is out of date.
			sleep(ctx, watchPauseMin/10)
			continue
		}
		w.faults()
		if w.works != nil {
			w.works(false)
		}
		if w.denied != nil && apierrors.IsForbidden(err) {
			w.denied()
		}
		if text := err.Error(); text != said {
			said = text
			w.log.WarnContext(ctx, "watch failed, it will be begun again", "watch", w.name, "error", err, "hint", hint(err))
		}
		sleep(ctx, pause+rand.N(pause))
		pause = min(2*pause, watchPauseMax)
	}
}

// hint says what to do about an error of the API server, as far as that is plain.
func hint(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "the account of the worker has not the rights that it needs: see docs/kubernetes.md, \"Rights\""
	case apierrors.IsUnauthorized(err):
		return "the API server does not know the worker: the token or the certificate of its kubeconfig has expired or is wrong"
	case apierrors.IsNotFound(err):
		return "there is no such thing: look whether the namespace exists"
	}
	return ""
}

// Add implements cache.ReflectorStore.
func (w *watcher[T]) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *watcher[T]) Update(obj any) error {
	if o, ok := obj.(T); ok {
		w.changed(o)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *watcher[T]) Delete(obj any) error {
	if o, ok := obj.(T); ok {
		w.removed(o)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *watcher[T]) Replace(list []any, version string) error {
	objects := make([]T, 0, len(list))
	for _, obj := range list {
		if o, ok := obj.(T); ok {
			objects = append(objects, o)
		}
	}
	w.all(objects, version)
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watcher[T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore: a list that comes as a stream is kept in
// memory until its end.
func (w *watcher[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			return trim(p), nil
		}
		return obj, nil
	}
}

// trim drops from a pod what nobody looks at. The pod is changed.
func trim(p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = nil
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds, Containers: names(p.Spec.Containers),
	}
	p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses = nil, nil
	p.Status.HostIPs, p.Status.PodIPs = nil, nil
	return p
}

// names keeps of containers what messages speak of.
func names(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i, c := range containers {
		kept[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources}
	}
	return kept
}

// watchPods keeps the board up to date.
func (e *Executor) watchPods(ctx context.Context) {
	namespace := e.scope()
	selector := Selector(e.cfg.Installation).String()
	w := &watcher[*corev1.Pod]{
		name: "pods", what: &corev1.Pod{}, relist: e.cfg.Relist, log: e.log, faults: e.metrics.watchFaults.WithLabelValues("pods").Inc,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return e.client.CoreV1().Pods(namespace).List(ctx, o)
		},
		open: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = selector
			return e.client.CoreV1().Pods(namespace).Watch(ctx, o)
		},
		changed: func(p *corev1.Pod) { e.census.seen(p); e.board.show(trim(p)) },
		removed: func(p *corev1.Pod) { e.census.gone(p); e.board.remove(trim(p)) },
		all: func(all []*corev1.Pod, version string) {
			for _, p := range all {
				trim(p)
			}
			e.census.replace(all)
			e.board.replace(all, version)
			e.metrics.relists.Inc()
			e.watching.Store(true)
		},
		works: e.watching.Store,
	}
	w.run(ctx)
}

// scope is the namespace in which all pods are, or all namespaces.
func (e *Executor) scope() string {
	if e.builder.NamespacesByTenant() {
		return metav1.NamespaceAll
	}
	return e.builder.Namespace("")
}
