package outbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of one relay. Gauges cover the shards that it holds, so that the sum
// over all relays is the whole.
type metrics struct {
	pending, oldest, failedRows, shards, unreachable prometheus.Gauge
	published, rejected, failed                      *prometheus.CounterVec
	faults, handed                                   prometheus.Counter
	latency, batch                                   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "millrace", Subsystem: "outbox", Name: name, Help: help})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "outbox", Name: name, Help: help}, []string{"topic"})
	}
	return &metrics{
		pending:     gauge("pending", "Events that wait to be published, as of the last sweep (every few seconds), counted up to 10000 per shard."),
		oldest:      gauge("oldest_age_seconds", "Age of the oldest event that waits to be published, as of the last sweep."),
		failedRows:  gauge("failed_events", "Events that have FAILED and hold up their aggregate until somebody resolves them."),
		shards:      gauge("shards", "Shards whose lease this relay holds."),
		unreachable: gauge("broker_unreachable", "1 while the broker does not take events."),
		published:   counter("published_total", "Events that the broker acknowledged, repetitions included."),
		rejected:    counter("rejected_total", "Times that the broker rejected an event."),
		failed:      counter("failed_total", "Events that have FAILED."),
		faults: f.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "outbox", Name: "publish_faults_total",
			Help: "Calls of the broker that failed for a reason that is not the events'."}),
		handed: f.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "outbox", Name: "handed_over_total",
			Help: "Events that came from this process's own transactions without being read from the table."}),
		latency: f.NewHistogram(prometheus.HistogramOpts{Namespace: "millrace", Subsystem: "outbox", Name: "publish_latency_seconds",
			Help:    "Time from writing an event to the broker's acknowledgement.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}}),
		batch: f.NewHistogram(prometheus.HistogramOpts{Namespace: "millrace", Subsystem: "outbox", Name: "publish_batch_events",
			Help: "Events per call of the broker.", Buckets: prometheus.ExponentialBuckets(1, 2, 12)}),
	}
}
