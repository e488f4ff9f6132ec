package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/problem"
)

func get(t *testing.T, h http.Handler, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Host = "localhost:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wrap(mux *http.ServeMux, metrics *server.Metrics) (http.Handler, *bytes.Buffer) {
	logs := &bytes.Buffer{}
	logger := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return server.Wrap(mux, server.Config{Address: "127.0.0.1:8080", AllowedHosts: []string{"millrace.test"}}, logger, metrics), logs
}

func TestAPanicIsAProblemAndItsStackIsLogged(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /boom", func(http.ResponseWriter, *http.Request) { panic("secret cause") })
	h, logs := wrap(mux, nil)
	w := get(t, h, "/boom", nil)
	require.Equal(t, 500, w.Code)
	var p problem.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	assert.Equal(t, "internal", p.Code)
	assert.NotContains(t, w.Body.String(), "secret")
	id := w.Header().Get("X-Request-Id")
	assert.Equal(t, "urn:millrace:request:"+id, p.Instance)
	assert.Contains(t, logs.String(), id)
	assert.Contains(t, logs.String(), "secret cause")
	assert.Contains(t, logs.String(), "server_test.go")
}

func TestAPanicInTheMiddleOfAnAnswerBreaksTheConnection(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	h, _ := wrap(mux, nil)
	s := httptest.NewServer(h)
	defer s.Close()
	resp, err := s.Client().Get(s.URL + "/half")
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(problem.RequestID(r.Context())))
	})
	h, _ := wrap(mux, nil)
	for given, kept := range map[string]bool{
		"abc-123": true, "": false, "a b": false, "a\nb": false, strings.Repeat("x", 129): false, "\xff": false,
	} {
		w := get(t, h, "/", func(r *http.Request) { r.Header["X-Request-Id"] = []string{given} })
		assert.Equal(t, w.Body.String(), w.Header().Get("X-Request-Id"))
		assert.Equal(t, kept, w.Body.String() == given, given)
		assert.NotEmpty(t, w.Body.String())
	}
}

func TestTraceContextIsTakenUp(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(trace.SpanContextFromContext(r.Context()).TraceID().String()))
	})
	h, _ := wrap(mux, nil)
	w := get(t, h, "/", func(r *http.Request) { r.Header.Set("traceparent", parent) })
	assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", w.Body.String())
	assert.Equal(t, parent, w.Header().Get("traceparent"))
	w = get(t, h, "/", func(r *http.Request) { r.Header.Set("traceparent", "nonsense") })
	assert.Empty(t, w.Header().Get("traceparent"))
}

func TestALoopbackServerAnswersToItsOwnNamesOnly(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	h, _ := wrap(mux, nil)
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST.:1": true, "127.0.0.1": true, "127.1.2.3:80": true,
		"[::1]:8080": true, "app.localhost": true, "millrace.test:8080": true,
		"evil.example": false, "localhost.evil.example": false, "10.0.0.1": false, "": false, "127.0.0.1.nip.io": false,
	} {
		w := get(t, h, "/", func(r *http.Request) { r.Host = host })
		assert.Equal(t, ok, w.Code == 200, "%q: %d", host, w.Code)
	}
	public := server.Wrap(mux, server.Config{Address: ":8080"}, slog.New(slog.DiscardHandler), nil)
	assert.Equal(t, 200, get(t, public, "/", func(r *http.Request) { r.Host = "api.example" }).Code)
}

func TestMetricsHaveRoutesNotPaths(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := server.NewMetrics(registry)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h, logs := wrap(mux, metrics)
	get(t, h, "/things/1?token=abc", nil)
	get(t, h, "/things/2", nil)
	get(t, h, "/nothing/here", nil)
	get(t, h, "/things/3", func(r *http.Request) { r.Method = "BREW" })
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP millrace_http_requests_total HTTP requests by route pattern, method and status. Unmatched paths have the route "unmatched".
# TYPE millrace_http_requests_total counter
millrace_http_requests_total{code="404",method="GET",route="unmatched"} 1
millrace_http_requests_total{code="405",method="other",route="unmatched"} 1
millrace_http_requests_total{code="418",method="GET",route="/things/{id}"} 2
`), "millrace_http_requests_total"))
	assert.Contains(t, logs.String(), `"status":418`)
	assert.NotContains(t, logs.String(), "abc", "queries may hold tokens")
	assert.NotContains(t, logs.String(), `"level":"INFO"`)
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	s := server.New(server.Config{Address: taken.Addr().String(), Setting: "api.listen"}, http.NewServeMux(), slog.New(slog.DiscardHandler))
	err = s.Listen(t.Context())
	require.ErrorContains(t, err, taken.Addr().String())
	require.ErrorContains(t, err, "api.listen")
	require.ErrorContains(t, err, "another program has taken the port")
	require.NoError(t, s.Shutdown(t.Context()), "it may be shut down all the same")
}

// That it listens is said as soon as it does: several servers say it in the order in which they
// start, and who reads that of the last one finds the others.
func TestAServerSaysThatItListensBeforeItServes(t *testing.T) {
	t.Parallel()
	logs := &bytes.Buffer{}
	s := server.New(server.Config{Name: "test", Address: "127.0.0.1:0", Setting: "x"}, http.NewServeMux(), slog.New(slog.NewTextHandler(logs, nil)))
	require.NoError(t, s.Listen(t.Context()))
	assert.Contains(t, logs.String(), `msg="http server listening" server=test address=`+s.Addr())
	require.NoError(t, s.Shutdown(t.Context()))
}

func TestAShutdownIsInOrder(t *testing.T) {
	t.Parallel()
	ready := health.New()
	entered, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = w.Write([]byte("done"))
	})
	var drainedFirst bool
	s := server.New(server.Config{
		Name: "test", Address: "127.0.0.1:0", Setting: "x", Health: ready,
		OnShutdown: func() { drainedFirst = ready.Draining(); close(release) },
	}, mux, slog.New(slog.DiscardHandler))
	require.NoError(t, s.Listen(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + s.Addr() + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answer <- string(body)
	}()
	<-entered
	require.NoError(t, s.Shutdown(t.Context()))
	assert.Equal(t, "done", <-answer, "what was being served is served")
	require.NoError(t, <-served)
	assert.True(t, drainedFirst)
	http.DefaultClient.CloseIdleConnections()
}

func TestAShutdownThatTakesTooLongCutsOff(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(_ http.ResponseWriter, r *http.Request) { close(entered); <-r.Context().Done() })
	s := server.New(server.Config{Name: "test", Address: "127.0.0.1:0"}, mux, slog.New(slog.DiscardHandler))
	require.NoError(t, s.Listen(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	go func() {
		if resp, err := http.Get("http://" + s.Addr()); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, <-served)
}
