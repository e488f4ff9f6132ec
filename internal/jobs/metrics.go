package jobs

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what happens to jobs. Several have two names: those of workflow.v1's
// engine are kept under which its dashboards and alerts know them.
type metrics struct {
	polls                    *prometheus.CounterVec
	jobs, retries, expired   prometheus.Counter
	quarantined, dispatched  prometheus.Counter
	handed                   prometheus.Counter
	conflicts, lockConflicts prometheus.Counter
	latency                  []prometheus.Histogram
	backlog                  prometheus.Gauge
}

// The outcomes of a request for jobs.
const (
	outcomeClaimed   = "claimed"
	outcomeEmpty     = "empty"
	outcomeContended = "contended"
	outcomeFailed    = "failed"
)

// pickupBuckets are fine where long polls are, below 20 ms.
var pickupBuckets = []float64{.001, .002, .005, .01, .02, .03, .05, .075, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// newMetrics registers what the mode of dispatch has something to say about.
func newMetrics(reg prometheus.Registerer, mode Mode) *metrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: pickupBuckets})
	}
	m := &metrics{
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_jobs_polls_total",
			Help: "Requests for jobs by outcome: claimed; empty, there was nothing; contended, others had locked what there was; failed.",
		}, []string{"outcome"}),
		jobs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_jobs_claimed_total",
			Help: "Jobs that workers claimed.",
		}),
		handed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_jobs_handed_total",
			Help: "Claimed jobs that began in the hands of a claim that waited, without a statement of their own.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "workflow_engine_job_lock_conflicts_total",
			Help: "Requests for jobs that brought none: millrace_jobs_polls_total, empty and contended.",
		}),
		lockConflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "job_lock_conflicts_total",
			Help: "The same as workflow_engine_job_lock_conflicts_total.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "job_retries_total",
			Help: "Jobs that were put up again after a failure.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "engine_job_timeout_total",
			Help: "Jobs whose lease ran out.",
		}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_jobs_quarantined_total",
			Help: "Jobs whose lease ran out too often.",
		}),
		dispatched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_jobs_dispatched_late_total",
			Help: "Jobs that were put into the outbox after the transaction that began them: retries, first of a type, under a limit.",
		}),
		backlog: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "workflow_engine_dispatch_outbox_backlog", Help: "Jobs whose record waits to be published.",
		}),
		latency: []prometheus.Histogram{
			histogram("workflow_engine_job_poll_latency_seconds", "From the creation of a job to its first claim."),
			histogram("job_poll_latency_seconds", "The same as workflow_engine_job_poll_latency_seconds."),
			histogram("engine_job_pickup_latency_seconds", "The same as workflow_engine_job_poll_latency_seconds."),
		},
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.retries, m.expired, m.quarantined)
	if mode == KafkaOutbox {
		reg.MustRegister(m.backlog, m.dispatched)
		return m
	}
	reg.MustRegister(m.polls, m.jobs, m.handed, m.conflicts, m.lockConflicts)
	for _, h := range m.latency {
		reg.MustRegister(h)
	}
	return m
}

// answered counts a request for jobs.
func (m *metrics) answered(outcome string) {
	m.polls.WithLabelValues(outcome).Inc()
	if outcome == outcomeEmpty || outcome == outcomeContended {
		m.conflicts.Inc()
		m.lockConflicts.Inc()
	}
}

// claimed counts jobs, and how long those waited that were claimed for the first time.
func (m *metrics) claimed(list []taken) {
	m.jobs.Add(float64(len(list)))
	for _, j := range list {
		if j.Token > 1 {
			continue
		}
		seconds := max(0, j.LockedAt.Sub(j.CreatedAt).Seconds())
		for _, h := range m.latency {
			h.Observe(seconds)
		}
	}
}
