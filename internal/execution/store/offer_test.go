package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

// scheduled submits and admits n executions.
func (b *bench) scheduled(n int) []store.Ref {
	b.t.Helper()
	b.announce(n)
	refs := make([]store.Ref, n)
	for i := range refs {
		id := b.submit(request(func(r *topics.Request) { r.Limits.Start = topics.Duration(time.Hour) }))[0]
		b.queue(id)
		refs[i] = store.Ref{ID: id, Attempt: 1}
	}
	require.Equal(b.t, n, b.admit(0).Executions)
	return refs
}

func (b *bench) offer(refs ...store.Ref) int {
	b.t.Helper()
	n, err := b.Offer(b.t.Context(), refs)
	require.NoError(b.t, err)
	return n
}

// waiting claims what is on offer.
func (b *bench) waiting(slots int) []*execution.Execution {
	b.t.Helper()
	claimed, err := b.Claim(b.t.Context(), store.Claim{
		Worker: "w", Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Minute, Slots: slots,
	})
	require.NoError(b.t, err)
	return claimed
}

func TestOnlyWhatIsOnOfferIsTakenFromTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refs := b.scheduled(3)
	assert.Empty(t, b.waiting(10), "the records are on their way")
	assert.Len(t, b.claim(0, refs[0]), 1, "a record is enough")

	assert.Equal(t, 1, b.offer(refs[1]))
	assert.Zero(t, b.offer(refs[1]), "the record came twice")
	assert.Zero(t, b.offer(refs[0]), "it runs")
	version := b.get(refs[1].ID).Version
	claimed := b.waiting(10)
	require.Len(t, claimed, 1)
	assert.Equal(t, refs[1].ID, claimed[0].ID)
	assert.Equal(t, version+1, claimed[0].Version, "an offer is no change of the execution")
	assert.Equal(t, execution.Scheduled, b.get(refs[2].ID).State)
}

func TestAnOfferEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.scheduled(1)[0]
	assert.Zero(t, b.offer(store.Ref{ID: ref.ID, Attempt: 2}), "an attempt that is not")
	require.Equal(t, 1, b.offer(ref))

	// No worker comes within the start limit.
	_, err := b.pool.Exec(t.Context(), `UPDATE executions SET due_at = clock_timestamp(), scheduled_at = scheduled_at - interval '2 h'`)
	require.NoError(t, err)
	_, err = b.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, execution.Queued, b.get(ref.ID).State)
	assert.Zero(t, b.offer(ref), "it is queued")

	require.Equal(t, 1, b.admit(0).Executions)
	assert.Empty(t, b.waiting(1), "the second attempt goes its own way through the topics")
	assert.Zero(t, b.offer(ref), "the first attempt's record is stale")
	require.Equal(t, 1, b.offer(store.Ref{ID: ref.ID, Attempt: 2}))
	require.Len(t, b.waiting(1), 1)
}

// Who has the row locked may be about to leave it as it is; the record is gone then.
func TestAnOfferWaitsForTheRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refs := b.scheduled(2)
	held := b.lock(refs[0].ID)
	offered := make(chan int)
	go func() {
		n, err := b.Offer(context.WithoutCancel(t.Context()), refs)
		assert.NoError(t, err)
		offered <- n
	}()
	require.Eventually(t, func() bool {
		var waiting bool
		err := b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%offered_at%')`).Scan(&waiting)
		return err == nil && waiting
	}, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, held.Rollback(t.Context()))
	assert.Equal(t, 2, <-offered)
	assert.Len(t, b.waiting(2), 2)
}

func TestTasksGoWhereTheirClassIsRouted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(2)
	b.queue(b.submit(request(), request())...)
	for _, topic := range []topics.Topic{"execution_tasks_gpu", ""} {
		out, err := b.Admit(t.Context(), store.Admission{Class: "default", Admitter: "test", Max: 1, Topic: topic, Fence: unfenced})
		require.NoError(t, err)
		require.Equal(t, 1, out.Executions)
	}
	var written []string
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT array_agg(topic ORDER BY seq) FROM outbox_events WHERE event_type = 'millrace.execution.task.v1'`).Scan(&written))
	assert.Equal(t, []string{"execution_tasks_gpu", "execution_tasks"}, written)
	var events int
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM outbox_events WHERE event_type LIKE '%scheduled%' AND topic = 'execution_events'`).Scan(&events))
	assert.Equal(t, 2, events, "facts stay in the log of everything")
}
