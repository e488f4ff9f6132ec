package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// What a failed delivery has settled does not come again, its offset is committed while the
// partition stands, and it is the first of the others that stands.
func TestSettledRecordsOfAFailedDeliveryAreDone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	values := make([]string, 8)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	f.publish("one", values...)
	sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
		sc.BatchSize, sc.BackoffInitial, sc.BackoffMax = 8, patience, 2*patience
	})
	blocked := errors.New("blocked")
	msg := receive(t, ch)
	d := delivery.FromMessage(msg)
	require.Len(t, d.Records, 8)
	d.Settle(3)
	d.Settle(2) // the largest wins
	d.Fail(blocked)
	msg.Nack()
	st := await(t, sub, 0, kafka.StateStalled)
	require.ErrorIs(t, st.Cause, blocked)
	require.Equal(t, []any{int64(3), "k", 1, int64(3)}, []any{st.Offset, string(st.Key), st.Attempts, st.Position})
	require.Eventually(t, func() bool { return f.committed(0) == 3 }, patience, 10*tick)

	require.NoError(t, sub.RetryNow("one", 0))
	msg = receive(t, ch)
	d = delivery.FromMessage(msg)
	require.Equal(t, []any{int64(3), 2}, []any{d.First().Offset, d.Try})
	d.Settle(100) // one has failed, whatever is said
	d.Fail(blocked)
	msg.Nack()
	last := d.Last().Offset
	require.Eventually(t, func() bool {
		st := sub.Status()[0]
		return st.State == kafka.StateStalled && st.Offset == last && st.Attempts == 1
	}, patience, tick)
	for next := last; next < 8; {
		require.NoError(t, sub.RetryNow("one", 0))
		msg = receive(t, ch)
		require.Equal(t, next, delivery.FromMessage(msg).First().Offset)
		next = delivery.FromMessage(msg).Last().Offset + 1
		msg.Ack()
	}
	require.Eventually(t, func() bool { return f.committed(0) == 8 }, patience, 10*tick)
}

// Fetching ahead goes on while only one bound is exceeded.
func TestPrefetchWithBothBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		records, size int
		least, atMost int
	}{
		"many small ones": {records: 300, size: 10, least: 299, atMost: 299},
		"few large ones":  {records: 8, size: 40 << 10, least: 7, atMost: 7},
		// The bound of 100 KiB is crossed with the third, that of ten with the eleventh;
		// one fetch, of one batch, may have been under way by then.
		"many large ones": {records: 60, size: 40 << 10, least: 10, atMost: 14},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			pub := f.publisher(kafka.PublisherConfig{Compression: kafka.CompressionNone})
			for i := range test.records {
				require.Nil(t, pub.PublishRecords(t.Context(), []topics.Record{{
					Topic: "one", Key: fmt.Append(nil, i), Value: []byte(strings.Repeat("x", test.size)),
				}}))
			}
			sub, ch := f.subscribe("one", func(sc *kafka.SubscriberConfig) {
				sc.PrefetchRecords, sc.PrefetchBytes, sc.PrefetchBoth = 10, 100<<10, true
				sc.FetchBytes = 1 // a batch at a time
			})
			held := receive(t, ch)
			require.Eventually(t, func() bool { return sub.Status()[0].Prefetched >= test.least }, patience, tick)
			held.Ack()
			for i := 1; i < test.records; i++ {
				assert.LessOrEqual(t, sub.Status()[0].Prefetched, test.atMost)
				msg := receive(t, ch)
				require.EqualValues(t, i, delivery.FromMessage(msg).First().Offset)
				msg.Ack()
			}
		})
	}
}
