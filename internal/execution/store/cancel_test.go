package store_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

func (b *bench) cancel(id string) {
	b.t.Helper()
	_, err := b.Cancel(b.t.Context(), id, "ann", "")
	require.NoError(b.t, err)
}

// An admitter that meets somebody who is changing an execution leaves it alone, and
// then finds it cancelled.
func TestACancelUnderWayIsNotOvertaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(10)
	ids := b.submitN(2)
	b.queue(ids...)
	memory := &store.Memory{}
	remember := func(a *store.Admission) { a.Memory = memory }

	changing := b.lock(ids[0])
	assert.Equal(t, 1, b.admitted(round(remember)).Executions, "the other one")
	require.NoError(t, changing.Rollback(t.Context()))
	b.cancel(ids[0])
	assert.Zero(t, b.admitted(round(remember)).Executions)
	assert.Equal(t, []string{"requested", "queued", "cancelled"}, b.history(ids[0]))
}

// What an admitter remembers of the queue is no reason to admit what was cancelled
// since.
func TestAnAdmitterThatHasReadOnFindsTheCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submitN(3)
	b.queue(ids...)
	memory := &store.Memory{}
	remember := func(a *store.Admission) { a.Memory = memory }

	assert.Equal(t, 1, b.admitted(round(remember)).Executions)
	running := b.claim(1)
	require.Equal(t, ids[0], running[0].ID)
	b.cancel(ids[1])
	require.NoError(t, b.finish(running[0], executor.Result{Outcome: executor.Completed}))
	for range 3 { // it may have to read on first
		b.admitted(round(remember))
	}
	assert.Equal(t, []string{"requested", "queued", "cancelled"}, b.history(ids[1]))
	assert.Equal(t, execution.Scheduled, b.get(ids[2]).State)
}

// Whoever comes first: an execution has a task exactly if it was admitted, and what
// was cancelled before has neither. What was admitted and is cancelled before a worker
// took it is not run: its task is stale.
func TestCancelAgainstAdmission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1000)
	ids := b.submitN(300)
	b.queue(ids...)
	var racing sync.WaitGroup
	start := make(chan struct{})
	for part := range slices.Chunk(ids, 75) {
		part = slices.Clone(part)
		rand.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
		racing.Go(func() {
			<-start
			for _, id := range part {
				if _, err := b.Cancel(t.Context(), id, "ann", ""); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	racing.Go(func() {
		<-start
		memory := &store.Memory{}
		for more := true; more; {
			out, err := b.Admit(t.Context(), round(func(a *store.Admission) { a.Max, a.Memory = 5, memory }))
			if !assert.NoError(t, err) {
				return
			}
			more = out.Executions > 0 || out.More
		}
	})
	close(start)
	racing.Wait()

	admitted := 0
	refs := make([]store.Ref, 0, len(ids))
	for _, id := range ids {
		switch history := b.history(id); len(history) {
		case 3:
			assert.Equal(t, []string{"requested", "queued", "cancelled"}, history)
		default:
			admitted++
			assert.Equal(t, []string{"requested", "queued", "scheduled", "task", "cancelled"}, history)
		}
		refs = append(refs, store.Ref{ID: id, Attempt: 1})
	}
	t.Logf("%d of %d were admitted first", admitted, len(ids))
	assert.Empty(t, b.claim(0, refs...), "the task of what was cancelled is stale")
	var inUse int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT coalesce(sum(queued) + sum(running) + sum(slots), 0)::integer FROM (
		SELECT queued, running, slots FROM admission_ledger UNION ALL SELECT queued, running, slots FROM admission_feed) AS l`).Scan(&inUse))
	assert.Zero(t, inUse, "nothing waits, and nothing is held")
}
