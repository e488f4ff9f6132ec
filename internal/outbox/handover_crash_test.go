package outbox

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// gathered commits entries as a process with a handover does, and leaves it to the
// caller when they are handed over.
func (b *bench) gathered(entries ...Entry) *Written {
	b.t.Helper()
	var w Written
	require.NoError(b.t, postgres.InTx(Gathering(b.t.Context(), &w), b.admin, func(ctx context.Context, tx pgx.Tx) error {
		w.Reset()
		return Append(ctx, tx, entries...)
	}))
	return &w
}

// handAndSettle hands something over and waits until the relay has dealt with it: an
// event that is handed over behind it was published.
func (b *bench) handAndSettle(h *Handover, w *Written) {
	b.t.Helper()
	h.Hand(w)
	b.write(h, b.versioned("last"))
	b.published()
}

// TestCrashBetweenCommitAndHandover: the process dies with everything in the table
// and nothing handed over. The next relay begins with what it finds, and what is
// handed to it comes behind that.
func TestCrashBetweenCommitAndHandover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, r := b.handing(never(), time.Hour)
	b.gathered(b.versioned("a"), b.versioned("b"), b.versioned("a"))
	r.stop()
	require.Empty(t, b.broker.records())

	h, _ := b.handing(never(), time.Hour)
	b.write(h, b.versioned("a"), b.versioned("b"))
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 3, "b": 2}))
}

// TestCrashBetweenHandoverAndPublish: the relay dies with events in memory, while a
// call is under way that has failed. Another one takes over.
func TestCrashBetweenHandoverAndPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reached := make(chan struct{})
	var once sync.Once
	b.broker.before = func(ctx context.Context, _ []topics.Record) error {
		once.Do(func() { close(reached) })
		<-ctx.Done()
		return errDown
	}
	cfg := never()
	cfg.DrainTimeout = time.Millisecond
	h, r := b.handing(cfg, time.Hour)
	require.True(t, b.write(h, b.versioned("a"), b.versioned("b")))
	<-reached
	require.True(t, b.write(h, b.versioned("a"), b.versioned("b")))
	r.stop()
	b.broker.set(func(br *broker) { br.before = nil })
	require.Empty(t, b.broker.records())

	h, _ = b.handing(never(), time.Hour)
	b.write(h, b.versioned("a"), b.versioned("b"))
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 3, "b": 3}))
}

// TestCrashBetweenPublishAndMarkOfWhatWasHandedOver: all of it comes again, in the
// same order.
func TestCrashBetweenPublishAndMarkOfWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := never()
	cfg.DrainTimeout = time.Millisecond
	h, r := b.handing(cfg, time.Hour, func(r *Relay) {
		r.beforeMark = func(context.Context) error { return errors.New("crashed") }
	})
	for range 3 {
		b.write(h, b.versioned("a"), b.versioned("b"))
	}
	b.eventually(func() bool { return len(b.broker.records()) == 6 })
	r.stop()
	h, _ = b.handing(never(), time.Hour)
	b.write(h, b.versioned("a"))
	b.published()
	assert.Equal(t, 6, b.order(map[string]int{"a": 4, "b": 3}), "what was not marked, once more")
}

// TestZombiePublishesNothingThatIsHandedOver: a relay whose leases have run out, and
// that does not know yet, keeps what it is given. Its successor publishes it.
func TestZombiePublishesNothingThatIsHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const ttl = time.Second
	h, r := b.handing(never(), ttl)
	_, err := b.admin.Exec(t.Context(), `UPDATE leases SET owner = 'another', token = token + 1, expires_at = clock_timestamp() + interval '1 hour'`)
	require.NoError(t, err)
	// Its shards are gone as soon as it tries to renew them, which is before their end.
	b.eventually(func() bool { return !h.holdsAny() })
	assert.False(t, b.write(h, b.versioned("a"), b.versioned("b")), "others have to be woken")
	r.stop()
	assert.Empty(t, b.broker.records())
	assert.Equal(t, 2, b.count("PENDING"))

	_, err = b.admin.Exec(t.Context(), `UPDATE leases SET expires_at = clock_timestamp()`)
	require.NoError(t, err)
	h, _ = b.handing(never(), time.Hour)
	b.write(h, b.versioned("a"))
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 2, "b": 1}))
}

func (h *Handover) holdsAny() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held != [Shards]bool{}
}

// TestHandedOverLate: between commit and handover, the shard changed hands, and what
// was committed was published. It is not published again, behind what came after it.
func TestHandedOverLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.entry("a")
	task.Topic, b.next["a"] = "tasks", 0
	late := b.gathered(b.versioned("a"), task)
	b.commit(b.versioned("a"))
	h, _ := b.handing(never(), time.Hour)
	b.published()
	before := len(b.broker.records())
	b.handAndSettle(h, late)
	assert.Len(t, b.broker.records(), before+1, "the last one alone")
}

// TestScanWasQuicker: as before, while the same relay holds the shard. What follows
// an event is not taken without it.
func TestScanWasQuicker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, _ := b.handing(never(), time.Hour)
	task := b.entry("a")
	task.Topic, b.next["a"] = "tasks", 0
	late := b.gathered(b.versioned("a"), task)
	b.signals.Wake(WakeName)
	b.published()
	before := len(b.broker.records())
	b.handAndSettle(h, late)
	assert.Len(t, b.broker.records(), before+1, "the last one alone")
}

// TestHandedOverIsBoundedWhileTheBrokerIsDown: what is not taken is found in the
// table, in order, when the broker is back.
func TestHandedOverIsBoundedWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var down sync.Mutex
	down.Lock()
	b.broker.before = func(context.Context, []topics.Record) error {
		down.Lock()
		defer down.Unlock()
		return nil
	}
	cfg := Config{Calls: 2, MaxCallBytes: 2000}
	h, r := b.handing(cfg, time.Hour)
	size := math.MaxInt
	for range 50 {
		w := b.gathered(b.versioned("a"), b.versioned("b"))
		size = min(size, w.rows[0].bytes)
		if !h.Hand(w) {
			b.signals.Wake(WakeName)
		}
	}
	h.Hand(b.gathered(b.versioned("a")))
	b.eventually(func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.rows) == 0 })
	assert.LessOrEqual(t, int(testutil.ToFloat64(r.Relay.metrics.handed))*size, 2*2000)
	down.Unlock()
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 51, "b": 50}))
}

// TestTailsForgetAndKnowIt: of an aggregate that was forgotten, an event that may
// have been published already is not taken for the first.
func TestTailsForgetAndKnowIt(t *testing.T) {
	t.Parallel()
	var known tails
	s := &shard{since: time.Now()}
	old := &row{version: 1, born: time.Now()}
	assert.True(t, known.isFirst(s, old))
	assert.False(t, known.isFirst(s, &row{version: 2, born: time.Now()}))
	key := laneKey{"test", "a"}
	known.reached(s, key, 3)
	known.reached(s, key, 2)
	version, ok := known.of(s, key)
	assert.True(t, ok)
	assert.EqualValues(t, 3, version, "it never goes back")
	_, ok = known.of(&shard{}, key)
	assert.False(t, ok, "it was another holder who knew")

	for i := range 2 * maxTails {
		known.reached(s, laneKey{"test", strconv.Itoa(i)}, 1)
	}
	_, ok = known.of(s, key)
	require.False(t, ok)
	assert.LessOrEqual(t, len(known.now)+len(known.before), 2*maxTails)
	assert.False(t, known.isFirst(s, old))
	assert.True(t, known.isFirst(s, &row{version: 1, born: time.Now()}))

	known.drop(s, key)
	version, ok = known.of(s, key)
	assert.True(t, ok)
	assert.EqualValues(t, unsure, version)
	known.forget()
	_, ok = known.of(s, key)
	assert.False(t, ok)
}
