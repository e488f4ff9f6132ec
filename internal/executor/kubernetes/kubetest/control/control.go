// Package control is the part of a cluster's control plane that a bare API server lacks: a
// scheduler, the garbage collector of owners, the collector of pods whose node is gone,
// the eviction from nodes that cannot be reached, the counting of quotas and the end of
// namespaces. All of it is small, prompt and made for tests; it works against any API
// server.
package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Manager runs the controllers.
type Manager struct {
	client  kubernetes.Interface
	log     *slog.Logger
	ctx     context.Context
	stop    context.CancelFunc
	loops   sync.WaitGroup
	factory informers.SharedInformerFactory

	scheduler *scheduler
	owners    *owners
	quotas    *quotas

	mu sync.Mutex
	// driven are the pods that were told to leave their nodes, lost those whose node is deleted.
	driven, lost map[types.UID]bool
}

// Start begins to run the controllers with a client that may do everything, until Stop.
func Start(ctx context.Context, client kubernetes.Interface, log *slog.Logger) (*Manager, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	m := &Manager{client: client, log: log, ctx: life, stop: stop, factory: informers.NewSharedInformerFactory(client, 0),
		driven: map[types.UID]bool{}, lost: map[types.UID]bool{}}
	m.scheduler, m.owners, m.quotas = newScheduler(m), newOwners(m), newQuotas(m)
	core := m.factory.Core().V1()
	for _, handled := range []struct {
		informer cache.SharedIndexInformer
		changed  func(o any)
		deleted  func(o any)
	}{
		{core.Pods().Informer(), m.podChanged, m.podDeleted},
		{core.Nodes().Informer(), m.nodeChanged, m.nodeDeleted},
		{core.ConfigMaps().Informer(), m.configMapChanged, m.configMapDeleted},
		{core.ResourceQuotas().Informer(), m.quotaChanged, func(any) {}},
		{core.Namespaces().Informer(), m.namespaceChanged, func(any) {}},
	} {
		_, err := handled.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: handled.changed, UpdateFunc: func(_, o any) { handled.changed(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				handled.deleted(o)
			},
		})
		if err != nil {
			stop()
			return nil, fmt.Errorf("start controllers: %w", err)
		}
	}
	m.factory.StartWithContext(life)
	for kind, synced := range m.factory.WaitForCacheSyncWithContext(ctx).Synced {
		if !synced {
			m.Stop()
			return nil, fmt.Errorf("start controllers: %v are not listed: %w", kind, context.Cause(ctx))
		}
	}
	m.loops.Go(m.scheduler.run)
	m.loops.Go(m.quotas.run)
	return m, nil
}

// Stop ends the controllers and returns when they have ended.
func (m *Manager) Stop() {
	m.stop()
	m.factory.Shutdown()
	m.loops.Wait()
}

// later does something in the background until it is done, or there is nothing any more
// to do it to.
func (m *Manager) later(what string, do func(context.Context) error) {
	m.loops.Go(func() {
		for m.ctx.Err() == nil {
			err := do(m.ctx)
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return
			}
			m.log.Debug("A controller has to try again", "operation", what, "error", err)
			m.pause(100 * time.Millisecond)
		}
	})
}

func (m *Manager) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.ctx.Done():
	}
}

func (m *Manager) podChanged(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	m.scheduler.pod(pod)
	m.strand(pod)
	m.owners.added("Pod", pod)
	m.quotas.touch(pod.Namespace)
}

func (m *Manager) podDeleted(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	m.scheduler.podGone(pod)
	m.mu.Lock()
	delete(m.driven, pod.UID)
	delete(m.lost, pod.UID)
	m.mu.Unlock()
	m.owners.deleted("Pod", pod)
	m.quotas.touch(pod.Namespace)
}

func (m *Manager) configMapChanged(o any) {
	if cm, ok := o.(*corev1.ConfigMap); ok {
		m.owners.added("ConfigMap", cm)
		m.quotas.touch(cm.Namespace)
	}
}

func (m *Manager) configMapDeleted(o any) {
	if cm, ok := o.(*corev1.ConfigMap); ok {
		m.owners.deleted("ConfigMap", cm)
		m.quotas.touch(cm.Namespace)
	}
}

func (m *Manager) quotaChanged(o any) {
	if quota, ok := o.(*corev1.ResourceQuota); ok {
		m.quotas.touch(quota.Namespace)
	}
}
