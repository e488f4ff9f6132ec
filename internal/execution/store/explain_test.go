package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

func (b *bench) situation(id string) execution.Situation {
	b.t.Helper()
	s, err := b.Situation(b.t.Context(), id)
	require.NoError(b.t, err)
	return s
}

func TestSituation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyed := func(r *topics.Request) { r.ConcurrencyKey = "k" }
	large := func(r *topics.Request) { r.Requirements.Slots = 3 }
	ids := b.submit(request(keyed), request(large), request(keyed), request(), request(func(r *topics.Request) { r.ResourceClass = "gpu" }))
	assert.Equal(t, execution.Requested, b.situation(ids[0]).Execution.State)
	b.queue(ids...)

	s := b.situation(ids[3])
	assert.Equal(t, execution.Queued, s.Execution.State)
	assert.Zero(t, s.Workers)
	assert.Equal(t, 2, s.Ahead, "one with a key that is not its turn is not ahead")
	assert.Equal(t, execution.Neighbour{ID: ids[0], Slots: 1}, s.Next)

	s = b.situation(ids[2])
	assert.Equal(t, 1, s.Predecessors)
	assert.Equal(t, execution.Neighbour{ID: ids[0], State: execution.Queued}, s.Predecessor)

	s = b.situation(ids[4])
	assert.Zero(t, s.Ahead, "classes do not wait for each other")

	b.announce(3)
	b.admit(0)
	s = b.situation(ids[3])
	assert.Equal(t, 1, s.Workers)
	assert.Equal(t, 3, s.Slots)
	assert.Equal(t, 3, s.Largest)
	assert.Equal(t, []string{"process"}, s.Executors)
	assert.Equal(t, 1, s.Used)
	assert.Equal(t, 1, s.Ahead)
	assert.Equal(t, execution.Neighbour{ID: ids[1], Slots: 3}, s.Next)
	assert.Equal(t, execution.WaitCapacity, s.Explain().Waits[0].Code)
	assert.Equal(t, execution.Scheduled, b.situation(ids[2]).Predecessor.State)

	for _, id := range []string{"nope", "00000000-0000-7000-8000-000000000000"} {
		_, err := b.Situation(t.Context(), id)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}
