package inbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func (c *clinic) letter(t testing.TB, id string) deadletter.Letter {
	t.Helper()
	l, err := c.letters.Get(t.Context(), id)
	require.NoError(t, err)
	return l
}

// A letter that its lane has settled is resolved, and not before.
func TestALaneResolvesItsLetter(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	id := c.open(t, "a")
	c.redrive(t, "a")
	assert.Equal(t, deadletter.Redriven, c.letter(t, id).Status)
	c.cure("a1")
	c.drain(t, c.one())
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
	assert.Equal(t, deadletter.Resolved, c.letter(t, id).Status)
}

// A redriven record that comes from the topic and is parked is processed when its
// lane is drained.
func TestAParkedRedriveIsResolvedInTheLane(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1")...)
	require.NoError(t, err)
	first := c.open(t, "a")
	require.NoError(t, c.letters.Discard(t.Context(), first, "ada", "later"))
	c.drain(t, c.one())
	require.Empty(t, c.lanes(t))

	// The next letter of the key opens a lane, and the redrive of the first runs into it.
	c.sick["a2"] = true
	_, err = o.feed(t.Context(), 1, keyed(t, "a2")...)
	require.NoError(t, err)
	result, err := c.letters.Redrive(t.Context(), deadletter.Redrive{IDs: []string{first}, Terms: deadletter.Terms{Force: true, Actor: "ada"}})
	require.NoError(t, err)
	require.Equal(t, 1, result.Redriven)
	again := keyed(t, "a1")
	for name, value := range map[string]string{middleware.HeaderTarget: "marker", middleware.HeaderReplayCount: "1", middleware.HeaderRedriveOf: first} {
		again[0].Headers = append(again[0].Headers, topics.Header{Key: name, Value: []byte(value)})
	}
	outcomes, err := o.feed(t.Context(), 2, again...)
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.Parked}, outcomes)
	assert.Equal(t, deadletter.Redriven, c.letter(t, first).Status, "parked is not processed")

	c.cure("a1", "a2")
	c.redrive(t, "a")
	c.drain(t, c.one())
	assert.Equal(t, []string{"a2", "a1"}, c.effects(t))
	assert.Equal(t, deadletter.Resolved, c.letter(t, first).Status)
}

// A head that was edited and fails again still has its original.
func TestAHeadThatFailsAgainKeepsItsOriginal(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	records := keyed(t, "a1", "a2")
	_, err := o.feed(t.Context(), 0, records...)
	require.NoError(t, err)
	id, original := c.open(t, "a"), c.letter(t, c.open(t, "a")).Record
	edited := markRecord(t, "a9").Value
	c.sick["a9"] = true
	require.NoError(t, c.letters.Edit(t.Context(), deadletter.Edit{ID: id, Value: &edited, After: -1, Actor: "ada", Reason: "wrong mark"}))
	c.redrive(t, "a")
	c.drain(t, c.one())

	l := c.letter(t, id)
	assert.Equal(t, deadletter.Open, l.Status)
	assert.Equal(t, original, l.Record)
	assert.Equal(t, edited, l.Current.Value)
	assert.Nil(t, l.RedriveOf)
	c.cure("a9")
	c.redrive(t, "a")
	c.drain(t, c.one())
	assert.Equal(t, []string{"a9", "a2"}, c.effects(t), "the edit counts for every redrive")
}

// What a lane waits for is neither put out of sight nor destroyed.
func TestAnOpenHeadIsNeitherArchivedNorDeleted(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1", "b1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2", "b1")...)
	require.NoError(t, err)
	id := c.open(t, "a")
	changed, err := c.letters.Archive(t.Context(), deadletter.Selection{IDs: []string{id}}, "ada", "r")
	require.NoError(t, err)
	require.ErrorIs(t, changed.Outcomes[0].Err, deadletter.ErrHeadOfLane)
	changed, err = c.letters.Delete(t.Context(), []string{id}, "ada", "r")
	require.NoError(t, err)
	require.ErrorIs(t, changed.Outcomes[0].Err, deadletter.ErrHeadOfLane)

	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "b"), "ada", "r"))
	changed, err = c.letters.Archive(t.Context(), deadletter.Selection{Filter: &deadletter.Filter{}}, "ada", "r")
	require.NoError(t, err)
	assert.EqualValues(t, 1, changed.Changed, "the one that nothing waits for")
	assert.True(t, c.letter(t, id).ArchivedAt.IsZero())
	c.drain(t, c.one())
	assert.Equal(t, []string{"1"}, c.waiting(t))

	// A redriven one may be put away; when it fails again it is back.
	c.redrive(t, "a")
	changed, err = c.letters.Archive(t.Context(), deadletter.Selection{IDs: []string{id}}, "ada", "r")
	require.NoError(t, err)
	require.NoError(t, changed.Outcomes[0].Err)
	c.drain(t, c.one())
	assert.Equal(t, id, c.open(t, "a"))
	require.NoError(t, c.letters.Discard(t.Context(), id, "ada", "r"))
	changed, err = c.letters.Delete(t.Context(), []string{id}, "ada", "r")
	require.NoError(t, err)
	assert.EqualValues(t, 1, changed.Changed)
	c.drain(t, c.one())
	assert.Equal(t, []string{"a2"}, c.effects(t))
	assert.Empty(t, c.lanes(t))
}

// What an older generation of the inbox knows is not applied again by way of a lane.
func TestALaneKnowsOlderGenerations(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a2")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "b1")...)
	require.NoError(t, err)
	c.age(t, window/2)
	made, _ := c.pass(t)
	require.Len(t, made, 1)
	outcomes, err := o.feed(t.Context(), 2, keyed(t, "a2", "a1", "b1", "a3")...)
	require.NoError(t, err)
	assert.Equal(t, []middleware.Outcome{middleware.DeadLettered, middleware.Parked, middleware.Duplicate, middleware.Parked}, outcomes)
	c.cure("a2")
	c.redrive(t, "a")
	c.drain(t, c.one())
	assert.Equal(t, []string{"a1", "b1", "a2", "a3"}, c.effects(t))
	assert.Equal(t, []string{"2"}, c.strings(t, `SELECT count(*)::text FROM processed_events WHERE generation = (SELECT max(number) FROM processed_generations)`))
}

// A consumer that is paused gets nothing from its lanes either.
func TestAPauseHoldsForLanes(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	o := c.own(t, c.one())
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	c.cure("a1")
	c.redrive(t, "a")
	lane, claimed := c.claim(t)
	require.True(t, claimed)
	_, err = c.pool.Exec(t.Context(), `
		INSERT INTO consumers (name, consumer_group, topic, kind, inbox, paused_at, paused_by, pause_reason)
		VALUES ('marker', 'marker', 'marks', 'OnTx', true, now(), 'ada', 'r')`)
	require.NoError(t, err)
	p := c.processor(t, c.store, c.one())
	moved, done, err := p.Drain(t.Context(), c.store, lane)
	require.NoError(t, err)
	assert.False(t, moved)
	assert.False(t, done, "nor is the lane closed")
	require.NoError(t, c.store.LeaveLane(t.Context(), lane, nil, 0))
	_, claimed = c.claim(t)
	assert.False(t, claimed)
	assert.Empty(t, c.effects(t))
	_, err = c.pool.Exec(t.Context(), `UPDATE consumers SET paused_at = NULL, paused_by = NULL, pause_reason = NULL`)
	require.NoError(t, err)
	c.drain(t, c.one())
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
}

// An operator's order about the record at which a partition is stalled outlives
// what a lane of that partition does meanwhile, and opens a lane as any letter does.
func TestAnOrderedLetterOpensALane(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	consumer := c.one()
	o := c.own(t, consumer)
	_, err := o.feed(t.Context(), 0, keyed(t, "a1", "a2")...)
	require.NoError(t, err)
	down := pipeline.Infrastructure(assert.AnError)
	c.breakDown(down)
	_, err = o.feed(t.Context(), 2, keyed(t, "b1")...)
	require.Error(t, err)
	var ended []error
	require.NoError(t, o.processor.OrderDeadLetter(pipeline.DeadLetterOrder{
		Partition: 3, Offset: 2, Actor: "ada", Reason: "go on", Until: time.Now().Add(time.Hour),
		Done: func(err error) { ended = append(ended, err) },
	}))
	c.breakDown(nil)
	c.cure("a1")
	c.redrive(t, "a")
	require.NoError(t, drainAll(t.Context(), c.store, o.processor))
	assert.Equal(t, []string{"a1", "a2"}, c.effects(t))
	assert.Empty(t, ended)

	outcomes, err := o.feed(t.Context(), 2, keyed(t, "b1", "b2")...)
	require.NoError(t, err)
	assert.Equal(t, middleware.DeadLettered, outcomes[0])
	assert.Equal(t, []error{nil}, ended)
	require.Len(t, c.lanes(t), 1)
	assert.Equal(t, c.open(t, "b"), c.lanes(t)[0].Head.String())
}
