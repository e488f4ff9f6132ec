package replay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of one keeper. Those who stand by show nothing.
type metrics struct {
	events   *prometheus.CounterVec
	faults   prometheus.Counter
	sessions *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_replay_events_total",
			Help: "Events that replay sessions have published, skipped because the filter does not choose them, or that the broker refused.",
		}, []string{"outcome"}),
		faults: f.NewCounter(prometheus.CounterOpts{
			Name: "millrace_replay_faults_total", Help: "Times that a replay session could not go on for a reason that may pass.",
		}),
		sessions: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_replay_sessions", Help: "Replay sessions by state, as the process sees them that carries them out.",
		}, []string{"state"}),
	}
	for _, outcome := range []string{"published", "skipped", "refused"} {
		m.events.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) count(s sent, skipped int64) {
	m.events.WithLabelValues("published").Add(float64(s.published))
	m.events.WithLabelValues("refused").Add(float64(len(s.refused)))
	m.events.WithLabelValues("skipped").Add(float64(skipped))
}

func (m *metrics) states(counts map[State]int64) {
	for _, state := range States() {
		m.sessions.WithLabelValues(string(state)).Set(float64(counts[state]))
	}
}

// forget stops showing what another process sees from now on.
func (m *metrics) forget() { m.sessions.Reset() }
