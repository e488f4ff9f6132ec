package ingest

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/trigger"
)

// metrics are those of the creation, whatever the source.
type metrics struct {
	messages *prometheus.CounterVec
	blocked  *prometheus.CounterVec
	size     prometheus.Histogram
	duration prometheus.Histogram
	delay    *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_ingest_messages_total", Help: "Messages of triggers that were settled, by trigger and outcome: created, duplicate or refused."}, []string{"trigger", "outcome"}),
		blocked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_ingest_blocked_total", Help: "Attempts at messages that could neither be taken nor be passed over, by trigger and cause; database for one that did not answer."}, []string{"trigger", "code"}),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_ingest_batch_messages", Help: "How many messages of triggers shared a transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_ingest_duration_seconds", Help: "How long it takes to map messages and to store what they start, per transaction.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 14)}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_ingest_delay_seconds", Help: "How long after a message came to be its target is stored, by the type of the trigger.",
			Buckets: prometheus.ExponentialBuckets(.002, 2, 18)}, []string{"type"}),
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.blocked, m.size, m.duration, m.delay)
	}
	return m
}

// note counts what became of messages, of which the first len(outcomes) are settled.
func (m *metrics) note(t *trigger.Compiled, messages []Message, outcomes []Outcome, err error, took time.Duration) {
	if len(outcomes) > 0 {
		m.size.Observe(float64(len(outcomes)))
		m.duration.Observe(took.Seconds())
	}
	delay := m.delay.WithLabelValues(string(t.Type))
	counts := map[Status]float64{}
	now := time.Now()
	for i, o := range outcomes {
		counts[o.Status]++
		if m := &messages[i]; o.Status == Created && m.Letter == "" && !m.Time.IsZero() {
			delay.Observe(max(now.Sub(m.Time), 0).Seconds())
		}
	}
	for status, n := range counts {
		m.messages.WithLabelValues(t.ID, string(status)).Add(n)
	}
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		m.blocked.WithLabelValues(t.ID, blocked.Cause.Code).Inc()
	} else if err != nil {
		m.blocked.WithLabelValues(t.ID, "database").Inc()
	}
}

// gone ends the series of a trigger that was deleted.
func (g *Ingest) gone(triggerID string) {
	of := prometheus.Labels{"trigger": triggerID}
	g.metrics.messages.DeletePartialMatch(of)
	g.metrics.blocked.DeletePartialMatch(of)
}
