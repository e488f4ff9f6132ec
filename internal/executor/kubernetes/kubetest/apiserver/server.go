// Package apiserver serves a subset of the Kubernetes API from memory: what an executor of
// pods needs, with the semantics that such a program can get wrong.
//
// # What holds
//
// Every change has a resource version of its own. Lists are consistent snapshots, also
// page by page (limit and continue). Watches begin at any resource version that is not
// compacted and tell every change after it once, in order; one that begins before that gets
// 410 Gone. Bookmarks and initial events (WatchList) are served. Writes are checked for
// resource versions and uids; deletion is graceful for pods that run, and waits for
// finalizers. Quotas refuse pods by their status, as the real one does.
//
// # What is left out
//
// Authentication, authorization (but see package faults), server-side apply, most
// validation of pods, and all controllers: package control has the few that matter, and
// they work against a real API server as well.
package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Version is the version of Kubernetes that the server says it is.
const Version = "v1.36.3"

// Config changes how a server behaves; the zero value is good.
type Config struct {
	// BookmarkEvery is how often watches that ask for bookmarks get one. Defaults to one
	// second (a real server: one minute).
	BookmarkEvery time.Duration
	// History is how many changes are kept before the oldest are compacted by themselves.
	// Defaults to 50000.
	History int
}

// Server is a Kubernetes API in memory. Its handler is safe for concurrent use.
type Server struct {
	config    Config
	store     *store
	resources map[schema.GroupVersionResource]*servedKind
	ordered   []*servedKind
	kubelets  *http.Client

	mu      sync.Mutex
	cut     chan struct{} // closed to end all watches
	watches int
}

// New returns a server that has the namespaces of a new cluster and nothing else.
func New(c Config) *Server {
	if c.BookmarkEvery == 0 {
		c.BookmarkEvery = time.Second
	}
	if c.History == 0 {
		c.History = 50_000
	}
	s := &Server{
		config: c, store: newStore(c.History), kubelets: kubeletClient(),
		resources: map[schema.GroupVersionResource]*servedKind{},
		ordered:   resources(), cut: make(chan struct{}),
	}
	for _, r := range s.ordered {
		s.resources[r.GroupVersionResource] = r
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		_, _ = s.create(request{resource: s.byName("namespaces")}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, false)
	}
	return s
}

// Compact forgets the history: a watch or a page that goes on from before gets 410 Gone.
func (s *Server) Compact() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.compact(s.store.revision)
}

// Watches is how many watches there are.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Close ends the connections to kubelets that are idle.
func (s *Server) Close() { s.kubelets.CloseIdleConnections() }

func (s *Server) byName(name string) *servedKind {
	for _, r := range s.ordered {
		if r.GroupVersionResource.Resource == name {
			return r
		}
	}
	return nil
}

// request is what a path and a method ask for.
type request struct {
	resource        *servedKind
	namespace, name string
	subresource     string
}

func (r request) key() key { return key{r.namespace, r.name} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.serveAbout(w, r) {
		return
	}
	req, err := s.parse(r)
	if err == nil {
		err = s.serve(w, r, req)
	}
	if err != nil {
		writeError(w, r, err)
	}
}

// parse finds out what a path means.
func (s *Server) parse(r *http.Request) (request, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api" && parts[1] == "v1":
		gv, parts = schema.GroupVersion{Version: "v1"}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return request{}, pathNotFound()
	}
	var req request
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		req.namespace, parts = parts[1], parts[2:]
	}
	req.resource = s.resources[gv.WithResource(parts[0])]
	if req.resource == nil || len(parts) > 3 {
		return request{}, pathNotFound()
	}
	if len(parts) > 1 {
		req.name = parts[1]
	}
	if len(parts) > 2 {
		req.subresource = parts[2]
	}
	if req.name != "" && req.resource.namespaced != (req.namespace != "") {
		return request{}, pathNotFound()
	}
	return req, nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, req request) error {
	switch {
	case req.subresource == "log" && r.Method == http.MethodGet:
		return s.serveLog(w, r, req)
	case req.subresource == "binding" && r.Method == http.MethodPost:
		return s.serveBinding(w, r, req)
	case req.subresource == "finalize" && r.Method == http.MethodPut, req.subresource == "status", req.subresource == "":
	default:
		return pathNotFound()
	}
	switch r.Method {
	case http.MethodGet:
		if req.name != "" {
			return s.serveGet(w, r, req)
		}
		if watches(r) {
			return s.serveWatch(w, r, req)
		}
		return s.serveList(w, r, req)
	case http.MethodPost:
		return s.serveCreate(w, r, req)
	case http.MethodPut:
		return s.serveUpdate(w, r, req)
	case http.MethodPatch:
		return s.servePatch(w, r, req)
	case http.MethodDelete:
		if req.name == "" {
			return s.serveDeleteCollection(w, r, req)
		}
		return s.serveDelete(w, r, req)
	default:
		return apierrors.NewMethodNotSupported(req.resource.GroupResource(), strings.ToLower(r.Method))
	}
}

// watches says whether a request to list asks to go on with what follows.
func watches(r *http.Request) bool {
	yes, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return err == nil && yes
}

// pathNotFound is what a real server answers where there is nothing.
func pathNotFound() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "404 page not found", 0, true)
}

// message is an error in the words of a real server, which begin as they like.
type message string

func (m message) Error() string { return string(m) }

func said(format string, args ...any) error { return message(fmt.Sprintf(format, args...)) }

// serveAbout serves what tells about the server itself.
func (s *Server) serveAbout(w http.ResponseWriter, r *http.Request) bool {
	var answer any
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/healthz" || path == "/readyz" || path == "/livez":
		_, _ = w.Write([]byte("ok"))
		return true
	case path == "/version":
		answer = version.Info{Major: "1", Minor: "36", GitVersion: Version, Platform: "linux/amd64"}
	case path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		answer = s.groups()
	case path == "/api/v1":
		answer = s.group(schema.GroupVersion{Version: "v1"})
	case strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") == 3:
		parts := strings.Split(path, "/")
		answer = s.group(schema.GroupVersion{Group: parts[2], Version: parts[3]})
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
	return true
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	seen := map[string]bool{"": true}
	for _, r := range s.ordered {
		if seen[r.Group] {
			continue
		}
		seen[r.Group] = true
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

func (s *Server) group(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	for _, r := range s.ordered {
		if r.GroupVersion() != gv {
			continue
		}
		verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
		if r.virtual {
			verbs = metav1.Verbs{"create"}
		}
		name := r.GroupVersionResource.Resource
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, SingularName: strings.ToLower(r.kind), Kind: r.kind, Namespaced: r.namespaced, ShortNames: r.short, Verbs: verbs,
		})
		if r.status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name + "/status", Kind: r.kind, Namespaced: r.namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	return list
}

// writeError answers with the Status of an error.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
