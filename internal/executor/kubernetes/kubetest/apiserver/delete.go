package apiserver

import (
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *Server) serveDelete(w http.ResponseWriter, r *http.Request, req request) error {
	options, err := deleteOptions(r)
	if err != nil {
		return err
	}
	s.store.mu.Lock()
	o, gone, err := s.delete(req, options)
	s.store.mu.Unlock()
	switch {
	case err != nil:
		return err
	case gone && req.resource.kind != "Pod":
		// As a real server does it: what is gone is answered with a Status, except pods.
		status := success()
		status.Details = &metav1.StatusDetails{
			Name: o.GetName(), Group: req.resource.Group, Kind: req.resource.GroupVersionResource.Resource, UID: o.GetUID(),
		}
		return write(w, r, http.StatusOK, status)
	default:
		return write(w, r, http.StatusOK, o)
	}
}

// delete deletes an object, or marks it as deleted where something has to happen first. The
// store is locked.
func (s *Server) delete(req request, options metav1.DeleteOptions) (o object, gone bool, err error) {
	res := req.resource
	old, ok := s.store.get(res, req.key())
	if !ok {
		return nil, false, apierrors.NewNotFound(res.GroupResource(), req.name)
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() {
			return nil, false, apierrors.NewConflict(res.GroupResource(), req.name,
				said("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, old.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return nil, false, apierrors.NewConflict(res.GroupResource(), req.name,
				said("Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", *p.ResourceVersion, old.GetResourceVersion()))
		}
	}
	o = clone(old)
	grace := gracePeriod(o, options)
	if current := o.GetDeletionGracePeriodSeconds(); o.GetDeletionTimestamp() != nil {
		if current != nil && *current <= grace {
			if finished(o) {
				return s.store.remove(res, o), true, nil
			}
			return old, false, nil // it is being deleted already, and not later than asked
		}
		if current != nil { // as a real server counts it: from when it was deleted first
			first := o.GetDeletionTimestamp().Add(-time.Duration(*current) * time.Second)
			o.SetDeletionTimestamp(new(metav1.NewTime(first.Add(time.Duration(grace) * time.Second))))
		}
	} else {
		o.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))))
	}
	o.SetDeletionGracePeriodSeconds(&grace)
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Status.Phase = corev1.NamespaceTerminating
	}
	if finished(o) {
		return s.store.remove(res, o), true, nil
	}
	return s.store.put(res, o), false, nil
}

// gracePeriod is how many seconds a pod has to end; everything else has none. A pod that
// runs nowhere, or no more, needs none.
func gracePeriod(o object, options metav1.DeleteOptions) int64 {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case options.GracePeriodSeconds != nil:
		return max(0, *options.GracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return corev1.DefaultTerminationGracePeriodSeconds
	}
}

func (s *Server) serveDeleteCollection(w http.ResponseWriter, r *http.Request, req request) error {
	options, err := deleteOptions(r)
	if err != nil {
		return err
	}
	matches, err := selection(r, req)
	if err != nil {
		return err
	}
	s.store.mu.Lock()
	all, _ := s.store.at(req.resource, s.store.revision)
	var deleted []object
	for _, o := range all {
		if !matches(o) {
			continue
		}
		one := request{resource: req.resource, namespace: o.GetNamespace(), name: o.GetName()}
		last, _, err := s.delete(one, options)
		if err != nil {
			s.store.mu.Unlock()
			return err
		}
		deleted = append(deleted, last)
	}
	revision := strconv.FormatUint(s.store.revision, 10)
	s.store.mu.Unlock()
	l, err := list(req.resource, deleted, revision, "", 0)
	if err != nil {
		return err
	}
	return write(w, r, http.StatusOK, l)
}
