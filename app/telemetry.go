package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/fx"

	"github.com/millrace/millrace/internal/build"
)

// telemetryModule is the metrics registry of the process.
var telemetryModule = fx.Module("telemetry", fx.Provide(newRegistry, newHealth))

func newRegistry() (*prometheus.Registry, prometheus.Registerer, prometheus.Gatherer) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	return reg, reg, reg
}

// buildInfo is the gauge that says which version runs.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_build_info", Help: "Always 1; the label says what was built.",
		ConstLabels: prometheus.Labels{"version": build.Version()},
	})
	g.Set(1)
	return g
}
