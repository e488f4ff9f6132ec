package projections_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// BenchmarkApply measures how many events per second one partition's batches of
// 500 merge at.
func BenchmarkApply(b *testing.B) {
	pool := database(b)
	p := projections.Executions()
	events := 0
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		var batch []topics.Envelope
		for j := 0; len(batch) < 500; j++ {
			batch = append(batch, history(b, fmt.Sprintf("e%d-%d", i, j))...)
		}
		b.StartTimer()
		require.NoError(b, merge(b.Context(), pool, p, batch))
		events += len(batch)
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
