package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func (s *Server) serveCreate(w http.ResponseWriter, r *http.Request, req request) error {
	if req.name != "" {
		return apierrors.NewMethodNotSupported(req.resource.GroupResource(), "create")
	}
	data, err := body(r)
	if err != nil {
		return err
	}
	decoded, err := decode(data, req.resource.gvk())
	if err != nil {
		return err
	}
	if review, ok := decoded.(*authorizationv1.SelfSubjectAccessReview); ok {
		review.Status.Allowed = true
		review.SetGroupVersionKind(req.resource.gvk())
		return write(w, r, http.StatusCreated, review)
	}
	o, err := asObject(decoded)
	if err != nil {
		return err
	}
	created, err := s.create(req, o, r.URL.Query().Get("dryRun") == metav1.DryRunAll)
	if err != nil {
		return err
	}
	return write(w, r, http.StatusCreated, created)
}

// create stores a new object, which is the server's from then on. A dry run does all but
// that.
func (s *Server) create(req request, o object, dry bool) (object, error) {
	res := req.resource
	switch {
	case !res.namespaced:
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(req.namespace)
	case o.GetNamespace() != req.namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	o.SetUID(types.UID(uuid.NewString()))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(res.gvk())
	prepare(o)
	if errs := validate(res, o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(res.groupKind(), o.GetName(), errs)
	}

	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if res.namespaced {
		found, ok := s.store.get(s.byName("namespaces"), key{"", req.namespace})
		if !ok {
			return nil, apierrors.NewNotFound(s.byName("namespaces").GroupResource(), req.namespace)
		}
		if found.GetDeletionTimestamp() != nil {
			return nil, terminating(res, o)
		}
	}
	if _, exists := s.store.get(res, key{o.GetNamespace(), o.GetName()}); exists {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), o.GetName())
	}
	if err := s.admit(res, o, dry); err != nil || dry {
		return o, err
	}
	return s.store.put(res, o), nil
}

// terminating is the refusal of what would be created in a namespace that is deleted.
func terminating(res *servedKind, o object) error {
	err := apierrors.NewForbidden(res.GroupResource(), o.GetName(),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", o.GetNamespace()))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", o.GetNamespace()), Field: "metadata.namespace"})
	return err
}

func (s *Server) serveUpdate(w http.ResponseWriter, r *http.Request, req request) error {
	if req.name == "" {
		return apierrors.NewMethodNotSupported(req.resource.GroupResource(), "update")
	}
	data, err := body(r)
	if err != nil {
		return err
	}
	decoded, err := decode(data, req.resource.gvk())
	if err != nil {
		return err
	}
	o, err := asObject(decoded)
	if err != nil {
		return err
	}
	if o.GetName() != req.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), req.name))
	}
	o.SetNamespace(req.namespace)
	s.store.mu.Lock()
	updated, err := s.update(req, o, false)
	s.store.mu.Unlock()
	if err != nil {
		return err
	}
	return write(w, r, http.StatusOK, updated)
}

// update stores a changed object. The store is locked.
func (s *Server) update(req request, o object, patched bool) (object, error) {
	res := req.resource
	old, ok := s.store.get(res, req.key())
	if !ok {
		return nil, apierrors.NewNotFound(res.GroupResource(), req.name)
	}
	if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
		if patched {
			return nil, apierrors.NewInvalid(res.groupKind(), req.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
			})
		}
		return nil, apierrors.NewConflict(res.GroupResource(), req.name,
			said("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID()))
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(res.GroupResource(), req.name,
			said("the object has been modified; please apply your changes to the latest version and try again"))
	}
	o = keep(req, old, o)
	o.GetObjectKind().SetGroupVersionKind(res.gvk())
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	o.SetResourceVersion(old.GetResourceVersion())
	o.SetManagedFields(nil)
	if errs := validateUpdate(o, old); len(errs) > 0 {
		return nil, apierrors.NewInvalid(res.groupKind(), req.name, errs)
	}
	if equality.Semantic.DeepEqual(o, old) {
		return old, nil
	}
	if finished(o) {
		return s.store.remove(res, o), nil
	}
	return s.store.put(res, o), nil
}

// keep returns what an update changes, which depends on the subresource: the status, or
// all but the status.
func keep(req request, old, o object) object {
	if namespace, ok := o.(*corev1.Namespace); ok && req.subresource == "finalize" {
		kept := clone(old).(*corev1.Namespace)
		kept.Spec.Finalizers = namespace.Spec.Finalizers
		return kept
	}
	if !req.resource.status {
		return o
	}
	if req.subresource == "status" {
		kept := clone(old)
		reflect.ValueOf(kept).Elem().FieldByName("Status").Set(reflect.ValueOf(o).Elem().FieldByName("Status"))
		return kept
	}
	reflect.ValueOf(o).Elem().FieldByName("Status").Set(reflect.ValueOf(clone(old)).Elem().FieldByName("Status"))
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
	}
	return o
}

// finished says whether the last reason to keep a deleted object is gone.
func finished(o object) bool {
	if o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) > 0 {
		return false
	}
	switch o := o.(type) {
	case *corev1.Namespace:
		return len(o.Spec.Finalizers) == 0
	default:
		grace := o.GetDeletionGracePeriodSeconds()
		return grace == nil || *grace == 0
	}
}

func (s *Server) servePatch(w http.ResponseWriter, r *http.Request, req request) error {
	if req.name == "" {
		return apierrors.NewMethodNotSupported(req.resource.GroupResource(), "patch")
	}
	data, err := body(r)
	if err != nil {
		return err
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	s.store.mu.Lock()
	patched, err := s.patch(req, types.PatchType(kind), data)
	s.store.mu.Unlock()
	if err != nil {
		return err
	}
	return write(w, r, http.StatusOK, patched)
}

// patch changes an object. The store is locked.
func (s *Server) patch(req request, kind types.PatchType, patch []byte) (object, error) {
	res := req.resource
	old, ok := s.store.get(res, req.key())
	if !ok {
		return nil, apierrors.NewNotFound(res.GroupResource(), req.name)
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = operations.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", res.GroupResource(), req.name, err.Error(), 0, false)
		}
	case types.MergePatchType:
		if after, err = jsonpatch.MergePatch(before, patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case types.StrategicMergePatchType:
		if after, err = strategicpatch.StrategicMergePatch(before, patch, old); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", res.GroupResource(), req.name,
			fmt.Sprintf("the patch type %q is not served", kind), 0, true)
	}
	decoded, err := decode(after, res.gvk())
	if err != nil {
		return nil, err
	}
	o, err := asObject(decoded)
	if err != nil {
		return nil, err
	}
	return s.update(req, o, true)
}
