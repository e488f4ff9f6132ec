package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
)

// Records that cannot be decoded are condemned together, in one transaction with
// those around them.
func TestLettersOfOneTransactionOpenTheirLanes(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	records := keyed(t, "a1", "a2", "b1", "a3", "b2", "-1", "-2", "a4")
	for _, i := range []int{0, 3, 4, 5} {
		records[i].Value = []byte("{")
	}
	o := c.own(t, c.batch())
	outcomes, err := o.feed(t.Context(), 0, records...)
	require.NoError(t, err)
	const done, filed, parked = middleware.Done, middleware.DeadLettered, middleware.Parked
	assert.Equal(t, []middleware.Outcome{filed, parked, done, parked, filed, filed, done, parked}, outcomes)
	assert.Equal(t, []string{"b1", "-2"}, c.effects(t))
	assert.Equal(t, []string{"1", "3", "7"}, c.waiting(t))
	assert.Equal(t, []string{"0", "4", "5"}, c.strings(t, `SELECT "offset"::text FROM dead_letters ORDER BY "offset"`), "one that waits is no letter yet")
	assert.Len(t, c.lanes(t), 2, "a record without a key has no lane")

	// In the lane it is the same: a2 is done, a3 becomes the head, a4 goes on waiting.
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "bad"))
	c.drain(t, c.batch())
	assert.Equal(t, []string{"b1", "-2", "a2"}, c.effects(t))
	assert.Equal(t, []string{"7"}, c.waiting(t))
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "bad"))
	c.drain(t, c.batch())
	assert.Equal(t, []string{"b1", "-2", "a2", "a4"}, c.effects(t))
	assert.Len(t, c.lanes(t), 1)
}

// As long as nothing waits, a letter leads to one lane only, whatever its batch.
func TestABatchInALaneStopsAtTheFirstThatFails(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	records := keyed(t, "a1", "a2", "a3", "a4", "a5")
	records[2].Value, records[3].Value = []byte("{"), []byte("{")
	_, err := c.own(t, c.batch()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	c.cure("a1")
	c.redrive(t, "a")
	c.drain(t, c.batch())
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
	assert.Equal(t, []string{"3", "4"}, c.waiting(t), "the second that fails is no letter before it is its turn")
	assert.Equal(t, []string{"0", "2"}, c.strings(t, `SELECT "offset"::text FROM dead_letters ORDER BY "offset"`))
}

// A commit whose answer was lost is found out by doing the same again.
func TestApplyingInALaneTwice(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	records := keyed(t, "a1", "a2", "a3")
	_, err := c.own(t, c.one()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "x"))
	lane, ok := c.claim(t)
	require.True(t, ok)
	calls := 0
	w := pipeline.Work{
		Consumer: "marker", Partition: lane.Partition, Epoch: lane.Token, Lane: lane.ID, From: 1, Next: 2,
		Entries: []pipeline.Entry{{Offset: 1, Record: &records[1]}},
		Effect:  func(context.Context, pipeline.StoreTx, []int) error { calls++; return nil },
	}
	verdicts, err := c.store.Apply(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, []pipeline.Verdict{pipeline.Fresh}, verdicts)
	verdicts, err = c.store.Apply(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, []pipeline.Verdict{pipeline.Repeated}, verdicts)
	assert.Equal(t, 1, calls)

	w.Entries[0].Letter = &middleware.Letter{Consumer: "marker", Original: records[1]}
	_, err = c.store.Apply(t.Context(), w)
	require.ErrorIs(t, err, pipeline.ErrFenced, "nor is it a dead letter afterwards")
}

// meddler does something after each transaction in a lane.
type meddler struct {
	pipeline.LaneStore
	meddle func(w pipeline.Work)
}

func (m *meddler) Apply(ctx context.Context, w pipeline.Work) ([]pipeline.Verdict, error) {
	verdicts, err := m.LaneStore.Apply(ctx, w)
	if w.Lane != 0 {
		m.meddle(w)
	}
	return verdicts, err
}

// A letter is redriven at once, while the rest of its batch is still on its way: the
// rest comes after it.
func TestAHeadThatIsRedrivenWhileItsBatchGoesOn(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1", "a3")
	_, err := c.own(t, c.batch()).feed(t.Context(), 0, keyed(t, "a1", "a2", "a3", "a4", "a5")...)
	require.NoError(t, err)
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "x"))
	redriven := 0
	store := &meddler{LaneStore: c.store, meddle: func(w pipeline.Work) {
		for _, e := range w.Entries {
			if e.Letter != nil {
				redriven++
				c.cure("a3")
				c.redrive(t, "a")
			}
		}
	}}
	require.NoError(t, drainAll(t.Context(), store, c.processor(t, store, c.batch())))
	assert.Equal(t, 1, redriven)
	assert.Equal(t, []string{"a2", "a3", "a4", "a5"}, c.effects(t))
	assert.Empty(t, c.lanes(t))
}

// The clocks of two processes differ: what failed last may look older.
func TestAHeadIsOpenWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	ahead := func() {
		_, err := c.pool.Exec(t.Context(), `UPDATE dead_letters SET last_failed_at = now() + interval '1 hour'`)
		require.NoError(t, err)
	}
	records := keyed(t, "a1", "a2")
	_, err := c.own(t, c.one()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	ahead()
	c.redrive(t, "a")
	c.drain(t, c.one())
	assert.Equal(t, []string{"1"}, c.waiting(t))

	ahead()
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "x"))
	c.drain(t, c.one())
	assert.Empty(t, c.lanes(t))
	part := pipeline.Partition{Group: "marker", Topic: "marks", TopicID: topicID, Partition: 3}
	require.NoError(t, c.store.Seek(t.Context(), part, 0))
	_, err = c.own(t, c.one()).feed(t.Context(), 0, records...)
	require.NoError(t, err)
	letter, err := c.letters.Get(t.Context(), c.open(t, "a"))
	require.NoError(t, err)
	assert.Equal(t, deadletter.Open, letter.Status)
	assert.EqualValues(t, 1, letter.Lane.Parked)
}
