package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/stages"
)

type metrics struct {
	busy            prometheus.Gauge
	attempts        *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	heartbeatFaults prometheus.Counter
	offered         prometheus.Counter
	stages          *stages.Stages
}

func newMetrics(reg prometheus.Registerer, slots int) *metrics {
	m := &metrics{
		busy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_worker_slots_busy", Help: "Slots of this worker that are in use.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_worker_attempts_total", Help: "Attempts that ended, by executor and outcome.",
		}, []string{"executor", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_worker_attempt_seconds", Help: "How long attempts ran, by executor.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"executor"}),
		heartbeatFaults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_worker_heartbeat_faults_total", Help: "Heartbeats that did not renew the leases.",
		}),
	}
	m.offered = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_worker_offered_total",
		Help: "Executions whose task record this worker read and could not serve at once, so that any worker may claim them.",
	})
	m.stages = stages.New(reg)
	total := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_worker_slots", Help: "Slots of this worker.",
	})
	total.Set(float64(slots))
	reg.MustRegister(m.busy, m.attempts, m.seconds, m.heartbeatFaults, m.offered, total)
	return m
}

// called notes that the work of an attempt is about to run, whose claim was sent then.
func (m *metrics) called(sent time.Time) { m.stages.Observe(stages.Started, time.Since(sent)) }

func (m *metrics) ended(name string, outcome executor.Outcome, d time.Duration) {
	m.attempts.WithLabelValues(name, string(outcome)).Inc()
	m.seconds.WithLabelValues(name).Observe(d.Seconds())
}
