package control

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// dependent is an object that somebody owns.
type dependent struct {
	kind, namespace, name string
	uid                   types.UID
}

// owners deletes pods and config maps when the last of their owners is gone.
type owners struct {
	m *Manager

	mu   sync.Mutex
	of   map[types.UID]map[dependent]bool // by owner
	live map[types.UID]bool
}

func newOwners(m *Manager) *owners {
	return &owners{m: m, of: map[types.UID]map[dependent]bool{}, live: map[types.UID]bool{}}
}

func (o *owners) added(kind string, obj metav1.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live[obj.GetUID()] = true
	d := dependent{kind, obj.GetNamespace(), obj.GetName(), obj.GetUID()}
	for _, ref := range obj.GetOwnerReferences() {
		if o.of[ref.UID] == nil {
			o.of[ref.UID] = map[dependent]bool{}
		}
		if !o.of[ref.UID][d] {
			o.of[ref.UID][d] = true
			if !o.live[ref.UID] {
				o.check(d)
			}
		}
	}
}

func (o *owners) deleted(kind string, obj metav1.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, obj.GetUID())
	d := dependent{kind, obj.GetNamespace(), obj.GetName(), obj.GetUID()}
	for _, ref := range obj.GetOwnerReferences() {
		delete(o.of[ref.UID], d)
	}
	for d := range o.of[obj.GetUID()] {
		o.check(d)
	}
	delete(o.of, obj.GetUID())
}

// check asks the API whether a dependent still has an owner, and deletes it if it has not.
func (o *owners) check(d dependent) {
	o.m.later("collect "+d.name, func(ctx context.Context) error {
		refs, err := o.references(ctx, d)
		if err != nil || len(refs) == 0 {
			return err
		}
		for _, ref := range refs {
			there, err := o.exists(ctx, d.namespace, ref)
			if err != nil || there {
				return err
			}
		}
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(d.uid))}
		if d.kind == "Pod" {
			return o.m.client.CoreV1().Pods(d.namespace).Delete(ctx, d.name, options)
		}
		return o.m.client.CoreV1().ConfigMaps(d.namespace).Delete(ctx, d.name, options)
	})
}

func (o *owners) references(ctx context.Context, d dependent) ([]metav1.OwnerReference, error) {
	var obj metav1.Object
	var err error
	if d.kind == "Pod" {
		obj, err = o.m.client.CoreV1().Pods(d.namespace).Get(ctx, d.name, metav1.GetOptions{})
	} else {
		obj, err = o.m.client.CoreV1().ConfigMaps(d.namespace).Get(ctx, d.name, metav1.GetOptions{})
	}
	if err != nil || obj.GetUID() != d.uid {
		return nil, err
	}
	return obj.GetOwnerReferences(), nil
}

// exists says whether an owner is there; kinds that are not known count as there.
func (o *owners) exists(ctx context.Context, namespace string, ref metav1.OwnerReference) (bool, error) {
	var obj metav1.Object
	var err error
	switch ref.Kind {
	case "Pod":
		obj, err = o.m.client.CoreV1().Pods(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	case "ConfigMap":
		obj, err = o.m.client.CoreV1().ConfigMaps(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	case "Node":
		obj, err = o.m.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
	default:
		return true, nil
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && obj.GetUID() == ref.UID, err
}

func (m *Manager) namespaceChanged(o any) {
	ns, ok := o.(*corev1.Namespace)
	if !ok || ns.DeletionTimestamp == nil || len(ns.Spec.Finalizers) == 0 {
		return
	}
	m.later("empty namespace "+ns.Name, func(ctx context.Context) error { return m.empty(ctx, ns.Name) })
}

// empty deletes what is in a namespace and lets it go when nothing is left.
func (m *Manager) empty(ctx context.Context, name string) error {
	core := m.client.CoreV1()
	all, none := metav1.ListOptions{}, metav1.DeleteOptions{}
	for _, err := range []error{
		core.Pods(name).DeleteCollection(ctx, none, all), core.ConfigMaps(name).DeleteCollection(ctx, none, all),
		core.ResourceQuotas(name).DeleteCollection(ctx, none, all), core.ServiceAccounts(name).DeleteCollection(ctx, none, all),
		core.Events(name).DeleteCollection(ctx, none, all),
		m.client.NetworkingV1().NetworkPolicies(name).DeleteCollection(ctx, none, all),
	} {
		if err != nil {
			return err
		}
	}
	pods, err := core.Pods(name).List(ctx, all)
	if err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return apierrors.NewTooManyRequests("pods are left", 1)
	}
	ns, err := core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.Spec.Finalizers = nil
	_, err = core.Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return err
}
