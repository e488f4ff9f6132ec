package deadletter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
)

// The head of a lane is redriven in its lane, and when it fails again it is the
// same letter: it counts as failed again while it is OPEN.
func TestJobCountsHeadsThatFailedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numbered(t, 3)
	ids := b.ids(t)
	_, err := b.pool.Exec(t.Context(), `
		INSERT INTO parked_lanes (consumer, consumer_group, topic_id, topic, partition, key, key_hash, reached, head)
		SELECT consumer, consumer, topic_id, topic, partition, 'k', sha256('k'), "offset", id FROM dead_letters WHERE id = $1`, ids[1])
	require.NoError(t, err)
	h := b.hold(t, "keeper")
	j := b.start(t, deadletter.Order{})
	b.finish(t, h)
	assert.Len(t, b.values(t), 2, "the head does not go through the topic")
	j = b.job(t, j.ID.String())
	assert.EqualValues(t, 3, j.Redriven)
	assert.Zero(t, j.FailedAgain)
	for i, want := range []string{"", deadletter.InLane, ""} {
		l, err := b.store.Get(t.Context(), ids[i])
		require.NoError(t, err)
		assert.Equal(t, want, l.Actions[0].Detail, "the audit says which way a record went")
	}

	_, err = b.pool.Exec(t.Context(), `UPDATE dead_letters SET status = 'OPEN' WHERE id = $1`, ids[1])
	require.NoError(t, err)
	assert.EqualValues(t, 1, b.job(t, j.ID.String()).FailedAgain)
	bad, err := b.store.JobItems(t.Context(), j.ID.String(), true, deadletter.Page{})
	require.NoError(t, err)
	require.Len(t, bad.Items, 1)
	assert.True(t, bad.Items[0].FailedAgain)
	assert.Equal(t, ids[1], bad.Items[0].Again.String())

	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids[1:2]})
	require.NoError(t, err)
	assert.Equal(t, 1, result.Redriven)
	assert.Zero(t, b.job(t, j.ID.String()).FailedAgain)
}
