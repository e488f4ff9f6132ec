package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/topics"
)

// publisherMetrics count what a publisher did. A nil pointer counts nothing.
type publisherMetrics struct {
	records *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newPublisherMetrics(reg prometheus.Registerer) (*publisherMetrics, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // nil is the metrics that count nothing
	}
	m := &publisherMetrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_kafka_published_records_total",
			Help: "Records handed to the publisher, by outcome: written, rejected, held_back, failed (outcome unknown).",
		}, []string{"topic", "outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_kafka_publish_seconds",
			Help:    "How long a publish call of one or more records took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17),
		}),
	}
	if err := reg.Register(m.records); err != nil {
		return nil, fmt.Errorf("register publisher metrics: %w", err)
	}
	if err := reg.Register(m.seconds); err != nil {
		reg.Unregister(m.records)
		return nil, fmt.Errorf("register publisher metrics: %w", err)
	}
	return m, nil
}

func (m *publisherMetrics) unregister(reg prometheus.Registerer) {
	if m != nil {
		reg.Unregister(m.records)
		reg.Unregister(m.seconds)
	}
}

func (m *publisherMetrics) observe(recs []topics.Record, errs []error, took time.Duration) {
	if m == nil {
		return
	}
	m.seconds.Observe(took.Seconds())
	for i, rec := range recs {
		outcome := "written"
		switch err := errs[i]; {
		case err == nil:
		case IsRejected(err):
			outcome = "rejected"
		case errors.Is(err, ErrHeldBack):
			outcome = "held_back"
		default:
			outcome = "failed"
		}
		m.records.WithLabelValues(rec.Topic, outcome).Inc()
	}
}

// subscriberMetrics turn the status of a subscriber's partitions, as it is at
// the moment of a scrape, into metrics.
type subscriberMetrics struct {
	clock                                Clock
	status                               func() []PartitionStatus
	records, nacks                       *prometheus.Desc
	lag, stalled, stalledSeconds, buffer *prometheus.Desc
	paused                               *prometheus.Desc
}

// NewSubscriberMetrics returns the metrics of a member of group whose partitions
// are as status says.
func NewSubscriberMetrics(group string, clock Clock, status func() []PartitionStatus) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_"+name, help, []string{"topic", "partition"}, prometheus.Labels{"group": group})
	}
	return &subscriberMetrics{
		clock:          clock,
		status:         status,
		records:        desc("kafka_acked_records_total", "Records acked since the partition was assigned."),
		nacks:          desc("kafka_nacked_deliveries_total", "Deliveries nacked since the partition was assigned."),
		lag:            desc("consumer_lag", "Records between the last acked one and the end of the partition, as of the last fetch."),
		stalled:        desc("partition_stalled", "1 while the partition is stalled or stopped."),
		stalledSeconds: desc("partition_stalled_seconds", "For how long the partition has been stalled or stopped."),
		paused:         desc("partition_paused", "1 while the partition is paused because somebody asked for it."),
		buffer:         desc("kafka_prefetched_records", "Records fetched and not yet handed out."),
	}
}

// Describe implements prometheus.Collector.
func (m *subscriberMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.records, m.nacks, m.lag, m.stalled, m.stalledSeconds, m.buffer, m.paused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *subscriberMetrics) Collect(ch chan<- prometheus.Metric) {
	now := m.clock.Now()
	for _, st := range m.status() {
		labels := []string{st.Topic, strconv.Itoa(int(st.Partition))}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		ch <- prometheus.MustNewConstMetric(m.records, prometheus.CounterValue, float64(st.Acked), labels...)
		ch <- prometheus.MustNewConstMetric(m.nacks, prometheus.CounterValue, float64(st.Nacked), labels...)
		gauge(m.lag, float64(st.Lag))
		gauge(m.buffer, float64(st.Prefetched))
		stalled, seconds := 0.0, 0.0
		if st.State == StateStalled || st.State == StateStopped {
			stalled, seconds = 1, now.Sub(st.Since).Seconds()
		}
		gauge(m.stalled, stalled)
		gauge(m.stalledSeconds, seconds)
		paused := 0.0
		if st.Paused {
			paused = 1
		}
		gauge(m.paused, paused)
	}
}
