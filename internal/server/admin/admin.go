// Package admin is the server for operators: metrics, profiles and health, on a
// listener of its own, which stays on loopback unless configured otherwise and
// asks for no token.
package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/health"
)

// NewHandler returns the handler of the admin server: /metrics of the registry,
// /debug/pprof, /livez, /readyz and /healthz, and /consumers: what partitions
// returns, as JSON, which is how the consumers of this very process are doing, also
// while no database can be asked. A metric that cannot be collected is logged and
// left out; the others are still served.
func NewHandler(
	config server.Config, gatherer prometheus.Gatherer, h *health.Health, partitions func() any, logger *slog.Logger,
) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /consumers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(map[string]any{"partitions": partitions()}) // the caller has gone
	})
	mux.HandleFunc("GET /livez", h.Live)
	mux.HandleFunc("GET /healthz", h.Live)
	mux.HandleFunc("GET /readyz", h.Ready)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return server.Wrap(mux, config, logger, nil)
}
