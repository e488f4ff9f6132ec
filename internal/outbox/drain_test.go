package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

func TestDrainTenThousand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fill(10_000, 200)
	b.relay(Config{}, longTTL)
	b.published()
	want := map[string]int{}
	for i := range 200 {
		want[fmt.Sprint("agg-", i)] = 50
	}
	assert.Zero(t, b.order(want))
}

// fill commits n events of so many aggregates, 500 to a transaction.
func (b *bench) fill(n, aggregates int) {
	b.t.Helper()
	entries := make([]Entry, 0, n)
	for i := range n {
		entries = append(entries, b.entry(fmt.Sprint("agg-", i%aggregates)))
	}
	for chunk := range slices.Chunk(entries, 500) {
		b.commit(chunk...)
	}
}

// sink acknowledges everything and remembers when.
type sink struct {
	mu    sync.Mutex
	want  int
	done  chan struct{}
	acked func(topics.Record)
}

func (s *sink) PublishRecords(_ context.Context, records []topics.Record) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked != nil {
		for _, r := range records {
			s.acked(r)
		}
	}
	if s.want -= len(records); s.want <= 0 && s.done != nil {
		close(s.done)
		s.done = nil
	}
	return nil
}

// BenchmarkDrain measures how fast a backlog is read, handed to a publisher that
// does nothing, and marked. Set MILLRACE_TEST_FSYNC=1.
func BenchmarkDrain(b *testing.B) {
	for _, aggregates := range []int{10, 1000, 20_000} {
		b.Run(fmt.Sprintf("aggregates=%d", aggregates), func(b *testing.B) {
			const n = 20_000
			for b.Loop() {
				b.StopTimer()
				bench := newBench(b)
				bench.fill(n, aggregates)
				done := make(chan struct{})
				s := &sink{want: n, done: done}
				b.StartTimer()
				r := bench.relay(Config{}, longTTL, func(r *Relay) { r.publisher = s })
				<-done
				bench.published()
				b.StopTimer()
				r.stop()
				b.StartTimer()
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkLatency commits 500 events per second, one to a transaction, at fixed
// times, and measures from the intended time to the publisher.
func BenchmarkLatency(b *testing.B) {
	bench := newBench(b)
	const rate, n = 500, 5000
	var latencies []time.Duration
	intended := make(map[string]time.Time, n)
	done := make(chan struct{})
	var mu sync.Mutex
	s := &sink{want: n, done: done}
	s.acked = func(r topics.Record) {
		mu.Lock()
		defer mu.Unlock()
		latencies = append(latencies, time.Since(intended[string(r.Value)]))
	}
	r := bench.relay(Config{}, longTTL, func(r *Relay) { r.publisher = s })
	defer r.stop()
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = bench.entry(fmt.Sprint("agg-", i%100))
	}
	start := time.Now()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, e := range entries {
		at := start.Add(time.Duration(i) * time.Second / rate)
		time.Sleep(time.Until(at))
		mu.Lock()
		intended[string(e.Envelope.Data)] = at
		mu.Unlock()
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			assert.NoError(b, Append(b.Context(), bench.pool, e))
			bench.signals.Wake(WakeName)
		})
	}
	wg.Wait()
	<-done
	require.Len(b, latencies, n)
	slices.Sort(latencies)
	for _, q := range []float64{0.5, 0.99, 0.999} {
		b.ReportMetric(float64(latencies[int(q*n)].Microseconds())/1000, fmt.Sprintf("p%g-ms", q*100))
	}
}

// drain publishes n events of 1000 aggregates to a publisher that does nothing, and
// returns how long reading and marking took.
func (b *bench) drain(n int) time.Duration {
	b.t.Helper()
	b.fill(n, 1000)
	done := make(chan struct{})
	s := &sink{want: n, done: done}
	began := time.Now()
	r := b.relay(Config{}, longTTL, func(r *Relay) { r.publisher = s })
	<-done
	b.published()
	took := time.Since(began)
	r.stop()
	return took
}

// BenchmarkIdleTransaction measures what is kept of the speed of draining 400 000
// events while a transaction is open all the time, in per cent of the speed
// without: one that has written (and so holds what is still to be seen), and one
// that has only looked (and so holds what vacuum could remove). Set
// MILLRACE_TEST_FSYNC=1.
func BenchmarkIdleTransaction(b *testing.B) {
	const n = 400_000
	for name, options := range map[string]pgx.TxOptions{
		"written":  {},
		"snapshot": {IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
	} {
		b.Run(name, func(b *testing.B) {
			var without, with time.Duration
			for b.Loop() {
				without += newBench(b).drain(n)
				bench := newBench(b)
				bench.fill(1, 1)
				tx, err := bench.admin.BeginTx(b.Context(), options)
				require.NoError(b, err)
				if options.AccessMode == pgx.ReadOnly {
					_, err = tx.Exec(b.Context(), `SELECT count(*) FROM outbox_events`)
				} else {
					err = Append(b.Context(), tx, bench.entry("late"))
				}
				require.NoError(b, err)
				with += bench.drain(n)
				require.NoError(b, tx.Rollback(b.Context()))
			}
			b.ReportMetric(n*float64(b.N)/without.Seconds(), "without-events/s")
			b.ReportMetric(n*float64(b.N)/with.Seconds(), "with-events/s")
			b.ReportMetric(100*without.Seconds()/with.Seconds(), "kept-%")
		})
	}
}
