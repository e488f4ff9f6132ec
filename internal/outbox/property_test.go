package outbox

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/topics"
)

// TestOrderProperty commits transactions in random order, lets the broker reject
// and fail at random, and checks that each aggregate's events arrive completely
// and in order. Aggregates send to several topics and under several keys.
func TestOrderProperty(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	aggregates := 0
	rapid.Check(t, func(rt *rapid.T) {
		b.broker.set(func(br *broker) { br.log = nil })
		base := aggregates
		n := rapid.IntRange(1, 6).Draw(rt, "aggregates")
		aggregates += n
		faults := rapid.SliceOfN(rapid.IntRange(0, 9), 40, 40).Draw(rt, "faults")
		var mu sync.Mutex
		i := 0
		b.broker.set(func(br *broker) {
			br.judge = func(topics.Record) error {
				mu.Lock()
				defer mu.Unlock()
				if i++; i > len(faults) {
					return nil
				}
				switch faults[i-1] {
				case 0:
					return errRejected
				case 1:
					return errDown
				}
				return nil
			}
		})
		cfg := Config{
			BatchSize: rapid.IntRange(1, 40).Draw(rt, "batch"), Calls: rapid.IntRange(1, 4).Draw(rt, "calls"),
			MaxAttempts: 1000, RetryBackoff: time.Millisecond, SweepEvery: 20 * time.Millisecond, PollCeiling: 5 * time.Millisecond,
		}
		r := b.relay(cfg, longTTL)
		defer r.stop()

		want := map[string]int{}
		open := map[string]pgx.Tx{} // by aggregate, as its row lock would have it
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			a := fmt.Sprintf("p%d", base+rapid.IntRange(0, n-1).Draw(rt, "aggregate"))
			switch tx := open[a]; {
			case tx != nil && rapid.Bool().Draw(rt, "commit"):
				require.NoError(t, tx.Commit(t.Context()))
				delete(open, a)
				b.signals.Wake(WakeName)
			case tx != nil:
				continue
			default:
				tx, err := b.pool.Begin(t.Context())
				require.NoError(t, err)
				for range rapid.IntRange(1, 4).Draw(rt, "events") {
					e := b.entry(a)
					e.Topic = topics.Topic(fmt.Sprintf("t%d", rapid.IntRange(0, 1).Draw(rt, "topic")))
					e.Key = []byte(a + strings.Repeat("k", rapid.IntRange(0, 1).Draw(rt, "key")))
					require.NoError(t, Append(t.Context(), tx, e))
					want[a]++
				}
				open[a] = tx
			}
		}
		for _, tx := range open {
			require.NoError(t, tx.Commit(t.Context()))
		}
		b.signals.Wake(WakeName)
		b.published()
		b.order(want)
	})
}

// TestOldestAgeAndPending shows what the gauges tell during an outage.
func TestOldestAgeAndPending(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.broker.judge = func(topics.Record) error { return errDown }
	b.append(25, "a", "b", "c")
	_, err := b.pool.Exec(t.Context(), `UPDATE outbox_events SET created_at = created_at - interval '1 hour' WHERE seq = (SELECT max(seq) FROM outbox_events WHERE aggregate_id = 'a')`)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), `UPDATE outbox_events SET created_at = created_at - interval '2 hours' WHERE seq = (SELECT min(seq) FROM outbox_events)`)
	require.NoError(t, err)
	r := b.relay(quick(), longTTL)
	b.eventually(func() bool {
		families, err := r.metrics.Gather()
		require.NoError(t, err)
		values := map[string]float64{}
		for _, f := range families {
			if g := f.GetMetric()[0].GetGauge(); g != nil {
				values[f.GetName()] = g.GetValue()
			}
		}
		return values["millrace_outbox_pending"] == 25 && values["millrace_outbox_oldest_age_seconds"] > 7100 &&
			values["millrace_outbox_shards"] == Shards
	})
	b.broker.set(func(br *broker) { br.judge = nil })
	b.published()
	b.eventually(func() bool { return len(b.broker.records()) == 25 })
	require.NotErrorIs(t, errDown, errRejected)
}
