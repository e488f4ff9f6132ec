package schedule

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	fired, missed prometheus.Counter
	settled       *prometheus.CounterVec
	lateness      prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		fired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_schedule_firings_total", Help: "Times of schedules that have fired.",
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_schedule_missed_total", Help: "Times of schedules that passed while nobody was there, and for which nothing is started.",
		}),
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_schedule_settled_total", Help: "Firings by what became of them: started, refused, skipped.",
		}, []string{"status"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_schedule_lateness_seconds", Help: "How long after it was due a firing was noticed.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60, 300, 3600},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.fired, m.missed, m.settled, m.lateness)
	}
	return m
}
