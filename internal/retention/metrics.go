package retention

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a keeper. Gauges are there only while it holds the lease and knows
// what they tell.
type metrics struct {
	ahead, strays, held    *prometheus.GaugeVec
	weeksAhead, timeless   *prometheus.GaugeVec
	bytes, free, untilFull *prometheus.GaugeVec
	faults                 prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		ahead: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_retention_days_ahead",
			Help: "Days after today for which the outbox has partitions; -1: not even for today."}, nil),
		strays: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_retention_default_partition_rows",
			Help: "Rows of the outbox whose day was not made in time."}, nil),
		weeksAhead: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_retention_weeks_ahead",
			Help: "Weeks after this one for which the event log has partitions; -1: not even for this one."}, nil),
		timeless: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_event_log_timeless_rows",
			Help: "Records of the event log that claim a time for which no week is made."}, nil),
		held: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_retention_overdue_partitions",
			Help: "Partitions that are old enough to be dropped and are kept, by reason."}, []string{"reason"}),
		bytes: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_storage_database_bytes",
			Help: "Size of the database."}, nil),
		free: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_storage_free_bytes",
			Help: "By how much the database may still grow: up to postgres.storage_limit, or on the disk of an embedded PostgreSQL."}, nil),
		untilFull: f.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_storage_days_until_full",
			Help: "Days until free_bytes are used up at the average rate of up to seven days; +Inf: the database does not grow."}, nil),
		faults: f.NewCounter(prometheus.CounterOpts{Name: "millrace_retention_faults_total",
			Help: "Passes that could not do all they had to."}),
	}
}

func (m *metrics) show(r Report) {
	if r.Status.Now.IsZero() {
		return // it could not be found out
	}
	m.ahead.WithLabelValues().Set(float64(r.Status.AheadDays()))
	m.strays.WithLabelValues().Set(float64(r.Status.StrayRows()))
	m.weeksAhead.WithLabelValues().Set(float64(r.Status.AheadWeeks()))
	m.timeless.WithLabelValues().Set(float64(r.Status.Timeless))
	held := map[string]int{OpenEvents: 0, InUse: 0}
	for _, h := range r.Held {
		held[h.Reason]++
	}
	for reason, n := range held {
		m.held.WithLabelValues(reason).Set(float64(n))
	}
}

// clear removes the gauges: another process has the lease now.
func (m *metrics) clear() {
	for _, g := range []*prometheus.GaugeVec{m.ahead, m.strays, m.weeksAhead, m.timeless, m.held, m.bytes, m.free, m.untilFull} {
		g.Reset()
	}
}
