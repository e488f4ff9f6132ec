package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// never is a configuration with which a relay does not look into the table by
// itself, but for the sweep that comes with a shard.
func never() Config { return Config{PollCeiling: time.Hour, SweepEvery: time.Hour} }

// handing starts a relay with a handover, and waits until it takes everything and has
// looked through what was there before: those scans might find what is written next.
func (b *bench) handing(cfg Config, ttl time.Duration, change ...func(*Relay)) (*Handover, *running) {
	b.t.Helper()
	h := NewHandover()
	swept, seen := make(chan struct{}), map[int]bool{}
	all := sync.OnceFunc(func() { close(swept) })
	r := b.relay(cfg, ttl, append(change, func(r *Relay) {
		r.handover = h
		r.afterScan = func(order scanOrder) {
			for _, s := range order.shards {
				seen[s.number] = true
			}
			if len(seen) == Shards {
				all()
			}
		}
	})...)
	b.eventually(func() bool { return h.holdsAll() })
	select {
	case <-swept:
	case <-time.After(time.Minute):
		b.t.Fatal("the relay has not looked at all shards")
	}
	return h, r
}

func (h *Handover) holdsAll() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range h.held {
		if !held {
			return false
		}
	}
	return true
}

// versioned is the next event of an aggregate, with its number for a version.
func (b *bench) versioned(aggregate string) Entry {
	e := b.entry(aggregate)
	e.Version, e.Envelope.Sequence = int64(b.next[aggregate]), int64(b.next[aggregate])
	return e
}

// write commits entries as a process with a handover does, and hands them over.
func (b *bench) write(h *Handover, entries ...Entry) (all bool) {
	b.t.Helper()
	var w Written
	require.NoError(b.t, postgres.InTx(Gathering(b.t.Context(), &w), b.admin, func(ctx context.Context, tx pgx.Tx) error {
		w.Reset()
		return Append(ctx, tx, entries...)
	}))
	return h.Hand(&w)
}

func TestHandedOverNeedsNoScan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var scans atomic.Int64
	h, r := b.handing(never(), time.Hour, func(r *Relay) { r.beforeScan = func(scanOrder) { scans.Add(1) } })
	want := map[string]int{}
	for i := range 30 {
		assert.True(t, b.write(h, b.versioned("a"), b.versioned(fmt.Sprint("x", i)), b.versioned("a")), "nobody has to be woken")
		want["a"], want[fmt.Sprint("x", i)] = 2*i+2, 1
	}
	b.published()
	assert.Zero(t, b.order(want))
	// The pauses between scans that find nothing double, so a few look while this goes on.
	// Each can come between the commit and the handing over of one transaction.
	require.Less(t, scans.Load(), int64(20))
	assert.GreaterOrEqual(t, testutil.ToFloat64(r.Relay.metrics.handed), float64(90-3*scans.Load()))
}

// TestHandedOverIsTheSameRecord: byte for byte what a scan would have read.
func TestHandedOverIsTheSameRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.versioned("a")
	e.Envelope.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	b.commit(e)
	r := b.relay(never(), time.Hour)
	b.published()
	r.stop()
	scanned := b.broker.records()[0]

	h, _ := b.handing(never(), time.Hour)
	e.AggregateID, e.Key = "b", []byte("a")
	require.True(t, b.write(h, e))
	b.published()
	assert.Equal(t, scanned, b.broker.records()[1])
}

// TestWhatFollowsIsHandedOverToo: an entry without a version goes with the event of
// its transaction, and one that follows nothing waits for a scan.
func TestWhatFollowsIsHandedOverToo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, _ := b.handing(never(), time.Hour)
	first, task := b.versioned("a"), b.entry("a")
	task.Topic = "tasks"
	b.next["a"]-- // the task is no version
	assert.True(t, b.write(h, first, task, b.versioned("b")))
	b.published()
	var topicsOfA []topics.Topic
	for _, rec := range b.broker.records() {
		if string(rec.Key) == "a" {
			topicsOfA = append(topicsOfA, topics.Topic(rec.Topic))
		}
	}
	assert.Equal(t, []topics.Topic{"prod.events", "tasks"}, topicsOfA)

	assert.False(t, b.write(h, b.entry("c")))
	b.signals.Wake(WakeName)
	b.published()
}

// TestWhatFollowsRidesAlong: an event and what follows it in its transaction go in
// one call, the next event after both.
func TestWhatFollowsRidesAlong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, _ := b.handing(never(), time.Hour)
	var mu sync.Mutex
	var calls []string
	b.broker.set(func(br *broker) {
		br.before = func(_ context.Context, records []topics.Record) error {
			mu.Lock()
			defer mu.Unlock()
			text := ""
			for _, rec := range records {
				text += rec.Topic + " "
			}
			calls = append(calls, text)
			return nil
		}
	})
	task := func() Entry {
		e := b.entry("a")
		e.Topic = "tasks"
		b.next["a"]--
		return e
	}
	one, two := b.versioned("a"), b.versioned("a")
	require.True(t, b.write(h, one, task(), task(), two))
	b.published()
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"prod.events tasks tasks ", "prod.events "}, calls)
}

// TestRejectedEventHoldsWhatFollows: the task may have been sent with the event that
// the broker refused; it comes again behind it.
func TestRejectedEventHoldsWhatFollows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var rejected sync.Once
	b.broker.judge = func(rec topics.Record) (err error) {
		if rec.Topic == "prod.events" {
			rejected.Do(func() { err = errRejected })
		}
		return err
	}
	cfg := quick()
	h, _ := b.handing(cfg, time.Hour)
	event, task := b.versioned("a"), b.entry("a")
	task.Topic = "tasks"
	b.next["a"]--
	b.write(h, event, task)
	b.write(h, b.versioned("a"))
	b.published()
	var sent []string
	for _, rec := range b.broker.records() {
		sent = append(sent, rec.Topic)
	}
	assert.Equal(t, []string{"tasks", "prod.events", "tasks", "prod.events"}, sent)
}

// TestNothingOvertakesWhatAnotherProcessWrote: the relay does not know of the event
// before the one that is handed over, and nobody tells it.
func TestNothingOvertakesWhatAnotherProcessWrote(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, r := b.handing(never(), time.Hour)
	want := map[string]int{}
	for i := range 20 {
		require.NoError(t, postgres.InTx(t.Context(), b.admin, func(ctx context.Context, tx pgx.Tx) error {
			return Append(ctx, tx, b.versioned("a")) // and the process dies here
		}))
		b.write(h, b.versioned("a"))
		b.write(h, b.versioned("a"))
		b.published()
		want["a"] = 3 * (i + 1)
	}
	assert.Zero(t, b.order(want))
	assert.NotZero(t, testutil.ToFloat64(r.Relay.metrics.handed), "once the relay has caught up, the short way is open again")
}

func TestHandoverWithoutARelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	assert.False(t, b.write(nil, b.versioned("a")))
	h := NewHandover()
	assert.False(t, b.write(h, b.versioned("a")), "no shard is held")
	assert.Empty(t, h.take())
	var nothing Written
	assert.True(t, h.Hand(&nothing), "nothing was written, nobody has to be woken")

	h, r := b.handing(never(), time.Hour)
	b.published() // what lay there, by the sweep that comes with the shards
	r.stop()
	assert.False(t, b.write(h, b.versioned("a")), "the relay has ended")
	assert.Zero(t, b.order(map[string]int{"a": 2}))
}

// TestHandoverIsBounded: what does not fit is left in the table, and the caller is
// told to wake.
func TestHandoverIsBounded(t *testing.T) {
	t.Parallel()
	h := NewHandover()
	var held [Shards]bool
	for i := range held {
		held[i] = true
	}
	h.hold(held)
	w := Written{rows: make([]*row, maxHanded+1)}
	for i := range w.rows {
		w.rows[i] = &row{seq: int64(i)}
	}
	assert.False(t, h.Hand(&w))
	assert.Len(t, h.take(), maxHanded)
	assert.False(t, h.Hand(&Written{rows: []*row{{bytes: maxHandedBytes + 1}}}))
	assert.Empty(t, h.take())
	assert.True(t, h.Hand(&Written{rows: []*row{{bytes: 1}}}))
}

// TestRepeatedTransactionIsHandedOverOnce: of a transaction that was run again, only
// the last run counts.
func TestRepeatedTransactionIsHandedOverOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, _ := b.handing(never(), time.Hour)
	var w Written
	e := b.versioned("a")
	ctx := Gathering(t.Context(), &w)
	for _, undo := range []error{errors.New("aborted"), nil} {
		err := postgres.InTx(ctx, b.admin, func(ctx context.Context, tx pgx.Tx) error {
			w.Reset()
			return errors.Join(Append(ctx, tx, e), undo)
		})
		require.Equal(t, undo == nil, err == nil)
	}
	assert.True(t, h.Hand(&w))
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 1}))
}

// TestHandedOverInABatch: statements that are sent together write and hand over what
// one that is sent alone does.
func TestHandedOverInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, _ := b.handing(never(), time.Hour)
	var w Written
	require.NoError(t, postgres.InTx(Gathering(t.Context(), &w), b.admin, func(ctx context.Context, tx pgx.Tx) error {
		q := &batchExecer{}
		q.Queue("SELECT 1")
		if err := Append(ctx, q, b.versioned("a"), b.versioned("b"), b.versioned("a")); err != nil {
			return err
		}
		return tx.SendBatch(ctx, &q.Batch).Close()
	}))
	assert.True(t, h.Hand(&w))
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 2, "b": 1}))
}

type batchExecer struct {
	pgx.Batch
	Execer
}

// TestShortAndLongWayKeepTheOrder is a property: whoever writes, whatever is
// rejected or unreachable, and whichever relay holds a shard, the events of an
// aggregate come in order and none is missing.
func TestShortAndLongWayKeepTheOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(5, uint64(time.Now().UnixNano())))
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	b.broker.judge = func(topics.Record) error {
		switch pick(80) {
		case 0, 1:
			return errRejected
		case 2, 3:
			return errDown
		}
		return nil
	}
	cfg := quick()
	cfg.MaxAttempts, cfg.BatchSize = 1000, 32
	// Two relays share the shards, each with writers of its own; now and then one is
	// replaced.
	one, two := NewHandover(), NewHandover()
	b.relay(cfg, longTTL, func(r *Relay) { r.handover = one })
	second := b.relay(cfg, longTTL, func(r *Relay) { r.handover = two })
	want, handed := map[string]int{}, 0
	for i := range 600 {
		if i%150 == 149 {
			second.stop()
			second = b.relay(cfg, longTTL, func(r *Relay) { r.handover = two })
		}
		var entries []Entry
		for range 1 + pick(4) {
			a := fmt.Sprint("a", pick(30))
			entries = append(entries, b.versioned(a))
			want[a]++
		}
		var all bool
		switch pick(4) {
		case 0:
			b.commit(entries...) // a process without a relay
			continue
		case 1:
			all = b.write(two, entries...)
		default:
			all = b.write(one, entries...)
		}
		if all {
			handed++
		} else {
			b.signals.Wake(WakeName)
		}
	}
	b.published()
	b.order(want)
	assert.NotZero(t, handed)
}
