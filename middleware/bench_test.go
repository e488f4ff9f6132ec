package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// BenchmarkChain is what the chain costs per message, of one record and of 256.
func BenchmarkChain(b *testing.B) {
	env := topics.Envelope{ID: "0190", Source: "/millrace", Type: "t.v1", CorrelationID: "c", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for name, n := range map[string]int{"record": 1, "batch256": 256} {
		b.Run(name, func(b *testing.B) {
			metrics, err := middleware.NewMetrics(prometheus.NewRegistry())
			require.NoError(b, err)
			chain := middleware.Apply(func(msg *message.Message) ([]*message.Message, error) {
				settle(middleware.FlightFrom(msg.Context()))
				return nil, nil
			}, middleware.Chain(middleware.Config{Consumer: "c", Group: "g", Metrics: metrics, Timeout: time.Minute}))
			records := make([]topics.Record, n)
			for i := range records {
				records[i] = env.Record("t", []byte("k"))
			}
			d := &delivery.Delivery{Topic: "t", Records: records}
			ctx := delivery.NewContext(context.Background(), d)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := chain(message.NewMessageWithContext(ctx, "", nil)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
		})
	}
}
