package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
)

// What takes its workers down, one after the other, is taken out of circulation. What
// it held is free then, and what its last worker has to say counts no more.
func TestACrashLoopIsQuarantined(t *testing.T) {
	t.Parallel()
	b := setup(t, func(p *execution.Policy) { p.LeaseRetryBackoff, p.MaxDeliveries = 0, 3 })
	b.announce(1)
	ids := b.submit(request(), request())
	b.queue(ids[0])
	for attempt := 1; attempt <= 3; attempt++ {
		b.admit(0)
		claimed := b.claim(1)
		require.Len(t, claimed, 1)
		e := claimed[0]
		require.Equal(t, attempt, e.Attempt)
		b.expire(e.ID)
		n, err := b.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Error(t, b.finish(e, executor.Result{Outcome: executor.Completed}), "the worker was only slow")
		assert.Equal(t, attempt, b.get(e.ID).Deliveries)
		b.balanced()
	}
	e := b.get(ids[0])
	assert.Equal(t, execution.Quarantined, e.State)
	assert.Equal(t, "quarantined", e.Result.Reason)
	assert.Equal(t, []string{
		"requested", "queued", "scheduled", "task", "started", "lease_expired", "requeued",
		"scheduled", "task", "started", "lease_expired", "requeued",
		"scheduled", "task", "started", "lease_expired", "quarantined",
	}, b.history(e.ID))

	b.queue(ids[1])
	b.admit(0)
	next := b.claim(1)
	require.Len(t, next, 1, "its slot is free")
	assert.Equal(t, ids[1], next[0].ID)
	b.balanced()
}
