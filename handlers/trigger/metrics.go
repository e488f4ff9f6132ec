package trigger

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

// metrics tells of the members of this process. What belongs to a trigger goes with it.
type metrics struct {
	s        *Supervisor
	restarts *prometheus.CounterVec
	members  *prometheus.Desc
	stalled  *prometheus.Desc
	lag      *prometheus.Desc
}

func newMetrics(s *Supervisor) *metrics {
	return &metrics{
		s: s,
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_trigger_restarts_total", Help: "Times that a member of a trigger had to be run again, by reason: error, panic.",
		}, []string{"trigger", "reason"}),
		members: prometheus.NewDesc("millrace_trigger_members",
			"Members of triggers that this process runs, by type and state: starting, running, error.", []string{"type", "state"}, nil),
		stalled: prometheus.NewDesc("millrace_trigger_stalled_partitions",
			"Partitions that stand, of the members that this process runs.", []string{"trigger"}, nil),
		lag: prometheus.NewDesc("millrace_trigger_lag",
			"Messages that wait in the partitions of the members that this process runs.", []string{"trigger"}, nil),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.restarts, m} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register trigger metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) restarted(id, reason string) { m.restarts.WithLabelValues(id, reason).Inc() }

func (m *metrics) forget(id string) { m.restarts.DeletePartialMatch(prometheus.Labels{"trigger": id}) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- m.members
	descs <- m.stalled
	descs <- m.lag
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	type kind struct {
		of    trigger.Type
		state trigger.State
	}
	members, stalled, lag := map[kind]float64{}, map[string]float64{}, map[string]float64{}
	for id, r := range m.s.reports() {
		members[kind{id.of, r.State}]++
		if id.of != trigger.TypeKafka {
			continue
		}
		stalled[id.trigger] += 0 // zero is a value too
		lag[id.trigger] += 0
		for _, p := range r.Partitions {
			if p.State == trigger.StateError {
				stalled[id.trigger]++
			}
			lag[id.trigger] += float64(max(p.End-max(p.Offset, 0), 0))
		}
	}
	for k, n := range members {
		out <- prometheus.MustNewConstMetric(m.members, prometheus.GaugeValue, n, string(k.of), string(k.state))
	}
	for id, n := range stalled {
		out <- prometheus.MustNewConstMetric(m.stalled, prometheus.GaugeValue, n, id)
	}
	for id, n := range lag {
		out <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, n, id)
	}
}

// running names a member that this process runs.
type running struct {
	seat    report.Seat
	trigger string
	of      trigger.Type
}

// reports returns what the members of this process said last.
func (s *Supervisor) reports() map[running]trigger.MemberReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[running]trigger.MemberReport, len(s.lines))
	for seat, m := range s.lines {
		all[running{seat, m.entry.stored.ID, m.entry.stored.Type}] = m.line.Last()
	}
	return all
}
