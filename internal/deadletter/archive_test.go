package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/middleware"
)

func TestArchivedLettersAreOutOfSightAndComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1), letter(2), letter(3))
	ids := b.ids(t)
	changed, err := b.store.Archive(t.Context(), deadletter.Selection{IDs: append(ids[:2:2], ids[0], "x")}, "ada", "seen to")
	require.NoError(t, err)
	assert.Equal(t, int64(2), changed.Changed)
	require.Len(t, changed.Outcomes, 3)
	require.ErrorIs(t, changed.Outcomes[0].Err, deadletter.ErrNotFound)
	assert.Equal(t, ids[2:], b.ids(t))
	assert.Len(t, b.all(t, deadletter.Filter{Archived: deadletter.OnlyArchived}), 2)
	assert.Len(t, b.all(t, deadletter.Filter{Archived: deadletter.AnyArchived}), 3)

	// Nothing is done with them.
	require.ErrorIs(t, b.store.Discard(t.Context(), ids[0], "ada", "r"), deadletter.ErrArchived)
	require.ErrorIs(t, b.store.Edit(t.Context(), deadletter.Edit{ID: ids[0], Key: ptr([]byte("x")), After: -1, Reason: "r"}), deadletter.ErrArchived)
	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids[:1], Terms: deadletter.Terms{Force: true}})
	require.NoError(t, err)
	require.ErrorIs(t, result.Outcomes[0].Err, deadletter.ErrArchived)
	estimate, err := b.store.Estimate(t.Context(), deadletter.Order{Filter: deadletter.Filter{Archived: deadletter.AnyArchived}})
	require.NoError(t, err)
	assert.Equal(t, int64(1), estimate.Matched)
	again, err := b.store.Archive(t.Context(), deadletter.Selection{IDs: ids[:1]}, "ada", "r")
	require.NoError(t, err)
	require.ErrorIs(t, again.Outcomes[0].Err, deadletter.ErrArchived)
	_, err = b.store.Archive(t.Context(), deadletter.Selection{IDs: ids}, "ada", "")
	require.Error(t, err, "without a reason")

	restored, err := b.store.Restore(t.Context(), deadletter.Selection{IDs: ids}, "bob", "")
	require.NoError(t, err)
	assert.Equal(t, int64(2), restored.Changed)
	require.ErrorIs(t, restored.Outcomes[2].Err, deadletter.ErrNotArchived)
	assert.Equal(t, ids, b.ids(t))
	l, err := b.store.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, deadletter.Open, l.Status)
	require.Len(t, l.Actions, 2)
	assert.Equal(t, "archive", l.Actions[0].Action)
	assert.Equal(t, "restore", l.Actions[1].Action)
}

func TestArchivingByFilterThatDiesGoesOnWithTheRest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numbered(t, 7)
	b.file(t, letter(100, func(l *middleware.Letter) { l.Consumer = "audit" }))
	killed, chunks := errors.New("killed"), 0
	b.store.SetChunk(2, func() error {
		if chunks++; chunks == 3 {
			return killed
		}
		return nil
	})
	filter := deadletter.Filter{Consumer: "billing"}
	changed, err := b.store.Archive(t.Context(), deadletter.Selection{Filter: &filter}, "ada", "r")
	require.ErrorIs(t, err, killed)
	assert.Equal(t, int64(4), changed.Changed)
	changed, err = b.store.Archive(t.Context(), deadletter.Selection{Filter: &filter}, "ada", "r")
	require.NoError(t, err)
	assert.Equal(t, int64(3), changed.Changed)
	assert.Len(t, b.all(t, deadletter.Filter{}), 1)
	var actions int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM dead_letter_actions WHERE action = 'archive'`).Scan(&actions))
	assert.Equal(t, 7, actions, "one for each")
	changed, err = b.store.Restore(t.Context(), deadletter.Selection{Filter: &deadletter.Filter{}}, "ada", "")
	require.NoError(t, err)
	assert.Equal(t, int64(7), changed.Changed)
}

func TestADeletedLetterHasNothingLeftOfItsRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, _ := b.broken(t)
	require.NoError(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Value: ptr([]byte(mended)), Reason: "r"}))
	_, err := b.store.Delete(t.Context(), []string{id}, "ada", "")
	require.Error(t, err, "without a reason")
	changed, err := b.store.Delete(t.Context(), []string{id}, "ada", "erasure")
	require.NoError(t, err)
	assert.Equal(t, int64(1), changed.Changed)
	l, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, deadletter.Deleted, l.Status)
	assert.Nil(t, l.Record.Key)
	assert.Nil(t, l.Record.Value)
	assert.Empty(t, l.Record.Headers)
	assert.Empty(t, l.Reason+l.Error)
	assert.Empty(t, l.EditLog)
	assert.Equal(t, "delete", l.Actions[len(l.Actions)-1].Action)
	assert.Empty(t, b.all(t, deadletter.Filter{}))
	for _, sel := range []deadletter.Selection{{IDs: []string{id}}} {
		changed, err = b.store.Restore(t.Context(), sel, "ada", "r")
		require.NoError(t, err)
		require.ErrorIs(t, changed.Outcomes[0].Err, deadletter.ErrDeleted)
	}
	changed, err = b.store.Restore(t.Context(), deadletter.Selection{Filter: &deadletter.Filter{}}, "ada", "r")
	require.NoError(t, err)
	assert.Zero(t, changed.Changed)
	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: []string{id}, Terms: deadletter.Terms{Force: true}})
	require.NoError(t, err)
	require.ErrorIs(t, result.Outcomes[0].Err, deadletter.ErrDeleted)

	// The same letter in the topic does not bring it back; a new failure does.
	file := func(later time.Duration) {
		b.file(t, letter(1, func(l *middleware.Letter) {
			l.Original.Value, l.LastFailure = []byte("again"), l.LastFailure.Add(later)
		}))
	}
	file(0)
	assert.Empty(t, b.all(t, deadletter.Filter{}))
	file(time.Hour)
	require.Len(t, b.all(t, deadletter.Filter{}), 1)
	l, err = b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, "again", string(l.Record.Value))
}

func TestRetentionArchivesWhatIsSettledAndRemovesWhatIsArchived(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.SetChunk(2, nil)
	b.numbered(t, 8)
	ids := b.ids(t)
	for i, status := range []string{"RESOLVED", "DISCARDED", "REDRIVEN", "OPEN", "RESOLVED", "RESOLVED"} {
		_, err := b.pool.Exec(t.Context(), `UPDATE dead_letters SET status = $2, last_failed_at = now() - interval '40 days' WHERE id = $1`, ids[i], status)
		require.NoError(t, err)
	}
	// Somebody did something about this one lately.
	_, err := b.pool.Exec(t.Context(), `INSERT INTO dead_letter_actions (dead_letter_id, actor, action) VALUES ($1, 'ada', 'redrive')`, ids[4])
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), `UPDATE dead_letters SET last_failed_at = now() WHERE id = $1`, ids[5])
	require.NoError(t, err)
	h := b.hold(t, "keeper")
	tidy := func(r deadletter.Retention) {
		for more := true; more; {
			more, err = b.store.Tidy(t.Context(), h, r)
			require.NoError(t, err)
		}
	}
	tidy(deadletter.Retention{})
	assert.Len(t, b.ids(t), 8, "zero keeps everything")
	keep := deadletter.Retention{Settled: 30 * 24 * time.Hour, Archived: 90 * 24 * time.Hour}
	tidy(keep)
	assert.ElementsMatch(t, ids[3:], b.ids(t))
	l, err := b.store.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, "retention", l.Actions[0].Actor)

	_, err = b.pool.Exec(t.Context(), `UPDATE dead_letters SET archived_at = now() - interval '91 days' WHERE id = ANY($1)`, ids[:2])
	require.NoError(t, err)
	tidy(keep)
	for i, id := range ids[:3] {
		_, err := b.store.Get(t.Context(), id)
		assert.Equal(t, i < 2, errors.Is(err, deadletter.ErrNotFound), i)
	}
	var actions int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM dead_letter_actions WHERE dead_letter_id = $1`, ids[0]).Scan(&actions))
	assert.Equal(t, 2, actions, "archived and removed")

	_, err = b.pool.Exec(t.Context(), `UPDATE leases SET token = token + 1 WHERE name = 'keeper'`)
	require.NoError(t, err)
	_, err = b.store.Tidy(t.Context(), h, keep)
	require.ErrorIs(t, err, lease.ErrLost)
}

func TestALetterIsResolvedWithThoseItCameFrom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1), letter(2))
	first := b.ids(t)[0]
	redrive := func(id string) {
		result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: []string{id}})
		require.NoError(t, err)
		require.Equal(t, 1, result.Redriven)
	}
	redrive(first)
	b.comesBack(t, b.sent(t)[0], 10)
	second := b.all(t, deadletter.Filter{})[2].ID.String()
	redrive(second)

	resolve := func(consumer string, ids ...string) {
		require.NoError(t, deadletter.Resolve(t.Context(), b.pool, consumer, ids))
	}
	resolve("billing")
	resolve("billing", "no id", "00000000-0000-7000-8000-000000000000")
	resolve("another", second)
	assert.Equal(t, []deadletter.Status{deadletter.Redriven, deadletter.Open, deadletter.Redriven}, statuses(b.all(t, deadletter.Filter{})))
	resolve("billing", second, b.ids(t)[1])
	resolve("billing", second)
	assert.Equal(t, []deadletter.Status{deadletter.Resolved, deadletter.Open, deadletter.Resolved}, statuses(b.all(t, deadletter.Filter{})))
	l, err := b.store.Get(t.Context(), first)
	require.NoError(t, err)
	require.Len(t, l.Actions, 2)
	assert.Equal(t, "resolve", l.Actions[1].Action)
	assert.Equal(t, "consumer billing", l.Actions[1].Actor)
}
