package store_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/topics"
)

func (b *bench) situation(id string, terms ...store.Terms) execution.Situation {
	b.t.Helper()
	// As if a coordinator were at work.
	_, err := b.pool.Exec(b.t.Context(), `INSERT INTO leases (name, owner, token, acquired_at, expires_at)
		SELECT 'admitter:' || resource_class, 'test', 1, clock_timestamp(), clock_timestamp() + interval '1 hour'
		FROM executions WHERE id = $1::text::uuid ON CONFLICT DO NOTHING`, id)
	require.NoError(b.t, err)
	s, err := b.Situation(b.t.Context(), id, append(terms, store.Terms{})[0])
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
	assert.Equal(t, 2, s.Ahead.Count(), "one with a key that is not its turn is not ahead")
	assert.Equal(t, ids[0], s.Next.ID)
	assert.Equal(t, topics.Requirements{Slots: 1}, s.Next.Needs)

	s = b.situation(ids[2])
	assert.Equal(t, 1, s.Predecessors)
	assert.Equal(t, execution.Neighbour{ID: ids[0], State: execution.Queued}, s.Predecessor)

	s = b.situation(ids[4])
	assert.Zero(t, s.Ahead.Count(), "classes do not wait for each other")

	b.announce(3)
	b.admit(0)
	s = b.situation(ids[3])
	assert.Equal(t, 1, s.Workers)
	assert.Equal(t, 3, s.Total.Slots)
	assert.Equal(t, 3, s.Largest.Slots)
	assert.Equal(t, []string{"process"}, s.Executors)
	assert.Equal(t, 1, s.Used.Slots)
	assert.Equal(t, 1, s.Ahead.Count())
	assert.Equal(t, ids[1], s.Next.ID)
	assert.Equal(t, topics.Requirements{Slots: 3}, s.Next.Needs)
	assert.Equal(t, execution.WaitReserved, s.Explain().Waits[0].Code)
	assert.Equal(t, execution.Scheduled, b.situation(ids[2]).Predecessor.State)

	for _, id := range []string{"nope", "00000000-0000-7000-8000-000000000000"} {
		_, err := b.Situation(t.Context(), id, store.Terms{})
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

func TestSituationTellsOfHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request(func(r *topics.Request) { r.User, r.Tenant = "ada o'hara", "acme" }), request())
	b.queue(ids...)
	kept := holds.New(b.pool, func() {}, slog.New(slog.DiscardHandler))
	for _, target := range []holds.Target{
		{Scope: holds.User, Tenant: "acme", User: "ada o'hara"}, {Scope: holds.Class, ResourceClass: "gpu"}, {Scope: holds.All},
	} {
		_, _, err := kept.Place(t.Context(), target, "ann", "maintenance")
		require.NoError(t, err)
	}
	s := b.situation(ids[0])
	require.Len(t, s.Holds, 2)
	assert.Equal(t, "everything", s.Holds[0].What)
	assert.Equal(t, "millrace queue resume --all", s.Holds[0].Resume)
	assert.Equal(t, `the user "ada o'hara" of the tenant "acme"`, s.Holds[1].What)
	assert.Equal(t, `millrace queue resume --user 'ada o'\''hara' --tenant acme`, s.Holds[1].Resume)
	assert.Equal(t, "ann", s.Holds[1].By)
	assert.Equal(t, "maintenance", s.Holds[1].Reason)
	assert.False(t, s.Holds[1].Since.IsZero())
	assert.Equal(t, execution.WaitHold, s.Explain().Waits[0].Code)
	assert.Len(t, b.situation(ids[1]).Holds, 1)
}

func TestSituationTellsOfAdmitters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(request())[0]
	b.queue(id)
	b.announce(1)
	read := func() execution.Situation {
		s, err := b.Situation(t.Context(), id, store.Terms{})
		require.NoError(t, err)
		return s
	}
	assert.Equal(t, execution.Admitter{Absent: true}, read().Admitter, "nobody has ever admitted anything")
	assert.Equal(t, []execution.WaitCode{execution.WaitNoAdmitter}, codes(read().Explain()))

	leases := lease.NewManager(b.pool, "host-1", time.Minute, slog.New(slog.DiscardHandler))
	held, err := leases.Acquire(t.Context(), store.AdmitterLease("default"))
	require.NoError(t, err)
	s := read()
	assert.False(t, s.Admitter.Absent)
	assert.Equal(t, leases.Owner(), s.Admitter.Last)
	assert.Equal(t, []execution.WaitCode{execution.WaitAdmission}, codes(s.Explain()))
	require.NoError(t, held.Release(t.Context()))
	s = read()
	assert.True(t, s.Admitter.Absent)
	assert.WithinDuration(t, s.Now, s.Admitter.Until, time.Minute)
	assert.Equal(t, execution.WaitNoAdmitter, s.Explain().Waits[0].Code)
}
