package control

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/apiserver"
)

// quotas counts what the quotas of a namespace allow, since admission goes by their status.
type quotas struct {
	m *Manager

	mu      sync.Mutex
	touched map[string]bool
	wake    chan struct{}
}

func newQuotas(m *Manager) *quotas {
	return &quotas{m: m, touched: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// touch says that something in a namespace has changed.
func (q *quotas) touch(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.touched[namespace] = true
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *quotas) run() {
	for {
		select {
		case <-q.wake:
		case <-q.m.ctx.Done():
			return
		}
		q.mu.Lock()
		touched := q.touched
		q.touched = map[string]bool{}
		q.mu.Unlock()
		for namespace := range touched {
			known, err := q.m.factory.Core().V1().ResourceQuotas().Lister().ResourceQuotas(namespace).List(labels.Everything())
			if err != nil || len(known) == 0 {
				continue
			}
			for _, quota := range known {
				if q.count(q.m.ctx, quota) != nil {
					q.touch(namespace) // admission has counted meanwhile: once more
				}
			}
		}
		q.m.pause(20 * time.Millisecond)
	}
}

// count writes what is used of a quota. It reads the quota before what it counts: where
// admission counts in between, the update conflicts.
func (q *quotas) count(ctx context.Context, known *corev1.ResourceQuota) error {
	client := q.m.client.CoreV1()
	quota, err := client.ResourceQuotas(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
	if err != nil {
		return nil //nolint:nilerr // it was deleted, or the next change brings the next try
	}
	pods, err := client.Pods(known.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	maps, err := client.ConfigMaps(known.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	used := corev1.ResourceList{}
	add := func(usage corev1.ResourceList) {
		for name, quantity := range usage {
			sum := used[name].DeepCopy()
			sum.Add(quantity)
			used[name] = sum
		}
	}
	for i := range pods.Items {
		add(apiserver.Usage("pods", &pods.Items[i]))
	}
	for i := range maps.Items {
		add(apiserver.Usage("configmaps", &maps.Items[i]))
	}
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	for name := range quota.Spec.Hard {
		status.Used[name] = used[name]
	}
	if equality.Semantic.DeepEqual(status, quota.Status) {
		return nil
	}
	quota.Status = status
	_, err = client.ResourceQuotas(known.Namespace).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	return err
}
