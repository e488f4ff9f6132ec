package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// transaction publishes values in a transaction of their own and ends it.
func (f *fake) transaction(end kgo.TransactionEndTry, values ...string) {
	f.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(f.cfg.Brokers...), kgo.TransactionalID("writer"), kgo.DefaultProduceTopic("one"))
	require.NoError(f.t, err)
	defer client.Close()
	require.NoError(f.t, client.BeginTransaction())
	for _, value := range values {
		require.NoError(f.t, client.ProduceSync(f.t.Context(), kgo.StringRecord(value)).FirstErr())
	}
	require.NoError(f.t, client.EndTransaction(f.t.Context(), end))
}

// What was aborted is never seen, and the position goes past the end of every transaction,
// so that nothing seems to be left.
func TestReadCommitted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	committed := func(sc *kafka.SubscriberConfig) { sc.ReadCommitted, sc.BatchSize = true, 10 }
	f.transaction(kgo.TryCommit, "a0", "a1") // 0, 1, and its end at 2
	f.transaction(kgo.TryAbort, "b0")        // 3, and its end at 4
	f.transaction(kgo.TryCommit, "c0")       // 5, and its end at 6
	f.transaction(kgo.TryAbort, "d0", "d1")  // 7, 8, and its end at 9
	sub, ch := f.subscribe("one", committed)
	var seen []string
	for len(seen) < 3 {
		msg := receive(t, ch)
		for _, r := range delivery.FromMessage(msg).Records {
			seen = append(seen, string(r.Value))
		}
		msg.Ack()
	}
	require.Equal(t, []string{"a0", "a1", "c0"}, seen)
	require.Eventually(t, func() bool { return f.committed(0) == 10 }, patience, 10*tick)
	st := await(t, sub, 0, kafka.StateRunning)
	assert.Equal(t, []int64{10, 0}, []int64{st.Position, st.Lag})

	// Nothing but the end of a transaction.
	f.transaction(kgo.TryAbort, "e0")
	require.Eventually(t, func() bool { return f.committed(0) == 12 }, patience, 10*tick)

	// It is not gone past while what lies before it is in hand.
	f.transaction(kgo.TryCommit, "f0")
	held := receive(t, ch)
	f.transaction(kgo.TryAbort, "g0")
	require.Eventually(t, func() bool { return sub.Status()[0].HighWatermark == 16 }, patience, tick)
	require.EqualValues(t, 12, sub.Status()[0].Position)
	held.Ack()
	require.Eventually(t, func() bool { return f.committed(0) == 16 }, patience, 10*tick)
}
