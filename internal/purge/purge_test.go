package purge

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
)

const (
	day  = 24 * time.Hour
	open = time.Duration(-1)
)

func TestAPurgeErasesAllOfOneUser(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	mine := []string{b.execution("ada", "acme", day), b.execution("ada", "other", 0)}
	others := []string{b.execution("bob", "acme", 100*day), b.execution("adam", "acme", 0)}
	b.letter(mine[0], false)
	b.letter("ada", false)
	theirs := b.letter(others[0], false)
	b.exec(`UPDATE event_log SET subject = 'ada' WHERE "offset" = 5`)
	b.exec(`INSERT INTO event_log ("offset", time, appended_at, partition, topic_no, subject, headers) SELECT n, '1970-01-01Z', now(), 1, 1, 'ada', '\x' FROM generate_series(1, 5000) AS n`)

	r := Request{User: "ada"}
	erased, waiting, err := b.store.Preview(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, Counts{Executions: 2, Workflows: 0, Events: 4 + 5001, Outputs: 2, Outbox: 2, DeadLetters: 2}, erased)
	assert.Zero(t, waiting.sum())
	assert.Equal(t, 4, b.count("executions"), "a preview changes nothing")

	p := b.create(r)
	assert.Equal(t, Running, p.State)
	p = b.work(b.store, p.ID)
	assert.Equal(t, Done, p.State)
	assert.False(t, p.FinishedAt.IsZero())
	assert.Equal(t, 2, p.Rounds, "the last one found nothing")
	assert.Equal(t, Counts{Executions: 2, Events: 4 + 5001, Outputs: 2, Outbox: 2, DeadLetters: 2, Views: 2, Pods: 2}, p.Erased)
	for _, id := range mine {
		assert.Empty(t, b.left(id))
	}
	for _, id := range others {
		assert.Len(t, b.left(id), map[bool]int{true: 11, false: 10}[id == others[0]], "of nobody else")
	}
	assert.Equal(t, 1, b.count("event_log WHERE subject IN ('"+others[0]+"', 'ada')"), "an event that named the user as its subject is gone")
	assert.Equal(t, 1, b.count("dead_letters WHERE status = 'OPEN' AND id = '"+theirs+"'"))
	assert.Equal(t, 2, b.count("dead_letters WHERE status = 'DELETED' AND value IS NULL AND key IS NULL"))

	assert.Zero(t, b.count("purges WHERE user_name IS NOT NULL OR purges::text LIKE '%ada%'"), "the audit names nobody")
	assert.Equal(t, HashOf("ada"), p.UserHash)
	assert.Equal(t, "ann", p.Actor)

	again, fresh, err := b.store.Create(t.Context(), Request{User: "ada", Reason: "again"})
	require.NoError(t, err)
	assert.True(t, fresh)
	assert.NotEqual(t, p.ID, again.ID)
	again = b.work(b.store, again.ID)
	assert.Equal(t, Done, again.State)
	assert.Zero(t, again.Erased.sum())
	list, err := b.store.List(t.Context(), "", 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, again.ID, list[0].ID)
	list, err = b.store.List(t.Context(), again.ID.String(), 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, p.ID, list[0].ID)
}

// One chunk erases so many only, and what it leaves comes with the next.
func TestAPurgeOfManyExecutions(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	b.exec(`INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, request, state, version, requested_at, finished_at, result)
		SELECT md5(n::text)::uuid, 't', CASE WHEN n % 4 = 0 THEN 'bob' ELSE 'ada' END, 'process', 'default', 1, '{}',
			CASE WHEN n % 100 = 1 THEN 'RUNNING' ELSE 'COMPLETED' END, 2, now() - interval '1 minute',
			CASE WHEN n % 100 = 1 THEN NULL ELSE now() END, CASE WHEN n % 100 = 1 THEN NULL ELSE '{}'::jsonb END
		FROM generate_series(0, 3999) AS n`)
	p := b.work(b.store, b.create(Request{User: "ada"}).ID)
	assert.Equal(t, Waiting, p.State)
	assert.Equal(t, Counts{NotEnded: 40}, p.Waiting, "each is counted once")
	assert.Equal(t, Counts{Executions: 2960}, p.Erased)
	assert.Equal(t, 1000, b.count("executions WHERE user_name = 'bob'"))
}

func TestAPurgeOfOneTenantLeavesTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	mine, other := b.execution("ada", "acme", 0), b.execution("ada", "other", 0)
	letter := b.letter("ada", false)
	b.exec(`INSERT INTO event_log ("offset", time, appended_at, partition, topic_no, subject, headers) VALUES (1, now(), now(), 9, 1, 'ada', '\x')`)
	preview, _, err := b.store.Preview(t.Context(), Request{User: "ada", Tenant: "acme"})
	require.NoError(t, err)
	assert.Equal(t, Counts{Executions: 1, Workflows: 0, Events: 2, Outputs: 1, Outbox: 1, DeadLetters: 0}, preview)
	p := b.work(b.store, b.create(Request{User: "ada", Tenant: "acme"}).ID)
	assert.Equal(t, Done, p.State)
	assert.Equal(t, 1, b.count("event_log WHERE subject = 'ada'"), "it does not say which tenant's ada it is about")
	assert.Equal(t, 1, b.count("dead_letters WHERE status = 'OPEN' AND id = '"+letter+"'"))
	assert.Empty(t, b.left(mine))
	assert.Len(t, b.left(other), 10)
}

func TestAPurgeWaitsForWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	running, ended, parked, unsent := b.execution("ada", "t", open), b.execution("ada", "t", 0), b.execution("ada", "t", 0), b.execution("ada", "t", 0)
	head := b.letter(parked, true)
	b.exec(`UPDATE outbox_events SET status = 'PENDING', published_at = NULL WHERE aggregate_id = $1`, unsent)
	created := b.create(Request{User: "ada"})
	p := b.work(b.store, created.ID)
	assert.Equal(t, Waiting, p.State)
	assert.Equal(t, Counts{NotEnded: 1, Parked: 1, Unpublished: 1}, p.Waiting)
	assert.Empty(t, b.left(ended))
	assert.Len(t, b.left(running), 10, "what runs is not touched")
	assert.Len(t, b.left(parked), 11)
	assert.Equal(t, map[string]int{"outbox_events": 1}, b.left(unsent), "what is not published yet will be")
	assert.Empty(t, b.cancelled)

	// Asked for again, and for more, it is the same purge.
	more, fresh, err := b.store.Create(t.Context(), Request{User: "ada", Cancel: true, Reason: "now"})
	require.NoError(t, err)
	assert.False(t, fresh)
	assert.Equal(t, created.ID, more.ID)
	assert.True(t, more.Cancel)
	b.work(b.store, created.ID)
	assert.Equal(t, []string{running}, b.cancelled[:1])

	b.exec(`UPDATE executions SET state = 'CANCELLED', finished_at = now(), result = '{}' WHERE finished_at IS NULL`)
	b.exec(`UPDATE outbox_events SET status = 'PUBLISHED', published_at = now() WHERE status = 'PENDING'`)
	b.exec(`DELETE FROM parked_lanes`)
	b.exec(`UPDATE dead_letters SET status = 'DISCARDED' WHERE id = $1::text::uuid`, head)
	b.exec(`UPDATE purges SET next_at = clock_timestamp()`)
	p = b.work(b.store, created.ID)
	assert.Equal(t, Done, p.State)
	assert.Empty(t, p.Waiting)
	assert.EqualValues(t, 4, p.Erased[Executions])
	for _, id := range []string{running, ended, parked, unsent} {
		assert.Empty(t, b.left(id))
	}
}

// What comes in about executions that are purged, from topics that are read again, is
// erased again, by whoever keeps the store then.
func TestNothingComesBack(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{Remember: 7 * day})
	id := b.execution("ada", "t", 0)
	require.Equal(t, Done, b.work(b.store, b.create(Request{User: "ada"}).ID).State)
	retire := func(s *Store) (erased Counts) {
		b.held(func(ctx context.Context, h *lease.Held) {
			var err error
			erased, err = s.Retire(ctx, h)
			require.NoError(t, err)
		})
		return erased
	}
	retire(b.store)
	b.arrive(id, "ada", "t", time.Now())
	assert.Equal(t, Counts{Events: 2, Views: 1, Pods: 1}, retire(b.store))
	assert.Empty(t, b.left(id))

	b.arrive(id, "ada", "t", time.Now())
	b.exec(`UPDATE purged_executions SET purged_at = now() - interval '2 days'`)
	assert.Zero(t, retire(b.store).sum(), "hourly only what was purged of late")
	assert.EqualValues(t, 4, retire(b.another(Retention{Remember: 7 * day})).sum(), "daily, and at a start, all")
	b.exec(`UPDATE purged_executions SET purged_at = now() - interval '8 days'`)
	retire(b.store)
	assert.Zero(t, b.count("purged_executions"), "no topic can tell of it any more")
}

// A purge that is killed between any two chunks is gone on with by another process,
// and erases the same.
func TestAPurgeGoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	var mine []string
	for range 5 {
		mine = append(mine, b.execution("ada", "t", 0))
	}
	other := b.execution("bob", "t", 0)
	p := b.create(Request{User: "ada"})
	for kills := 0; ; kills++ {
		s := b.another(Retention{})
		survives := 1
		s.between = func() error {
			if survives--; survives < 0 {
				return errKilled
			}
			return nil
		}
		if done := b.work(s, p.ID); done.State == Done {
			break
		}
		require.Less(t, kills, 100)
		now, err := b.store.Get(t.Context(), p.ID.String())
		require.NoError(t, err)
		if now.State == Done {
			break
		}
	}
	p, err := b.store.Get(t.Context(), p.ID.String())
	require.NoError(t, err)
	assert.Equal(t, Counts{Executions: 5, Events: 10, Outputs: 5, Outbox: 5, Views: 5, Pods: 5}, p.Erased)
	for _, id := range mine {
		assert.Empty(t, b.left(id))
	}
	assert.Len(t, b.left(other), 10)
}

// Who has lost the lease erases nothing.
func TestWithoutTheLeaseNothingIsErased(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{Executions: day})
	id := b.execution("ada", "t", 2*day)
	b.create(Request{User: "ada"})
	b.held(func(ctx context.Context, h *lease.Held) {
		b.exec(`UPDATE leases SET token = token + 1 WHERE name = $1`, LeaseName)
		_, err := b.store.Advance(ctx, h)
		require.ErrorIs(t, err, lease.ErrLost)
		_, err = b.store.Retire(ctx, h)
		require.ErrorIs(t, err, lease.ErrLost)
	})
	assert.Len(t, b.left(id), 10)
}

func TestAPurgeCanBeCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	id := b.execution("ada", "t", 0)
	p := b.create(Request{User: "ada"})
	p, err := b.store.End(t.Context(), p.ID.String())
	require.NoError(t, err)
	assert.Equal(t, Cancelled, p.State)
	p, err = b.store.End(t.Context(), p.ID.String())
	require.NoError(t, err, "again is the same")
	assert.Equal(t, Cancelled, b.work(b.store, p.ID).State)
	assert.Len(t, b.left(id), 10)
	assert.Zero(t, b.count("purges WHERE user_name IS NOT NULL"))

	done := b.work(b.store, b.create(Request{User: "bob"}).ID)
	_, err = b.store.End(t.Context(), done.ID.String())
	require.ErrorIs(t, err, ErrOver)
	_, err = b.store.End(t.Context(), uuid.NewString())
	require.ErrorIs(t, err, ErrNotFound)
	_, err = b.store.Get(t.Context(), "nonsense")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestRequestsThatSayTooLittle(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	for _, r := range []Request{{Reason: "r"}, {User: "a\x00", Reason: "r"}, {User: "\xff", Reason: "r"}} {
		_, _, err := b.store.Create(t.Context(), r)
		require.ErrorIs(t, err, ErrInvalid)
	}
	assert.Zero(t, b.count("purges"))
}
