package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

const longTTL = 30 * time.Second

func TestNewRelayNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := NewRelay(Deps{}, Config{})
	require.Error(t, err)
	for _, name := range []string{"pool", "lease manager", "publisher", "rejections"} {
		assert.ErrorContains(t, err, name)
	}
}

func TestRelayPublishesWhatWasAppended(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.entry("a")
	e.Envelope.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	raw := topics.Record{Key: []byte{0, 0xff}, Headers: []topics.Header{{Key: "x\xff", Value: []byte{0}}, {Key: "x\xff"}}}
	b.commit(e, Entry{AggregateType: "dead", AggregateID: "d", Topic: "custom", Record: &raw})
	r := b.relay(Config{}, longTTL)
	b.published()
	byTopic := map[string]topics.Record{}
	for _, rec := range b.broker.records() {
		byTopic[rec.Topic] = rec
	}
	want := e.Envelope.Record("prod.events", []byte("a"))
	assert.Equal(t, want, byTopic["prod.events"], "the physical name, everything else as appended")
	raw.Topic = "custom"
	assert.Equal(t, raw, byTopic["custom"])

	var status string
	var published bool
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT status, published_at >= created_at FROM outbox_events LIMIT 1`).Scan(&status, &published))
	assert.Equal(t, "PUBLISHED", status)
	assert.True(t, published)
	assert.InDelta(t, 1, testutil.ToFloat64(r.Relay.metrics.published.WithLabelValues("custom")), 0)
}

func TestWakeUpIsEnough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Neither poll nor sweep comes during this test.
	b.relay(Config{PollCeiling: time.Hour, SweepEvery: time.Hour}, time.Hour)
	want := map[string]int{}
	for i := range 50 {
		b.append(1, "a")
		want["a"] = i + 1
		b.published()
	}
	assert.Zero(t, b.order(want))
}

func TestPollIsEnough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay(Config{}, longTTL, func(r *Relay) { r.signals = nil })
	b.append(10, "a", "b")
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 5, "b": 5}))
}

// TestLateCommitIsNotSkipped: a transaction draws low numbers and commits after
// higher ones were published, and an aggregate's next event follows at once.
func TestLateCommitIsNotSkipped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay(Config{SweepEvery: time.Hour}, time.Hour) // no sweep helps
	ctx := t.Context()
	want := map[string]int{}
	for round := 1; round <= 20; round++ {
		late, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, Append(ctx, late, b.entry("late")))
		for range 3 {
			b.append(40, "x", "y", "z", "u")
			b.eventually(func() bool { return b.count("PENDING") == 0 }) // the open one is not visible
		}
		require.NoError(t, late.Commit(ctx))
		b.append(1, "late")
		b.published()
		want["late"] = 2 * round
		for _, a := range []string{"x", "y", "z", "u"} {
			want[a] += 30
		}
	}
	assert.Zero(t, b.order(want))
}

func TestRolledBackNumbersLeaveNoHole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay(Config{SweepEvery: time.Hour}, time.Hour)
	for range 10 {
		_ = postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, Append(ctx, tx, Entry{AggregateType: "t", AggregateID: "gone", Topic: "t", Record: &topics.Record{}}))
			return errors.New("no")
		})
		b.append(5, "a")
	}
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 50}))
}

func TestRejectedRecordBlocksOnlyItsAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var tries atomic.Int64
	b.broker.judge = func(r topics.Record) error {
		if string(r.Value) == "bad:2" && tries.Add(1) < 4 {
			return fmt.Errorf("too large: %w", errRejected)
		}
		return nil
	}
	r := b.relay(quick(), longTTL)
	b.append(40, "bad", "good")
	b.append(40, "bad", "good")
	b.published()
	assert.Zero(t, b.order(map[string]int{"bad": 40, "good": 40}))
	assert.EqualValues(t, 4, tries.Load())
	var attempts int
	var reason string
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT attempts, last_error FROM outbox_events WHERE attempts > 0`).Scan(&attempts, &reason))
	assert.Equal(t, 3, attempts)
	assert.Contains(t, reason, "too large")
	assert.InDelta(t, 3, testutil.ToFloat64(r.Relay.metrics.rejected.WithLabelValues("execution_events")), 0)
}

func TestFailedRecordWaitsForSomebody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mended atomic.Bool
	b.broker.judge = func(r topics.Record) error {
		if string(r.Value) == "bad:3" && !mended.Load() {
			return errRejected
		}
		return nil
	}
	cfg := quick()
	cfg.BatchSize = 32
	r := b.relay(cfg, longTTL)
	b.append(400, "bad", "good")
	b.eventually(func() bool { return b.count("FAILED") == 1 })
	b.append(100, "good")
	b.append(100, "bad")
	b.eventually(func() bool { return b.count("PUBLISHED") == 302 })
	assert.Equal(t, 297, b.count("PENDING"), "the later events of the aggregate wait")
	assert.InDelta(t, 1, testutil.ToFloat64(r.Relay.metrics.failed.WithLabelValues("execution_events")), 0)
	b.eventually(func() bool { return testutil.ToFloat64(r.Relay.metrics.failedRows) == 1 })

	// Another relay finds it waiting just the same.
	r.stop()
	b.relay(cfg, longTTL)
	b.append(10, "good")
	b.eventually(func() bool { return b.count("PUBLISHED") == 312 })

	mended.Store(true)
	_, err := b.pool.Exec(t.Context(), `UPDATE outbox_events SET status = 'PENDING', attempts = 0 WHERE status = 'FAILED'`)
	require.NoError(t, err)
	b.append(10, "bad")
	b.published()
	assert.Zero(t, b.order(map[string]int{"bad": 310, "good": 310}))
}

func TestDamagedRowFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(2, "a")
	_, err := b.pool.Exec(t.Context(), `UPDATE outbox_events SET headers = '\x07' WHERE seq = (SELECT min(seq) FROM outbox_events)`)
	require.NoError(t, err)
	b.append(3, "b")
	b.relay(quick(), longTTL)
	b.eventually(func() bool { return b.count("FAILED") == 1 && b.count("PUBLISHED") == 3 })
	assert.Equal(t, 1, b.count("PENDING"))
}

func TestBrokerDownSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var refusals atomic.Int64
	b.broker.before = func(context.Context, []topics.Record) error {
		refusals.Add(1)
		return errDown
	}
	r := b.relay(quick(), longTTL)
	b.append(300, "a", "b", "c")
	b.eventually(func() bool { return refusals.Load() >= 4 && testutil.ToFloat64(r.Relay.metrics.unreachable) == 1 })
	assert.Equal(t, 300, b.count("PENDING"))
	b.broker.set(func(b *broker) { b.before = nil })
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 100, "b": 100, "c": 100}))
	var attempts int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT max(attempts) FROM outbox_events`).Scan(&attempts))
	assert.Zero(t, attempts)
	b.eventually(func() bool { return testutil.ToFloat64(r.Relay.metrics.unreachable) == 0 })
}

func TestPanickingPublisherLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	b.broker.before = func(context.Context, []topics.Record) error {
		if calls.Add(1) == 1 {
			panic("bug")
		}
		return nil
	}
	b.relay(quick(), longTTL)
	b.append(10, "a")
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 10}))
}

func TestNothingIsHeldAcrossTheNetwork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inCall, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.broker.before = func(context.Context, []topics.Record) error {
		once.Do(func() { close(inCall); <-release })
		return nil
	}
	b.relay(Config{}, longTTL)
	b.append(10, "a")
	<-inCall
	b.eventually(func() bool {
		var open int
		err := b.admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`).Scan(&open)
		return err == nil && open == 0 && b.pool.Stat().AcquiredConns() == 0
	})
	close(release)
	b.published()
}

// TestCrashAfterPublishBeforeMark: the relay dies between the two; another takes
// over when the leases run out and publishes the same events again.
func TestCrashAfterPublishBeforeMark(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const ttl = 500 * time.Millisecond
	reached := make(chan struct{})
	var once sync.Once
	crash := func(ctx context.Context) error {
		once.Do(func() { close(reached) })
		return errors.New("crashed")
	}
	r := b.relay(Config{DrainTimeout: time.Millisecond}, ttl, func(r *Relay) { r.beforeMark = crash })
	b.append(60, "a", "b", "c")
	<-reached
	b.eventually(func() bool { return len(b.broker.records()) >= 60 })
	assert.Equal(t, 60, b.count("PENDING"))
	first := ids(b.broker.records())
	r.stop()

	b.relay(Config{}, ttl)
	b.append(30, "a", "b", "c")
	b.published()
	assert.GreaterOrEqual(t, b.order(map[string]int{"a": 30, "b": 30, "c": 30}), 60)
	again := ids(b.broker.records()[60:])
	for id := range first {
		assert.Contains(t, again, id, "with the same id")
	}
}

func ids(records []topics.Record) map[string]bool {
	set := map[string]bool{}
	for _, r := range records {
		id, _ := r.Header("ce_id")
		set[string(id)] = true
	}
	return set
}

// TestZombieCannotMark: a relay loses its leases while its events are on their
// way. What it published was published again, but it must not mark.
func TestZombieCannotMark(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	pause := func(context.Context) error {
		once.Do(func() { close(reached); <-release })
		return nil
	}
	r := b.relay(Config{}, longTTL, func(r *Relay) { r.beforeMark = pause })
	b.append(10, "a")
	<-reached
	// Somebody took over every shard.
	_, err := b.pool.Exec(t.Context(), `UPDATE leases SET owner = 'another', token = token + 1`)
	require.NoError(t, err)
	close(release)
	r.stop()
	assert.Equal(t, 10, b.count("PENDING"), "fenced")
}

func TestStopDrainsAndMarks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inCall, release := make(chan struct{}), make(chan struct{})
	b.broker.before = func(context.Context, []topics.Record) error {
		close(inCall)
		<-release
		return nil
	}
	r := b.relay(Config{}, longTTL)
	b.append(10, "a")
	<-inCall
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	close(release)
	<-stopped
	assert.Equal(t, 10, b.count("PUBLISHED"), "what was under way was waited for and marked")
	var leases int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM leases WHERE expires_at > clock_timestamp()`).Scan(&leases))
	assert.Zero(t, leases)
}

// TestRelaysComeAndGo keeps writing while relays start, stop and crash.
func TestRelaysComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.broker.judge = func(topics.Record) error {
		switch rand.N(200) {
		case 0:
			return errRejected
		case 1:
			return errDown
		}
		return nil
	}
	cfg := quick()
	cfg.BatchSize, cfg.MaxAttempts, cfg.DrainTimeout = 20, 1000, 50*time.Millisecond
	var aggregates []string
	for i := range 25 {
		aggregates = append(aggregates, fmt.Sprintf("agg-%d", i))
	}
	want := map[string]int{}
	var relays []*running
	for round := range 12 {
		if len(relays) == 3 {
			relays[0].stop()
			relays = relays[1:]
		}
		crashing := round%3 == 1
		relays = append(relays, b.relay(cfg, 400*time.Millisecond, func(r *Relay) {
			if crashing {
				r.beforeMark = func(context.Context) error { return errors.New("crashed") }
			}
		}))
		for range 4 {
			b.append(100, aggregates...)
			for _, a := range aggregates {
				want[a] += 4
			}
		}
		if crashing {
			relays[len(relays)-1].stop()
			relays = relays[:len(relays)-1]
		}
	}
	b.published()
	t.Logf("%d duplicates", b.order(want))
}

func TestDatabaseGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay(quick(), 2*time.Second)
	b.append(50, "a", "b")
	for range 5 {
		_, err := b.admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name <> 'admin'`)
		require.NoError(t, err)
		b.append(50, "a", "b")
	}
	b.published()
	b.order(map[string]int{"a": 150, "b": 150})
}

func TestLargePayloadsAreReadInParts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 30
	big := bytes.Repeat([]byte("x"), 200<<10)
	for i := range n {
		b.commit(Entry{AggregateType: "t", AggregateID: "a", Topic: "t", Record: &topics.Record{Key: []byte("a"), Value: append(fmt.Appendf(nil, "%03d", i), big...)}})
	}
	var largest atomic.Int64
	b.broker.before = func(_ context.Context, records []topics.Record) error {
		size := int64(0)
		for _, r := range records {
			size += int64(len(r.Value))
		}
		largest.Store(max(largest.Load(), size))
		return nil
	}
	b.relay(Config{MaxScanBytes: 1 << 20, MaxCallBytes: 500 << 10}, longTTL)
	b.published()
	records := b.broker.records()
	require.Len(t, records, n)
	for i, r := range records {
		assert.True(t, strings.HasPrefix(string(r.Value), fmt.Sprintf("%03d", i)))
	}
	assert.LessOrEqual(t, largest.Load(), int64(600<<10))
}
