package eventlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// BenchmarkAppend appends batches of a thousand events as the recorder does: new ones,
// and ones that come again.
func BenchmarkAppend(b *testing.B) {
	for name, again := range map[string]bool{"new": false, "again": true} {
		b.Run(name, func(b *testing.B) {
			pool := database(b)
			var offset int64
			for b.Loop() {
				b.StopTimer()
				batch := make([]topics.Record, 1000)
				for i := range batch {
					env, err := topics.NewEnvelope(queued(fmt.Sprintf("%08x-aaaa-7bbb-8ccc-000000000000", (offset+int64(i))/10)),
						topics.WithSequence((offset+int64(i))%10))
					require.NoError(b, err)
					batch[i] = env.Record("execution_events", []byte(env.Subject))
					batch[i].TopicID, batch[i].Offset, batch[i].Timestamp = topicID, offset+int64(i), time.Now()
				}
				offset += int64(len(batch))
				if again {
					require.NoError(b, eventlog.Append(b.Context(), pool, batch))
				}
				b.StartTimer()
				require.NoError(b, eventlog.Append(b.Context(), pool, batch))
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "records/s")
		})
	}
}
