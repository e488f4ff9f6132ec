// Package faults breaks calls of a Kubernetes API by command. A Gate stands before an API,
// as a handler: before package apiserver in the same process, or before a real API server
// as a proxy.
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Call is a request to the API, in its words.
type Call struct {
	// Verb is get, list, watch, create, update, patch, delete, deletecollection, or log for
	// what reads a log (the subresource is "log" then as well).
	Verb                  string
	Resource, Subresource string
	Namespace, Name       string
	Follows               bool // a watch, or a log that is followed: it goes on
	Request               *http.Request
}

// Match says which calls a fault is for.
type Match func(Call) bool

// Any matches every call.
func Any(Call) bool { return true }

// On matches calls with a verb and a resource, each of which may be "" for any.
func On(verb, resource string) Match {
	return func(c Call) bool {
		return (verb == "" || c.Verb == verb) && (resource == "" || c.Resource == resource)
	}
}

// Fault is what happens to calls.
type Fault struct {
	// Match says to which calls; nil is all.
	Match Match
	// Times is how many calls are hit; 0 is all until the fault is removed.
	Times int
	// Answer refuses the call with this error before it has an effect.
	Answer error
	// Lost lets the call have its effect, also if who called has gone meanwhile, and cuts the
	// connection instead of answering.
	Lost bool
	// Dropped cuts the connection before the call has an effect.
	Dropped bool
	// Hold keeps the call waiting until the channel is closed. Answer, Lost and Dropped
	// come after that.
	Hold <-chan struct{}
	// Hit is called with each call that is hit, in the goroutine of the call.
	Hit func(Call)
}

// Throttled is the answer 429 Too Many Requests with Retry-After.
func Throttled(after time.Duration) error {
	err := apierrors.NewTooManyRequests("too many requests, please try again later", int(after.Seconds()))
	return err
}

// QuotaExceeded is the refusal of a pod for which a quota has no room.
func QuotaExceeded(quota string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "pods \"pod\" is forbidden: exceeded quota: " + quota + ", requested: pods=1, used: pods=1, limited: pods=1",
		Details: &metav1.StatusDetails{Kind: "pods", Name: "pod"},
	}}
}

// Internal is the answer 500.
func Internal(message string) error { return apierrors.NewInternalError(&text{message}) }

type text struct{ s string }

func (t *text) Error() string { return t.s }

// Gate passes calls on to an API and breaks those for which a fault is injected. Its
// methods are safe for concurrent use.
type Gate struct {
	next http.Handler

	mu      sync.Mutex
	faults  []*planned
	streams map[chan struct{}]Call
	seen    map[string]int // calls by "verb resource/subresource"
	ended   chan struct{}
	shut    bool
}

type planned struct {
	Fault
	left int
}

// New returns a gate before an API.
func New(next http.Handler) *Gate {
	return &Gate{next: next, streams: map[chan struct{}]Call{}, seen: map[string]int{}, ended: make(chan struct{})}
}

// Inject adds a fault; of several that match a call, the first injected hits. remove takes
// it away again.
func (g *Gate) Inject(f Fault) (remove func()) {
	p := &planned{Fault: f, left: f.Times}
	g.mu.Lock()
	g.faults = append(g.faults, p)
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.faults = slices.DeleteFunc(g.faults, func(other *planned) bool { return other == p })
	}
}

// CutStreams cuts the connections of all watches and followed logs that match; nil is all.
// It returns how many.
func (g *Gate) CutStreams(match Match) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for cut, call := range g.streams {
		if match == nil || match(call) {
			close(cut)
			delete(g.streams, cut)
			n++
		}
	}
	return n
}

// CutWatches cuts all watches.
func (g *Gate) CutWatches() int { return g.CutStreams(On("watch", "")) }

// Shut refuses all connections, as an API server that cannot be reached, until Open. What
// is under way is cut.
func (g *Gate) Shut() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.CutStreams(nil)
}

// Open ends Shut.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Close lets go of the calls that are held. It must be called once at most.
func (g *Gate) Close() { close(g.ended) }

// Seen is how often calls with a verb and a resource have come, such as ("create", "pods").
// A subresource is named as in "pods/status".
func (g *Gate) Seen(verb, resource string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[verb+" "+resource]
}

// Streams is how many watches and followed logs there are that match; nil is all.
func (g *Gate) Streams(match Match) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, call := range g.streams {
		if match == nil || match(call) {
			n++
		}
	}
	return n
}

// pick returns the fault that hits a call.
func (g *Gate) pick(c Call) (Fault, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kind := c.Resource
	if c.Subresource != "" {
		kind += "/" + c.Subresource
	}
	g.seen[c.Verb+" "+kind]++
	if g.shut {
		return Fault{Dropped: true}, true
	}
	for i, p := range g.faults {
		if p.Match != nil && !p.Match(c) {
			continue
		}
		if p.Times > 0 {
			if p.left--; p.left == 0 {
				g.faults = slices.Delete(g.faults, i, i+1)
			}
		}
		return p.Fault, true
	}
	return Fault{}, false
}

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := parse(r)
	fault, hit := g.pick(call)
	if hit {
		if fault.Hit != nil {
			fault.Hit(call)
		}
		r = g.hold(fault, r)
		switch {
		case fault.Dropped:
			panic(http.ErrAbortHandler)
		case fault.Answer != nil:
			refuse(w, fault.Answer)
			return
		case fault.Lost:
			g.next.ServeHTTP(discarded{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
	}
	if call.Follows {
		g.follow(w, r, call)
		return
	}
	g.next.ServeHTTP(w, r)
}

// hold keeps a call waiting, and returns it as it goes on: what is to be lost depends no more
// on who called.
func (g *Gate) hold(fault Fault, r *http.Request) *http.Request {
	gone := r.Context().Done()
	if fault.Lost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r = r.WithContext(context.WithoutCancel(r.Context()))
		r.Body, gone = io.NopCloser(bytes.NewReader(body)), nil
	}
	if fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-gone:
		case <-g.ended:
			panic(http.ErrAbortHandler)
		}
	}
	return r
}

// follow serves what goes on, until it is cut.
func (g *Gate) follow(w http.ResponseWriter, r *http.Request, call Call) {
	cut := make(chan struct{})
	g.mu.Lock()
	g.streams[cut] = call
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.streams, cut)
	}()
	ctx, cancel := contextUntil(r.Context(), cut)
	defer cancel()
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
				panic(p)
			} else if p != nil {
				select {
				case <-cut:
				default:
					panic(p)
				}
			}
		}()
		g.next.ServeHTTP(w, r.WithContext(ctx))
	}()
	select {
	case <-cut:
		panic(http.ErrAbortHandler)
	default:
	}
}

// discarded is an answer that nobody gets.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}
func (d discarded) Flush()                      {}

func refuse(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// parse finds out what a request asks for.
func parse(r *http.Request) Call {
	c := Call{Request: r}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return c
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		c.Namespace, parts = parts[1], parts[2:]
	}
	c.Resource = parts[0]
	if len(parts) > 1 {
		c.Name = parts[1]
	}
	if len(parts) > 2 {
		c.Subresource = parts[2]
	}
	query := r.URL.Query()
	switch r.Method {
	case http.MethodGet:
		c.Verb = "list"
		watch, _ := strconv.ParseBool(query.Get("watch"))
		switch {
		case c.Subresource == "log":
			c.Verb, c.Follows = "log", query.Get("follow") == "true"
		case c.Name != "":
			c.Verb = "get"
		case watch:
			c.Verb, c.Follows = "watch", true
		}
	case http.MethodPost:
		c.Verb = "create"
	case http.MethodPut:
		c.Verb = "update"
	case http.MethodPatch:
		c.Verb = "patch"
	case http.MethodDelete:
		c.Verb = "delete"
		if c.Name == "" {
			c.Verb = "deletecollection"
		}
	}
	return c
}

// contextUntil returns a context that also ends when a channel is closed.
func contextUntil(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
