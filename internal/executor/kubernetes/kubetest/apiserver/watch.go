package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// watcher is one watch that is being served.
type watcher struct {
	server   *Server
	resource *servedKind
	matches  func(object) bool
	encoder  runtime.Encoder // of objects
	events   runtime.Encoder // of what is around them
	out      interface {
		Write(p []byte) (int, error)
	}
	flush     func()
	bookmarks bool
	position  uint64 // the revision up to which everything was told
}

func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, req request) error {
	query := r.URL.Query()
	matches, err := selection(r, req)
	if err != nil {
		return err
	}
	info, err := negotiate(r)
	if err != nil {
		return err
	}
	from, err := parseRevision(query.Get("resourceVersion"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	sendInitial, err := initialEvents(r)
	if err != nil {
		return err
	}
	stream := info.StreamSerializer
	flusher, ok := w.(http.Flusher)
	if !ok || stream == nil {
		return apierrors.NewInternalError(fmt.Errorf("no streaming"))
	}
	ctx, cancel := watchContext(r)
	defer cancel()
	h := &watcher{
		server: s, resource: req.resource, matches: matches, position: from,
		encoder: info.Serializer,
		events:  scheme.Codecs.EncoderForVersion(stream.Serializer, req.resource.GroupVersion()),
		out:     stream.NewFrameWriter(w), flush: flusher.Flush,
		bookmarks: query.Get("allowWatchBookmarks") == "true",
	}
	mediaType := info.MediaType
	if mediaType != runtime.ContentTypeJSON {
		mediaType += ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	flusher.Flush()

	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.watches--
		s.mu.Unlock()
	}()
	h.run(ctx, sendInitial || from == 0 && query.Get("sendInitialEvents") == "", sendInitial)
	return nil
}

// initialEvents says whether a watch asks to begin with all that there is.
func initialEvents(r *http.Request) (bool, error) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "" {
		return false, nil
	}
	if query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return false, apierrors.NewBadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	}
	return strconv.ParseBool(query.Get("sendInitialEvents"))
}

func watchContext(r *http.Request) (context.Context, context.CancelFunc) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		seconds = 3600
	}
	return context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
}

// run tells what there is, if asked to, and then all that changes, until the watch ends.
func (h *watcher) run(ctx context.Context, begin, mark bool) {
	if begin && h.snapshot(mark) != nil {
		return
	}
	ticker := time.NewTicker(h.server.config.BookmarkEvery)
	defer ticker.Stop()
	st := h.server.store
	for {
		st.mu.Lock()
		if h.position == 0 {
			h.position = st.revision // sendInitialEvents=false: from now on
		}
		changes, ok := st.since(h.position)
		current, changed := st.revision, st.changed
		st.mu.Unlock()
		if !ok {
			h.gone()
			return
		}
		for _, c := range changes {
			if h.tell(c) != nil {
				return
			}
		}
		h.position = max(h.position, current)
		h.flush()
		select {
		case <-changed:
		case <-ticker.C:
			if h.bookmarks && h.bookmark(nil) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// snapshot tells all objects that there are as added. mark says to end that with the
// bookmark for which WatchList waits.
func (h *watcher) snapshot(mark bool) error {
	st := h.server.store
	st.mu.Lock()
	revision := st.revision
	all, _ := st.at(h.resource, revision)
	st.mu.Unlock()
	h.position = revision
	for _, o := range all {
		if !h.matches(o) {
			continue
		}
		if err := h.send(watch.Added, o); err != nil {
			return err
		}
	}
	if mark && h.bookmarks {
		return h.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

// tell sends a change as who selects sees it: an object that no longer matches is deleted
// to them, and one that matches now is added.
func (h *watcher) tell(c change) error {
	if c.resource != h.resource {
		return nil
	}
	now := c.kind != watch.Deleted && h.matches(c.object)
	before := c.previous != nil && h.matches(c.previous)
	switch {
	case now && before:
		return h.send(watch.Modified, c.object)
	case now:
		return h.send(watch.Added, c.object)
	case before && c.kind == watch.Deleted:
		return h.send(watch.Deleted, c.object)
	case before: // the state that matched, as of this revision
		last := clone(c.previous)
		last.SetResourceVersion(c.object.GetResourceVersion())
		return h.send(watch.Deleted, last)
	default:
		return nil
	}
}

func (h *watcher) bookmark(annotations map[string]string) error {
	o, err := scheme.Scheme.New(h.resource.gvk())
	if err != nil {
		return err
	}
	mark, err := asObject(o)
	if err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(h.resource.gvk())
	mark.SetResourceVersion(strconv.FormatUint(h.position, 10))
	mark.SetAnnotations(annotations)
	return h.send(watch.Bookmark, mark)
}

// gone ends a watch that would begin before what is kept.
func (h *watcher) gone() {
	err := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", h.position, h.server.store.compactedTo()))
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	_ = h.send(watch.Error, &status)
	h.flush()
}

func (s *store) compactedTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compacted
}

func (h *watcher) send(kind watch.EventType, o runtime.Object) error {
	var b bytes.Buffer
	if err := h.encoder.Encode(o, &b); err != nil {
		return err
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: b.Bytes()}}
	var framed bytes.Buffer
	if err := h.events.Encode(event, &framed); err != nil {
		return err
	}
	if _, err := h.out.Write(framed.Bytes()); err != nil {
		return err
	}
	if kind == watch.Bookmark {
		h.flush()
	}
	return nil
}
