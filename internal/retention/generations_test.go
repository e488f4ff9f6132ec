package retention

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// age makes the newest generation look as if it had begun earlier.
func (b *testBundle) age(hours int) {
	b.t.Helper()
	b.exec(`UPDATE processed_generations SET began_at = began_at - make_interval(hours => $1)`, hours)
}

func TestGenerationsComeAndGo(t *testing.T) {
	t.Parallel()
	const window = 10 // hours
	b := setup(t, Config{Outbox: 30 * day, Inbox: window * day / 24})
	numbers := func() (all []int64) {
		for _, g := range b.status().Generations {
			all = append(all, g.Number)
		}
		return all
	}
	assert.Equal(t, []int64{1}, numbers())
	b.age(window/2 - 1)
	assert.Empty(t, b.keep().Made)
	b.age(1)
	assert.Equal(t, []string{"processed_events_2"}, b.keep().Made)
	assert.Empty(t, b.keep().Made, "the next one has only begun")
	b.age(window / 2)
	assert.Equal(t, []string{"processed_events_3"}, b.keep().Made)
	b.age(window/2 - 1)
	assert.Empty(t, b.keep().Dropped, "what was processed at the end of the first is still in the window")
	b.age(1)
	report := b.keep()
	assert.Equal(t, []string{"processed_events_4"}, report.Made)
	assert.Equal(t, []string{"processed_events_1"}, report.Dropped)
	assert.Equal(t, []int64{2, 3, 4}, numbers())
	assert.Empty(t, b.keep().Dropped)
}

func TestGenerationWaitsForThoseWhoInsert(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Outbox: 30 * day, Inbox: day})
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO processed_events (consumer, source, event_id, session, generation) VALUES ('c', 's', 'e', '', 1)`)
	require.NoError(t, err)
	b.age(24)
	_, err = b.keeper.Keep(t.Context())
	require.ErrorIs(t, err, errInUse)
	assert.Len(t, b.status().Generations, 1)
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, []string{"processed_events_2"}, b.keep().Made)
}
