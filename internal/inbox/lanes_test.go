package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// clinic is a consumer ordered per key whose handler fails for ids that are sick.
type clinic struct {
	*testBundle
	letters *deadletter.Store

	mu   sync.Mutex
	sick map[string]bool
	// down is what the handler returns instead of doing anything.
	down error
}

func newClinic(t testing.TB, sick ...string) *clinic {
	t.Helper()
	return clinicOn(setup(t), sick...)
}

func clinicOn(b *testBundle, sick ...string) *clinic {
	c := &clinic{testBundle: b, sick: make(map[string]bool)}
	c.letters = deadletter.New(deadletter.Config{
		Pool:       c.pool,
		TopicNames: func(context.Context) ([]string, error) { return []string{"marks"}, nil },
	})
	for _, id := range sick {
		c.sick[id] = true
	}
	return c
}

func (c *clinic) handle(ctx context.Context, tx pipeline.Tx, m mark) error {
	c.mu.Lock()
	sick, down := c.sick[m.ID], c.down
	c.mu.Unlock()
	switch {
	case down != nil:
		return down
	case sick:
		return pipeline.Permanent(fmt.Errorf("%s is sick", m.ID))
	}
	return insertMark(ctx, tx, m)
}

func (c *clinic) handleAll(ctx context.Context, tx pipeline.Tx, batch []mark) error {
	for _, m := range batch {
		if err := c.handle(ctx, tx, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *clinic) cure(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.sick, id)
	}
}

func (c *clinic) breakDown(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

func (c *clinic) one() pipeline.Consumer {
	return pipeline.Consumer{Name: "marker", Topic: "marks", Handle: pipeline.OnTx(c.handle), Delivery: pipeline.Delivery{Ordered: pipeline.PerKey}}
}

func (c *clinic) batch() pipeline.Consumer {
	return pipeline.Consumer{Name: "marker", Topic: "marks", Handle: pipeline.OnBatchTx(c.handleAll), Delivery: pipeline.Delivery{Ordered: pipeline.PerKey}}
}

// keyed makes records from ids; the key is the id's first letter, '-' has none.
func keyed(t testing.TB, ids ...string) []topics.Record {
	t.Helper()
	records := make([]topics.Record, len(ids))
	for i, id := range ids {
		records[i] = markRecord(t, id)
		if records[i].Key = []byte(id[:1]); id[0] == '-' {
			records[i].Key = nil
		}
		records[i].Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i)).UTC()
	}
	return records
}

func (c *clinic) lanes(t testing.TB) []parking.Lane {
	t.Helper()
	lanes, err := c.letters.Lanes(t.Context(), parking.Filter{})
	require.NoError(t, err)
	return lanes
}

// open returns the id of the OPEN letter of a key.
func (c *clinic) open(t testing.TB, key string) string {
	t.Helper()
	list, err := c.letters.List(t.Context(), deadletter.Filter{Statuses: []deadletter.Status{deadletter.Open}, Key: []byte(key)}, deadletter.Page{})
	require.NoError(t, err)
	require.Len(t, list.Letters, 1)
	return list.Letters[0].ID.String()
}

func (c *clinic) redrive(t testing.TB, key string) {
	t.Helper()
	result, err := c.letters.Redrive(t.Context(), deadletter.Redrive{IDs: []string{c.open(t, key)}, Terms: deadletter.Terms{Actor: "ada"}})
	require.NoError(t, err)
	require.Equal(t, 1, result.Redriven, "%v", result.Outcomes)
}

// drain drains lanes as a router would, until there is none to claim.
func (c *clinic) drain(t testing.TB, consumer pipeline.Consumer) {
	t.Helper()
	require.NoError(t, drainAll(t.Context(), c.store, c.processor(t, c.store, consumer)))
}

func drainAll(ctx context.Context, store pipeline.LaneStore, p *pipeline.Processor) error {
	for {
		lane, ok, err := store.ClaimLane(ctx, groups(), time.Hour)
		if err != nil || !ok {
			return err
		}
		for done := false; !done; {
			if _, done, err = p.Drain(ctx, store, lane); err != nil {
				return err
			}
		}
		if err := store.LeaveLane(ctx, lane, nil, 0); err != nil && !errors.Is(err, pipeline.ErrFenced) {
			return err
		}
	}
}

func groups() []string { return []string{"other", "marker"} }

func (c *clinic) claim(t testing.TB) (pipeline.Lane, bool) {
	t.Helper()
	lane, ok, err := c.store.ClaimLane(t.Context(), groups(), time.Hour)
	require.NoError(t, err)
	return lane, ok
}

func (c *clinic) processor(t testing.TB, store pipeline.Store, consumer pipeline.Consumer) *pipeline.Processor {
	t.Helper()
	consumer.Delivery.Breaker.Faults = -1
	p, err := pipeline.NewProcessor(consumer, pipeline.ProcessorConfig{Store: store, Classifier: classifier(), Rand: func() float64 { return 0 }})
	require.NoError(t, err)
	return p
}

func (c *clinic) waiting(t testing.TB) []string {
	t.Helper()
	return c.strings(t, `SELECT "offset"::text FROM parked_events ORDER BY "offset"`)
}

func TestAKeyWaitsBehindItsDeadLetter(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*clinic) pipeline.Consumer{"OnTx": (*clinic).one, "OnBatchTx": (*clinic).batch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t, "a2", "a4")
			consumer := kind(c)
			o := c.own(t, consumer)
			outcomes, err := o.feed(t.Context(), 10, keyed(t, "a1", "b1", "a2", "b2", "a3", "-1", "a4")...)
			require.NoError(t, err)
			const d, p = middleware.Done, middleware.Parked
			assert.Equal(t, []middleware.Outcome{d, d, middleware.DeadLettered, d, p, d, p}, outcomes)
			assert.Equal(t, []string{"a1", "b1", "b2", "-1"}, c.effects(t))
			assert.Empty(t, c.strings(t, `SELECT event_id FROM processed_events WHERE event_id IN ('id-a2', 'id-a3', 'id-a4')`))

			// Whoever owns the partition next goes on in the same way.
			o = c.own(t, consumer)
			assert.EqualValues(t, 17, o.start)
			outcomes, err = o.feed(t.Context(), 17, keyed(t, "a5", "b3")...)
			require.NoError(t, err)
			assert.Equal(t, []middleware.Outcome{p, d}, outcomes)
			_, claimed := c.claim(t)
			assert.False(t, claimed, "nothing moves behind an open letter")
			lanes := c.lanes(t)
			require.Len(t, lanes, 1)
			assert.Equal(t, parking.Blocked, lanes[0].State)
			assert.EqualValues(t, 3, lanes[0].Parked)

			// The first in the lane is mended, the third is not and becomes the head.
			c.cure("a2")
			c.redrive(t, "a")
			assert.Empty(t, c.strings(t, `SELECT topic FROM outbox_events WHERE aggregate_type = 'redrive'`), "not through the topic")
			c.drain(t, consumer)
			assert.Equal(t, []string{"a1", "b1", "b2", "-1", "b3", "a2", "a3"}, c.effects(t))
			assert.Equal(t, []string{"17"}, c.waiting(t))
			lanes = c.lanes(t)
			require.Len(t, lanes, 1)
			assert.Equal(t, c.open(t, "a"), lanes[0].Head.String())
			letter, err := c.letters.Get(t.Context(), lanes[0].Head.String())
			require.NoError(t, err)
			assert.EqualValues(t, 16, letter.Record.Offset)
			assert.EqualValues(t, 1, letter.Lane.Parked)

			require.NoError(t, c.letters.Discard(t.Context(), lanes[0].Head.String(), "ada", "not needed"))
			c.drain(t, consumer)
			assert.Equal(t, []string{"a1", "b1", "b2", "-1", "b3", "a2", "a3", "a5"}, c.effects(t))
			assert.Empty(t, c.lanes(t))
			outcomes, err = o.feed(t.Context(), 19, keyed(t, "a6")...)
			require.NoError(t, err)
			assert.Equal(t, []middleware.Outcome{d}, outcomes)
			assert.Equal(t, []string{"0"}, c.strings(t, `SELECT lanes::text FROM consumer_offsets`), "the owner has seen that no lane is left")
		})
	}
}

func TestAHeadThatFailsAgainIsTheSameLetter(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	id := c.open(t, "a")
	c.redrive(t, "a")
	c.drain(t, c.one())
	assert.Equal(t, id, c.open(t, "a"))
	letter, err := c.letters.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, 1, letter.ReplayCount)
	assert.Equal(t, 2, letter.Attempts)
	assert.Equal(t, parking.Blocked, letter.Lane.State)
	assert.EqualValues(t, 1, letter.Lane.Parked, "what waits behind it, itself not")
	assert.Equal(t, []string{"1"}, c.waiting(t))
	assert.Len(t, c.strings(t, `SELECT id::text FROM outbox_events WHERE topic = 'dead_letters'`), 2, "each failure is in the dead-letter topic")
}

// What is parked comes out as it went in.
func TestParkedRecordsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	var seen []topics.Record
	consumer := c.one()
	consumer.Handle = pipeline.OnTx(func(_ context.Context, _ pipeline.Tx, r topics.Record) error {
		if string(r.Value) == "bad" {
			return pipeline.Permanent(errors.New("bad"))
		}
		seen = append(seen, r)
		return nil
	})
	key := []byte{0xff, 0, 'k'}
	records := []topics.Record{
		{Key: key, Value: []byte("bad")},
		{
			Key: key, Value: []byte{0, 0xfe}, Timestamp: time.UnixMilli(1_700_000_000_123).UTC(),
			Headers: []topics.Header{{Key: "h", Value: []byte{0xff}}, {Key: "h", Value: nil}, {Key: "\xff", Value: []byte{}}},
		},
		{Key: key, Value: nil},
		{Key: []byte{}, Value: []byte{}},
	}
	o := c.own(t, consumer)
	outcomes, err := o.feed(t.Context(), 5, records...)
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.DeadLettered, middleware.Parked, middleware.Parked, middleware.Done}, outcomes)
	seen = nil
	list, err := c.letters.List(t.Context(), deadletter.Filter{Heads: true}, deadletter.Page{})
	require.NoError(t, err)
	require.Len(t, list.Letters, 1)
	require.NoError(t, c.letters.Discard(t.Context(), list.Letters[0].ID.String(), "ada", "bad"))
	c.drain(t, consumer)
	want := records[1:3]
	for i := range want {
		want[i].Topic, want[i].TopicID, want[i].Partition, want[i].Offset = "marks", topicID, 3, int64(6+i)
	}
	assert.Equal(t, want, seen)
}

func TestTooManyParkedEventsStall(t *testing.T) {
	t.Parallel()
	for name, delivery := range map[string]pipeline.Delivery{
		"of a key":       {Ordered: pipeline.PerKey, MaxParked: 2},
		"of a partition": {Ordered: pipeline.PerKey, MaxParked: 2, MaxParkedTotal: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t, "a1", "c1")
			consumer := c.batch()
			consumer.Delivery = delivery
			o := c.own(t, consumer)
			more := keyed(t, "a2", "c2", "a3", "b1")
			if name == "of a key" {
				more = keyed(t, "a2", "a3", "a4", "b1")
			}
			_, err := o.feed(t.Context(), 0, keyed(t, "a1", "c1")...)
			require.NoError(t, err)
			_, err = o.feed(t.Context(), 2, more...)
			require.ErrorIs(t, err, inbox.ErrParkedFull)
			assert.Equal(t, middleware.InfrastructureFault, middleware.Classify(t.Context(), err))
			require.Len(t, o.processor.Status().Stalls, 1)
			assert.Empty(t, c.waiting(t), "a transaction that parks too much does nothing")
			assert.Empty(t, c.effects(t))

			c.cure("a1", "c1")
			c.redrive(t, "a")
			c.redrive(t, "c")
			c.drain(t, consumer)
			_, err = o.feed(t.Context(), 2, more...)
			require.NoError(t, err, "the stall ends by itself once there is room")
			assert.Empty(t, o.processor.Status().Stalls)
			assert.Len(t, c.effects(t), 6)
		})
	}
}

// A fault of the database keeps the lane where it is; a handler's shutdown too.
func TestALaneStallsOnInfrastructureFaults(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	c.cure("a1")
	c.redrive(t, "a")
	c.breakDown(pipeline.Infrastructure(errors.New("no database")))
	lane, ok := c.claim(t)
	require.True(t, ok)
	_, done, err := o.processor.Drain(t.Context(), c.store, lane)
	require.ErrorContains(t, err, "no database")
	assert.False(t, done)
	assert.Empty(t, o.processor.Status().Stalls, "the partition itself goes on")
	require.NoError(t, c.store.LeaveLane(t.Context(), lane, err, time.Hour))
	_, ok = c.claim(t)
	assert.False(t, ok, "not before its next try")
	lanes := c.lanes(t)
	assert.Equal(t, parking.Stalled, lanes[0].State)
	assert.Contains(t, lanes[0].Error, "no database")
	assert.Equal(t, []string{"0", "1"}, c.waiting(t))

	_, err = c.pool.Exec(t.Context(), `UPDATE parked_lanes SET next_try_at = now()`)
	require.NoError(t, err)
	c.breakDown(nil)
	c.drain(t, c.one())
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
}

// Of two who hold a lane one after the other, only the second can do anything.
func TestAFormerHolderOfALaneIsFenced(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	c.cure("a1")
	c.redrive(t, "a")
	first, ok := c.claim(t)
	require.True(t, ok)
	_, ok = c.claim(t)
	require.False(t, ok, "it is leased")
	_, err = c.pool.Exec(t.Context(), `UPDATE parked_lanes SET leased_until = now() - interval '1 s'`)
	require.NoError(t, err)
	second, ok := c.claim(t)
	require.True(t, ok)
	_, _, err = o.processor.Drain(t.Context(), c.store, first)
	require.ErrorIs(t, err, pipeline.ErrFenced)
	_, err = c.store.CloseLane(t.Context(), first)
	require.ErrorIs(t, err, pipeline.ErrFenced)
	require.ErrorIs(t, c.store.KeepLane(t.Context(), first, time.Hour), pipeline.ErrFenced)
	require.ErrorIs(t, c.store.LeaveLane(t.Context(), first, nil, 0), pipeline.ErrFenced)
	assert.Empty(t, c.effects(t))
	require.NoError(t, c.store.KeepLane(t.Context(), second, time.Hour))
	require.NoError(t, c.store.LeaveLane(t.Context(), second, nil, 0))
	c.drain(t, c.one())
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
}

// A lane is obeyed although its consumer is no longer ordered, or keeps no inbox.
func TestALaneOutlivesItsDeclaration(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1", "b1")
	_, err := c.own(t, c.one()).feed(t.Context(), 0, keyed(t, "a1")...)
	require.NoError(t, err)
	loose := c.one()
	loose.Delivery.Ordered, loose.GuardedByState = pipeline.AsTheyCome, true
	o := c.own(t, loose)
	outcomes, err := o.feed(t.Context(), 1, keyed(t, "a2", "b1", "b2")...)
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Parked, middleware.DeadLettered, middleware.Done}, outcomes)
	require.Len(t, c.lanes(t), 1)
	c.cure("a1", "b1")
	c.redrive(t, "a")
	c.drain(t, loose)
	assert.Equal(t, []string{"b2", "a1", "a2"}, c.effects(t))
	c.redrive(t, "b")
	assert.Len(t, c.strings(t, `SELECT id::text FROM outbox_events WHERE aggregate_type = 'redrive'`), 1, "without a lane it goes through the topic")
}

// Reading again what was read changes nothing, whatever waits.
func TestRereadingAnOpenLane(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a2")
	records := keyed(t, "a1", "a2", "a3", "b1")
	_, err := c.own(t, c.batch()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	part := pipeline.Partition{Group: "marker", Topic: "marks", TopicID: topicID, Partition: 3}
	require.NoError(t, c.store.Seek(t.Context(), part, 0))
	outcomes, err := c.own(t, c.batch()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	assert.Equal(t, middleware.Parked, outcomes[2])
	assert.Equal(t, []string{"2"}, c.waiting(t))
	c.cure("a2")
	c.redrive(t, "a")
	c.drain(t, c.batch())
	assert.Equal(t, []string{"a1", "b1", "a2", "a3"}, c.effects(t))

	// Again, when all of it is done.
	require.NoError(t, c.store.Seek(t.Context(), part, 0))
	_, err = c.own(t, c.batch()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	assert.Equal(t, []string{"a1", "b1", "a2", "a3"}, c.effects(t))
	assert.Empty(t, c.lanes(t))
}

// Letters that are resolved in SQL, or are gone, hold nobody up.
func TestAnyEndOfTheHeadMovesTheLane(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"resolved": `UPDATE dead_letters SET status = 'RESOLVED' WHERE id = $1`,
		"gone":     `DELETE FROM dead_letters WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t, "a1")
			_, err := c.own(t, c.one()).feed(t.Context(), 0, keyed(t, "a1", "a2")...)
			require.NoError(t, err)
			_, err = c.pool.Exec(t.Context(), sql, uuid.MustParse(c.open(t, "a")))
			require.NoError(t, err)
			c.drain(t, c.one())
			assert.Equal(t, []string{"a2"}, c.effects(t))
			assert.Empty(t, c.lanes(t))
		})
	}
}
