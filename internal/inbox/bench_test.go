package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// BenchmarkApply is the rate of one partition with a row of effect per event,
// through the whole chain. Set MILLRACE_TEST_FSYNC=1 for honest figures.
func BenchmarkApply(b *testing.B) {
	for name, bench := range map[string]struct {
		consumer pipeline.Consumer
		batch    int
		// older is how many events lie in each of two older generations.
		older int
	}{
		"OnTx":                 {pipeline.Consumer{Handle: pipeline.OnTx(insertMark)}, 1, 0},
		"OnTx/guarded":         {pipeline.Consumer{Handle: pipeline.OnTx(insertMark), GuardedByState: true}, 1, 0},
		"OnBatchTx256":         {pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks)}, 256, 0},
		"OnBatchTx256/guarded": {pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks), GuardedByState: true}, 256, 0},
		"OnBatchTx256/ordered": {pipeline.Consumer{
			Handle: pipeline.OnBatchTx(copyMarks), Delivery: pipeline.Delivery{Ordered: pipeline.PerKey},
		}, 256, 0},
		"OnTx/older":            {pipeline.Consumer{Handle: pipeline.OnTx(insertMark)}, 1, 500_000},
		"OnBatchTx256/older":    {pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks)}, 256, 500_000},
		"OnBatchTx256/rowbyrow": {pipeline.Consumer{Handle: pipeline.OnBatchTx(insertMarks)}, 256, 0},
	} {
		b.Run(name, func(b *testing.B) {
			t := setup(b)
			o := t.own(b, bench.consumer)
			records := make([]topics.Record, bench.batch)
			at := int64(0)
			for range 2 {
				if bench.older == 0 {
					break
				}
				_, err := t.pool.Exec(b.Context(), `
					INSERT INTO processed_events (consumer, source, event_id, session, generation)
					SELECT 'marker', '/millrace', 'id-' || lpad((1e9 - n)::bigint::text, 12, '0'), '', (SELECT max(number) FROM processed_generations)
					FROM generate_series(1, $1) AS n ON CONFLICT DO NOTHING`, bench.older)
				require.NoError(b, err)
				t.age(b, window/2)
				t.pass(b)
			}
			for b.Loop() {
				b.StopTimer()
				for i := range records {
					records[i] = markRecord(b, fmt.Sprintf("%012d", at+int64(i)))
				}
				b.StartTimer()
				_, err := o.feed(context.Background(), at, records...)
				require.NoError(b, err)
				at += int64(len(records))
			}
			b.ReportMetric(float64(b.N*bench.batch)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
