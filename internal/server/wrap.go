package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Metrics are those of HTTP servers.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_http_requests_total",
			Help: "HTTP requests by route pattern, method and status. Unmatched paths have the route \"unmatched\".",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "millrace_http_request_seconds",
			Help:    "Time to answer a request; of live streams, how long they were open.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
		}, []string{"route", "method"}),
	}
	r.MustRegister(m.requests, m.seconds)
	return m
}

// wrapper is what every request passes before its route.
type wrapper struct {
	next       http.Handler
	logger     *slog.Logger
	metrics    *Metrics
	loopback   bool
	hosts      []string
	origins    *http.CrossOriginProtection
	propagator propagation.TraceContext
}

// Wrap returns the handler with what every request needs around it. next must be
// an http.ServeMux, or one inside: it sets the request's Pattern. metrics may be
// nil.
func Wrap(next http.Handler, config Config, logger *slog.Logger, metrics *Metrics) http.Handler {
	return &wrapper{
		next: next, logger: logger, metrics: metrics,
		loopback: auth.IsLoopback(config.Address), hosts: config.AllowedHosts,
		origins: http.NewCrossOriginProtection(),
	}
}

func (h *wrapper) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := RequestID(r.Header.Get("X-Request-Id"))
	rw.Header().Set("X-Request-Id", id)
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	ctx := problem.WithRequestID(r.Context(), id)
	if parent := r.Header.Get("Traceparent"); parent != "" {
		ctx = h.propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
		if trace.SpanContextFromContext(ctx).IsValid() {
			rw.Header().Set("Traceparent", parent)
		}
	}
	r = r.WithContext(ctx)
	w := &response{ResponseWriter: rw, request: r}
	defer func() {
		cause := recover()
		if cause != nil {
			h.recovered(w, r, cause)
		}
		h.observe(w, r, time.Since(began))
		// A handler that gives up in the middle of an answer must not look as if it had
		// finished: net/http breaks the connection for this panic.
		if cause == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
			panic(cause)
		}
	}()
	if p := h.refuse(r); p != nil {
		problem.Write(w, r, p)
		return
	}
	h.next.ServeHTTP(w, r)
}

// refuse returns why a request is not for this server, or nil.
func (h *wrapper) refuse(r *http.Request) *problem.Problem {
	if h.loopback && !h.answersTo(r.Host) {
		return problem.HostNotAllowed().With(fmt.Sprintf("the host %q is not this machine's own name", clip(r.Host)))
	}
	if err := h.origins.Check(r); err != nil {
		return problem.CrossOrigin().With("")
	}
	return nil
}

func (h *wrapper) answersTo(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	return auth.LoopbackHost(host) || slices.ContainsFunc(h.hosts, func(allowed string) bool {
		return strings.EqualFold(allowed, host)
	})
}

func (h *wrapper) recovered(w *response, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // see above
		return
	}
	h.logger.ErrorContext(r.Context(), "http handler panicked", "request_id", problem.RequestID(r.Context()),
		"route", route(r), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if !w.wrote {
		problem.Write(w, r, problem.Internal().With("the request id leads to the cause in the server's log"))
	}
}

func (h *wrapper) observe(w *response, r *http.Request, took time.Duration) {
	status := w.status
	if status == 0 {
		status = http.StatusOK
	}
	if h.metrics != nil {
		method := methodLabel(r.Method)
		h.metrics.requests.WithLabelValues(route(r), method, strconv.Itoa(status)).Inc()
		h.metrics.seconds.WithLabelValues(route(r), method).Observe(took.Seconds())
	}
	if h.logger.Enabled(r.Context(), slog.LevelDebug) {
		h.logger.DebugContext(r.Context(), "http request", "method", r.Method, "path", r.URL.Path, "route", route(r),
			"status", status, "bytes", w.bytes, "duration", took, "remote", r.RemoteAddr,
			"request_id", problem.RequestID(r.Context()))
	}
}

// route returns the pattern that matched, without the method.
func route(r *http.Request) string {
	if r.Pattern == "" {
		return "unmatched"
	}
	if _, path, found := strings.Cut(r.Pattern, " "); found {
		return path
	}
	return r.Pattern
}

// methodLabel keeps made-up methods out of the metrics.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// RequestID returns the caller's own id of a request if it can be logged and echoed as it
// is, else a new one.
func RequestID(id string) string {
	valid := id != "" && len(id) <= 128
	for i := 0; valid && i < len(id); i++ {
		c := id[i]
		valid = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:", c) >= 0
	}
	if valid {
		return id
	}
	fresh, err := uuid.NewV7()
	if err != nil { // no randomness: the request is served all the same
		return "unknown"
	}
	return fresh.String()
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

// response remembers what was answered, and turns the plain answers of the mux to
// what it does not know into problems.
type response struct {
	http.ResponseWriter
	request *http.Request
	status  int
	bytes   int64
	wrote   bool
	// replaced is set when the answer was a plain one and the rest of it is dropped.
	replaced bool
}

// Unwrap lets http.ResponseController reach what lies below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.wrote {
		return
	}
	if status < 200 {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.wrote, w.status = true, status
	if p := w.unmatched(status); p != nil {
		w.replaced = true
		problem.Write(plain{w}, w.request, p)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) unmatched(status int) *problem.Problem {
	if w.request.Pattern != "" || w.Header().Get("Content-Type") == problem.ContentType {
		return nil
	}
	switch status {
	case http.StatusNotFound:
		return problem.RouteNotFound().With("the API is described at /openapi.json and /docs")
	case http.StatusMethodNotAllowed:
		return problem.MethodNotAllowed().With("allowed: " + w.Header().Get("Allow"))
	}
	return nil
}

func (w *response) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if w.replaced {
		return len(p), nil
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// plain writes below a response that drops what its handler writes.
type plain struct{ w *response }

func (p plain) Header() http.Header    { return p.w.ResponseWriter.Header() }
func (p plain) WriteHeader(status int) { p.w.ResponseWriter.WriteHeader(status) }
func (p plain) Write(b []byte) (int, error) {
	n, err := p.w.ResponseWriter.Write(b)
	p.w.bytes += int64(n)
	return n, err
}
