package apiserver

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kubeletClient returns a client for kubelets, whose certificates nobody has signed.
func kubeletClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // G402: a real API server without --kubelet-certificate-authority does the same
		DisableKeepAlives: true,
	}}
}

func (s *Server) serveBinding(w http.ResponseWriter, r *http.Request, req request) error {
	data, err := body(r)
	if err != nil {
		return err
	}
	decoded, err := decode(data, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return err
	}
	binding, ok := decoded.(*corev1.Binding)
	if !ok || binding.Target.Name == "" {
		return apierrors.NewBadRequest("a binding needs a target")
	}
	s.store.mu.Lock()
	err = s.bind(req, binding)
	s.store.mu.Unlock()
	if err != nil {
		return err
	}
	return write(w, r, http.StatusCreated, success())
}

// bind gives a pod its node. The store is locked.
func (s *Server) bind(req request, binding *corev1.Binding) error {
	stored, ok := s.store.get(req.resource, req.key())
	if !ok {
		return apierrors.NewNotFound(req.resource.GroupResource(), req.name)
	}
	pod := clone(stored).(*corev1.Pod)
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(req.resource.GroupResource(), req.name, fmt.Errorf(format, args...))
	}
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return conflict("Precondition failed: UID in precondition: %s, UID in object meta: %s", binding.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	}
	pod.Spec.NodeName = binding.Target.Name
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	s.store.put(req.resource, pod)
	return nil
}

// setCondition sets a condition of a pod, keeping the time since when it holds.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition) {
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	for i, old := range status.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}

// logParameters are the parameters of a log that kubelets know as well.
var logParameters = []string{"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"}

// serveLog hands on what the kubelet of the pod's node answers.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, req request) error {
	query := r.URL.Query()
	if stream := query.Get("stream"); stream != "" && stream != corev1.LogStreamAll && query.Get("tailLines") != "" {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, req.name, field.ErrorList{
			field.Forbidden(nil, "`tailLines` and specific `stream` are mutually exclusive for now"),
		})
	}
	target, err := s.logAddress(r, req)
	if err != nil {
		return err
	}
	if target == nil { // not on a node yet
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	call, err := http.NewRequestWithContext(r.Context(), http.MethodGet, target.String(), http.NoBody) //nolint:gosec // G704: the address is a node's, which only administrators write
	if err != nil {
		return err
	}
	answer, err := s.kubelets.Do(call) //nolint:gosec // G704: see above
	if err != nil {
		return apierrors.NewInternalError(said("Get %q: %v", target, err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		if answer.StatusCode == http.StatusBadRequest {
			return apierrors.NewBadRequest(strings.TrimSpace(string(text)))
		}
		return apierrors.NewGenericServerResponse(answer.StatusCode, http.MethodGet, req.resource.GroupResource(), req.name, strings.TrimSpace(string(text)), 0, true)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(flushing{w}, answer.Body); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what is cut for the end
	}
	return nil
}

// logAddress is where the log of a container is, nil if it is nowhere yet.
func (s *Server) logAddress(r *http.Request, req request) (*url.URL, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	stored, ok := s.store.get(req.resource, req.key())
	pod, isPod := stored.(*corev1.Pod)
	if !ok || !isPod {
		return nil, apierrors.NewNotFound(req.resource.GroupResource(), req.name)
	}
	query := r.URL.Query()
	container, err := containerOf(pod, query.Get("container"))
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	found, ok := s.store.get(s.byName("nodes"), key{"", pod.Spec.NodeName})
	node, isNode := found.(*corev1.Node)
	if !ok || !isNode {
		return nil, apierrors.NewInternalError(fmt.Errorf("nodes %q not found", pod.Spec.NodeName))
	}
	address := ""
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address = a.Address
		}
	}
	passed := url.Values{}
	for _, name := range logParameters {
		if v := query.Get(name); v != "" {
			passed.Set(name, v)
		}
	}
	return &url.URL{
		Scheme: "https", Host: net.JoinHostPort(address, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))),
		Path: "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + container, RawQuery: passed.Encode(),
	}, nil
}

// containerOf finds the container that is meant.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			return name, nil
		}
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return name, nil
		}
	}
	switch {
	case name != "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case len(names) == 1:
		return names[0], nil
	default:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, names))
	}
}

// flushing writes through.
type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if flusher, ok := f.w.(http.Flusher); ok {
		flusher.Flush()
	}
	return n, err
}
