package grpc

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of the server.
type Metrics struct{ seconds *prometheus.HistogramVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "grpc_requests_duration_seconds",
		Help:    "Time to answer a call, by its full method and its code; of streams, how long they were open.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
	}, []string{"method", "code"})}
	r.MustRegister(m.seconds)
	return m
}
