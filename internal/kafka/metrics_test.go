package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

func TestMetricsTellWhatHappened(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	reg := prometheus.NewRegistry()
	pub, err := kafka.NewPublisher(f.cfg, kafka.PublisherConfig{Registerer: reg})
	require.NoError(t, err)
	errs := pub.PublishRecords(t.Context(), []topics.Record{
		{Topic: "one", Key: []byte("a"), Value: []byte("1")},
		{Topic: "one", Key: []byte("b"), Value: make([]byte, 2<<20)},
		{Topic: "one", Key: []byte("b"), Value: []byte("behind")},
		{Topic: "one", Key: []byte("a"), Value: []byte("2")},
	})
	require.Len(t, errs, 4)
	requireMetrics(t, reg, "millrace_kafka_published_records_total", `
		# HELP millrace_kafka_published_records_total Records handed to the publisher, by outcome: written, rejected, held_back, failed (outcome unknown).
		# TYPE millrace_kafka_published_records_total counter
		millrace_kafka_published_records_total{outcome="held_back",topic="one"} 1
		millrace_kafka_published_records_total{outcome="rejected",topic="one"} 1
		millrace_kafka_published_records_total{outcome="written",topic="one"} 2
	`)

	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.Registerer, sc.BackoffInitial, sc.BackoffMax = reg, time.Hour, time.Hour
	})
	receive(t, ch).Ack()
	receive(t, ch).Nack()
	await(t, sub, 0, kafka.StateStalled)
	for name, want := range map[string]string{
		"millrace_partition_stalled":             "1 while the partition is stalled or stopped.;gauge;1",
		"millrace_consumer_lag":                  "Records between the last acked one and the end of the partition, as of the last fetch.;gauge;1",
		"millrace_kafka_acked_records_total":     "Records acked since the partition was assigned.;counter;1",
		"millrace_kafka_nacked_deliveries_total": "Deliveries nacked since the partition was assigned.;counter;1",
	} {
		part := strings.Split(want, ";")
		requireMetrics(t, reg, name, "# HELP "+name+" "+part[0]+"\n# TYPE "+name+" "+part[1]+"\n"+
			name+`{group="g",partition="0",topic="one"} `+part[2]+"\n")
	}
	// Closing takes the metrics away, so that the same can be registered again.
	require.NoError(t, sub.Close())
	require.NoError(t, pub.Close())
	left, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, left)
}

func requireMetrics(t *testing.T, reg *prometheus.Registry, name, want string) {
	t.Helper()
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), name))
}
