package projections

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/lifecycle"
)

// DataIndexMetrics counts what the data index has read and written.
type DataIndexMetrics struct {
	events  *prometheus.CounterVec
	skipped *prometheus.CounterVec
	altered prometheus.Counter
	future  prometheus.Counter
}

// NewDataIndexMetrics returns metrics that are registered.
func NewDataIndexMetrics(reg prometheus.Registerer) *DataIndexMetrics {
	m := &DataIndexMetrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_data_index_events_total", Help: "Lifecycle events that the data index read, by the shape of their data.",
		}, []string{"shape"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_data_index_skipped_total", Help: "Events of the lifecycle topic that tell of no change of a workflow or task, by reason.",
		}, []string{"reason"}),
		altered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_data_index_altered_total", Help: "Lifecycle events with an input or output that PostgreSQL could not store as it was.",
		}),
		future: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_data_index_future_total", Help: "Lifecycle events that claimed to come from the future.",
		}),
	}
	for _, reason := range []lifecycle.Skip{lifecycle.SkipOtherType, lifecycle.SkipUnknownChange} {
		m.skipped.WithLabelValues(string(reason))
	}
	reg.MustRegister(m.events, m.skipped, m.altered, m.future)
	return m
}

func (m *DataIndexMetrics) read(e lifecycle.Event, skip lifecycle.Skip, future bool) {
	if skip != "" {
		m.skipped.WithLabelValues(string(skip)).Inc()
		return
	}
	m.events.WithLabelValues(string(e.Shape)).Inc()
	if e.Altered {
		m.altered.Inc()
	}
	if future {
		m.future.Inc()
	}
}
