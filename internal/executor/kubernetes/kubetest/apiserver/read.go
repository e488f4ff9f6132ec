package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, req request) error {
	s.store.mu.Lock()
	o, ok := s.store.get(req.resource, req.key())
	s.store.mu.Unlock()
	if !ok {
		return apierrors.NewNotFound(req.resource.GroupResource(), req.name)
	}
	return write(w, r, http.StatusOK, o)
}

// selection reads the selectors of a request.
func selection(r *http.Request, req request) (func(object) bool, error) {
	query := r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse labelSelector: %v", err))
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse fieldSelector: %v", err))
	}
	known := fieldsOf(req.resource, nil)
	for _, requirement := range byField.Requirements() {
		if _, ok := known[requirement.Field]; !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("Unable to find %q that match label selector %q, field selector %q: field label not supported: %s",
				req.resource.GroupVersion().WithResource(req.resource.GroupVersionResource.Resource), byLabel, byField, requirement.Field))
		}
	}
	return func(o object) bool {
		return (req.namespace == "" || o.GetNamespace() == req.namespace) &&
			byLabel.Matches(labels.Set(o.GetLabels())) &&
			(byField.Empty() || byField.Matches(fieldsOf(req.resource, o)))
	}, nil
}

// fieldsOf are the fields by which objects can be selected; o may be nil for their names.
func fieldsOf(res *servedKind, o object) fields.Set {
	set := fields.Set{"metadata.name": "", "metadata.namespace": ""}
	if o != nil {
		set = fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	}
	if res.fields != nil {
		for name, value := range res.fields(o) {
			set[name] = value
		}
	}
	return set
}

// page is what a continue token says.
type page struct {
	Revision  uint64 `json:"rv"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (s *Server) serveList(w http.ResponseWriter, r *http.Request, req request) error {
	matches, err := selection(r, req)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	asked, err := parseRevision(query.Get("resourceVersion"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	var from page
	if token := query.Get("continue"); token != "" {
		if asked != 0 {
			return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		data, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(data, &from) != nil {
			return apierrors.NewBadRequest("continue key is not valid")
		}
	}

	s.store.mu.Lock()
	revision := s.store.revision
	switch {
	case from.Revision != 0:
		revision = from.Revision
	case asked > revision:
		s.store.mu.Unlock()
		return apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, revision), 1)
	case asked != 0 && query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact):
		revision = asked
	}
	all, ok := s.store.at(req.resource, revision)
	s.store.mu.Unlock()
	if !ok {
		return expired(from.Revision != 0)
	}

	var chosen []object
	rest := int64(0)
	for _, o := range all {
		k := key{o.GetNamespace(), o.GetName()}
		if !matches(o) || from.Revision != 0 && k.compare(key{from.Namespace, from.Name}) <= 0 {
			continue
		}
		if limit > 0 && len(chosen) == limit {
			rest++
			continue
		}
		chosen = append(chosen, o)
	}
	next := ""
	if rest > 0 {
		last := chosen[len(chosen)-1]
		token, err := json.Marshal(page{revision, last.GetNamespace(), last.GetName()})
		if err != nil {
			return err
		}
		next = base64.RawURLEncoding.EncodeToString(token)
	}
	l, err := list(req.resource, chosen, strconv.FormatUint(revision, 10), next, rest)
	if err != nil {
		return err
	}
	return write(w, r, http.StatusOK, l)
}

// expired is the answer to who goes on from what is forgotten.
func expired(paging bool) error {
	if paging {
		return apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
			"You must start a new list without the continue parameter.")
	}
	return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
}
