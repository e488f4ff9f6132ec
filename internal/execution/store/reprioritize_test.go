package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

func TestReprioritizeChangesWhoGoesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request(), request(), request())
	b.queue(ids[:2]...)
	last := ids[2]
	_, err := b.Reprioritize(t.Context(), last, 4, "ann", "")
	require.NoError(t, err, "one that no coordinator has seen yet has a priority too")
	b.queue(last)
	e, err := b.Reprioritize(t.Context(), last, 5, "ann", "the customer waits")
	require.NoError(t, err)
	assert.Equal(t, 5, e.Request.Priority)
	assert.Equal(t, e.Rank, b.get(last).Rank)

	_, err = b.Reprioritize(t.Context(), last, 5, "bob", "")
	require.NoError(t, err)
	assert.Equal(t, []string{"requested", "reprioritized", "queued", "reprioritized"}, b.history(last), "saying it again changes nothing")

	b.announce(1)
	b.admit(0)
	claimed := b.claim(1)
	require.Len(t, claimed, 1)
	assert.Equal(t, last, claimed[0].ID)
	assert.Equal(t, 5, claimed[0].Request.Priority, "the worker reads the priority that counts")

	e, err = b.Reprioritize(t.Context(), last, 1, "ann", "")
	require.ErrorIs(t, err, execution.ErrAdmitted)
	assert.Equal(t, execution.Running, e.State, "the caller is told where it stands")
	for _, id := range []string{"nope", "00000000-0000-7000-8000-000000000000"} {
		_, err = b.Reprioritize(t.Context(), id, 1, "ann", "")
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

// Whoever comes first, the other one sees what it did: there is no execution that
// is admitted with one priority and recorded with another.
func TestReprioritizeAndAdmissionAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var reqs []topics.Request
	for range 20 {
		reqs = append(reqs, request())
	}
	ids := b.submit(reqs...)
	b.queue(ids...)
	b.announce(len(ids))
	var callers sync.WaitGroup
	callers.Go(func() {
		for range 4 {
			_, err := b.Admit(t.Context(), store.Admission{Class: "default", Admitter: "test", Max: 5, Fence: unfenced})
			assert.NoError(t, err)
		}
	})
	for _, id := range ids {
		callers.Go(func() {
			if _, err := b.Reprioritize(t.Context(), id, 5, "ann", ""); err != nil {
				assert.ErrorIs(t, err, execution.ErrAdmitted)
			}
		})
	}
	callers.Wait()
	for _, id := range ids {
		history := b.history(id)
		e := b.get(id)
		changed := len(history) > 2 && history[2] == "reprioritized"
		assert.Equal(t, changed, e.Request.Priority == 5, "%v", history)
		if at := len(history) - 1; e.State == execution.Scheduled {
			assert.Equal(t, "task", history[at], "nothing is recorded after the admission")
		}
	}
}

func TestAReprioritizationThatIsNotCommittedIsNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(request())[0]
	b.queue(id)
	before := b.get(id)
	// The row is locked by somebody who changes the execution: the call has to wait,
	// and its caller does not.
	ctx, giveUp := context.WithCancel(t.Context())
	require.NoError(t, postgres.InTx(t.Context(), b.pool, func(tctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(tctx, `SELECT FROM executions WHERE id = $1::text::uuid FOR UPDATE`, id)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { _, err := b.Reprioritize(ctx, id, 5, "ann", ""); done <- err }()
		giveUp()
		require.Error(t, <-done)
		return nil
	}))
	assert.Equal(t, before.Rank, b.get(id).Rank)
	assert.Equal(t, before.Request.Priority, b.get(id).Request.Priority)
	assert.Equal(t, []string{"requested", "queued"}, b.history(id))
}
