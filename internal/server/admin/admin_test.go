package admin_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/admin"
	"github.com/millrace/millrace/internal/server/health"
)

func TestTheAdminServer(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_test_total", Help: "x"})
	registry.MustRegister(counter)
	h := admin.NewHandler(server.Config{Address: "127.0.0.1:9091"}, registry, health.New(), func() any { return []string{} }, slog.New(slog.DiscardHandler))
	for target, want := range map[string]string{
		"/metrics": "millrace_test_total 0", "/livez": "ok", "/healthz": "ok", "/readyz": "ready",
		"/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile", "/debug/pprof/cmdline": "admin",
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Host = "127.0.0.1:9091"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code, target)
		assert.Contains(t, w.Body.String(), want, target)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/nothing", nil)
	r.Host = "localhost"
	h.ServeHTTP(w, r)
	assert.Contains(t, w.Body.String(), "route_not_found")
}
