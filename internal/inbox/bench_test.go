package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// BenchmarkApply is the rate of one partition with a row of effect per event,
// through the whole chain. Set MILLRACE_TEST_FSYNC=1 for honest figures.
func BenchmarkApply(b *testing.B) {
	copyMarks := func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"id"},
			pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) { return []any{batch[i].ID}, nil }))
		return err
	}
	for name, bench := range map[string]struct {
		consumer pipeline.Consumer
		batch    int
	}{
		"OnTx":                 {pipeline.Consumer{Handle: pipeline.OnTx(insertMark)}, 1},
		"OnTx/guarded":         {pipeline.Consumer{Handle: pipeline.OnTx(insertMark), GuardedByState: true}, 1},
		"OnBatchTx256":         {pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks)}, 256},
		"OnBatchTx256/guarded": {pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks), GuardedByState: true}, 256},
		"OnBatchTx256/ordered": {pipeline.Consumer{
			Handle: pipeline.OnBatchTx(copyMarks), Delivery: pipeline.Delivery{Ordered: pipeline.PerKey},
		}, 256},
		"OnBatchTx256/rowbyrow": {pipeline.Consumer{Handle: pipeline.OnBatchTx(insertMarks)}, 256},
	} {
		b.Run(name, func(b *testing.B) {
			t := setup(b)
			o := t.own(b, bench.consumer)
			records := make([]topics.Record, bench.batch)
			at := int64(0)
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
