package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// under queues executions under limits and returns the terms with these limits.
func (b *bench) under(definitions []limits.Definition, ids ...string) store.Terms {
	b.t.Helper()
	set, err := limits.Compile(definitions)
	require.NoError(b.t, err)
	require.NoError(b.t, postgres.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.Queue(ctx, tx, ids, store.Rules{Limits: set})
	}))
	return store.Terms{Config: admission.Config{Limits: set}}
}

func (b *bench) admitUnder(terms store.Terms) store.Admitted {
	b.t.Helper()
	out, err := b.Admit(b.t.Context(), store.Admission{
		Class: "default", Admitter: "test", Cap: terms.Caps["default"], Max: 100, Config: terms.Config, Fence: unfenced,
	})
	require.NoError(b.t, err)
	return out
}

func by(user string) func(*topics.Request) { return func(r *topics.Request) { r.User = user } }

func TestSituationTellsOfLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(20)
	ids := b.submit(request(by("ada")), request(by("ada")), request(by("ada")), request(by("ada")), request(by("bob")))
	terms := b.under([]limits.Definition{
		{Name: "pace", Per: "user", Rate: limits.Rate{Tokens: 1, Per: time.Hour}, Action: limits.Queue},
		{Name: "width", Per: "tenant", Concurrency: 2, Action: limits.Queue},
	}, ids...)
	b.admitUnder(terms)
	assert.Equal(t, execution.Scheduled, b.get(ids[0]).State)
	assert.Equal(t, execution.Scheduled, b.get(ids[4]).State, "a limit of one user is not in the way of another")

	s := b.situation(ids[3], terms)
	require.Len(t, s.Limits, 2)
	pace, width := s.Limits[0], s.Limits[1]
	assert.Equal(t, "pace", pace.Name)
	assert.Equal(t, "default/ada", pace.Key)
	assert.Equal(t, "1/h", pace.Rate)
	assert.Equal(t, 2, pace.Before)
	assert.WithinDuration(t, s.Now.Add(time.Hour), pace.Next, time.Minute)
	assert.Equal(t, pace.Next.Add(2*time.Hour), pace.Turn)
	assert.Equal(t, "width", width.Name)
	assert.Equal(t, 2, width.InUse)
	assert.Equal(t, 2, width.Concurrency)
	assert.Equal(t, 2, width.Before)
	assert.Empty(t, width.Rate)
	assert.Equal(t, execution.WaitLimit, s.Explain().Waits[0].Code)

	assert.Empty(t, b.situation(ids[3], store.Terms{}).Limits, "a limit that is not configured any more is none")
}

func TestSituationTellsOfSharesAndPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(2)
	terms := store.Terms{Config: admission.Config{Weight: func(_, user string) float64 {
		if user == "bob" {
			return 2
		}
		return 1
	}}}
	var reqs []topics.Request
	for range 6 {
		reqs = append(reqs, request(by("ada")))
	}
	first := b.submit(reqs...)
	b.queue(first...)
	b.admitUnder(terms)
	others := b.submit(request(by("bob")), request(by("bob")), request(by("bob")), request(by("bob")), request(by("cyd")))
	b.queue(others...)
	urgent := b.submit(request(by("dan"), func(r *topics.Request) { r.Priority = 5 }))
	b.queue(urgent...)

	s := b.situation(first[3], terms)
	assert.Equal(t, 2, s.Used.Slots)
	assert.Equal(t, 2, s.UserUsed.Slots)
	assert.Equal(t, execution.Ahead{Higher: 1, Own: 1, Others: 5, Rivals: 4}, s.Ahead, "ada holds everything, so all others go first; bob counts twice")
	x := s.Explain()
	assert.Equal(t, []execution.WaitCode{execution.WaitCapacity, execution.WaitShare, execution.WaitBehind}, codes(x))
	assert.Equal(t, 8, x.Position)
	assert.Zero(t, x.StartsAt)

	require.NoError(t, b.RecordRate(t.Context(), "default", 0.5))
	require.NoError(t, b.RecordRate(t.Context(), "default", 2))
	x = b.situation(first[3], terms).Explain()
	assert.Equal(t, "At the rate of the last minutes it starts in about 4s.", x.Outlook)
	_, err := b.pool.Exec(t.Context(), `UPDATE admission_rates SET updated_at = updated_at - interval '1 hour'`)
	require.NoError(t, err)
	assert.Zero(t, b.situation(first[3], terms).Rate, "what was long ago says nothing about the future")
}

func codes(x execution.Explanation) (all []execution.WaitCode) {
	for _, w := range x.Waits {
		all = append(all, w.Code)
	}
	return all
}

// Whatever waits, the head of the queue is first, and nobody who is not in front of an
// execution is counted.
func TestAheadIsTheOrderOfAdmissionForOneUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var reqs []topics.Request
	for i := range 25 {
		reqs = append(reqs, request(func(r *topics.Request) { r.Priority = i%5 + 1 }))
	}
	ids := b.submit(reqs...)
	b.queue(ids...)
	b.announce(1)
	for range ids {
		heads := 0
		place := map[string]int{}
		for _, id := range ids {
			if s := b.situation(id); s.Execution.State == execution.Queued {
				if place[id] = s.Ahead.Count(); place[id] == 0 {
					heads++
					assert.Equal(t, id, s.Next.ID)
				}
			}
		}
		if len(place) == 0 {
			break
		}
		assert.Equal(t, 1, heads)
		b.admit(0)
		for id, ahead := range place {
			if e := b.get(id); e.State == execution.Scheduled {
				assert.Zero(t, ahead, "%s went before its turn", id)
				_, err := b.Cancel(t.Context(), id, "", "")
				require.NoError(t, err)
			}
		}
	}
}

func TestSituationOfWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(4)
	id := b.submit(request(func(r *topics.Request) { r.Requirements.Slots = 5 }))[0]
	b.queue(id)
	s := b.situation(id)
	assert.False(t, s.Servable)
	assert.Equal(t, execution.WaitTooLarge, s.Explain().Waits[0].Code)
	terms := store.Terms{Caps: map[string]admission.Resources{"default": {admission.Slots: 2}}}
	id = b.submit(request(func(r *topics.Request) { r.Requirements.Slots = 3 }))[0]
	b.queue(id)
	assert.Equal(t, execution.WaitTooLarge, b.situation(id, terms).Explain().Waits[0].Code)
	assert.NotEqual(t, execution.WaitTooLarge, b.situation(id).Explain().Waits[0].Code)
}

func TestQueueStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status, err := b.QueueStatus(t.Context(), store.QueueFilter{Users: true})
	require.NoError(t, err)
	assert.Empty(t, status.Classes)
	assert.Empty(t, status.Users)

	var reqs []topics.Request
	for i := range 6 {
		reqs = append(reqs, request(by(fmt.Sprint("user-", i%2)), func(r *topics.Request) { r.Priority = i%3 + 1 }))
	}
	later := time.Now().Add(time.Hour)
	reqs = append(reqs, request(by("late"), func(r *topics.Request) { r.NotBefore = &later }),
		request(func(r *topics.Request) { r.ResourceClass, r.User = "gpu", "ada" }))
	ids := b.submit(reqs...)
	b.queue(ids...)
	read := func(f store.QueueFilter) store.QueueStatus {
		status, err := b.QueueStatus(t.Context(), f)
		require.NoError(t, err)
		return status
	}
	classes := read(store.QueueFilter{}).Classes
	require.Len(t, classes, 2)
	assert.Equal(t, "default", classes[0].Class)
	assert.EqualValues(t, 7, classes[0].Queued)
	assert.Equal(t, [5]int{2, 2, 3, 0, 0}, classes[0].ByPriority)
	assert.Equal(t, b.get(ids[0]).ReadyAt, classes[0].Oldest)
	assert.Positive(t, classes[0].Waited)
	assert.Zero(t, classes[0].Workers)

	b.announce(2)
	b.admit(0)
	b.claim(1)
	class := read(store.QueueFilter{ResourceClass: "default"}).Classes[0]
	assert.EqualValues(t, 5, class.Queued)
	assert.EqualValues(t, 1, class.Scheduled)
	assert.EqualValues(t, 1, class.Running)
	assert.Equal(t, 2, class.Used.Slots)
	assert.Equal(t, 2, class.Total.Slots)
	assert.Equal(t, 1, class.Workers)

	users := read(store.QueueFilter{Users: true}).Users
	require.Len(t, users, 4)
	var queued, running int64
	for _, u := range users {
		queued, running = queued+u.Queued, running+u.Running
	}
	assert.EqualValues(t, 6, queued)
	assert.EqualValues(t, 2, running)
	users = read(store.QueueFilter{Users: true, Tenant: "default", User: "late"}).Users
	require.Len(t, users, 1)
	assert.Equal(t, store.UserStatus{Class: "default", Tenant: "default", User: "late", Queued: 1}, users[0])

	for _, id := range append(ids[:6:6], ids[7]) {
		_, err := b.Cancel(t.Context(), id, "", "")
		require.NoError(t, err)
	}
	class = read(store.QueueFilter{ResourceClass: "default"}).Classes[0]
	assert.EqualValues(t, 1, class.Queued)
	assert.Zero(t, class.Oldest, "one that asked for a later time has not waited yet")
	assert.Zero(t, class.Held)

	kept := holds.New(b.pool, func() {}, slog.New(slog.DiscardHandler))
	for _, target := range []holds.Target{
		{Scope: holds.User, Tenant: "default", User: "late"}, {Scope: holds.Class, ResourceClass: "default"}, {Scope: holds.User, Tenant: "default", User: "x"},
	} {
		_, _, err := kept.Place(t.Context(), target, "", "")
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, read(store.QueueFilter{}).Classes[0].Held, "what is held twice is one")
}

func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	announce := func(id string, ttl time.Duration, classes ...string) {
		require.NoError(t, b.Announce(t.Context(), store.Worker{ID: id, Classes: classes, Executors: []string{"process", "function"}, Slots: 4, MemoryBytes: 8 << 30, GPUs: 1}, ttl))
	}
	announce("a", -time.Second, "default")
	announce("w", time.Minute, "default", "gpu")
	ids := b.submit(request(func(r *topics.Request) {
		r.Requirements = topics.Requirements{CPUMillis: 1500, MemoryBytes: 1 << 30, GPUs: 1}
	}))
	b.queue(ids...)
	b.admit(0)
	require.NoError(t, b.offerAll(t.Context()))
	claimed, err := b.Claim(t.Context(), store.Claim{
		Worker: "w", Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Minute,
		Refs: []store.Ref{{ID: ids[0], Attempt: b.get(ids[0]).Attempt}},
	})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	found, err := b.Workers(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, found, 2)
	w := found[0]
	assert.Equal(t, "w", w.ID, "the live ones come first")
	assert.True(t, w.Alive)
	assert.Equal(t, []string{"default", "gpu"}, w.Classes)
	assert.Equal(t, []string{"function", "process"}, w.Executors)
	assert.Equal(t, topics.Requirements{Slots: 4, MemoryBytes: 8 << 30, GPUs: 1}, w.Total)
	assert.Equal(t, topics.Requirements{Slots: 1, CPUMillis: 1500, MemoryBytes: 1 << 30, GPUs: 1}, w.Used)
	assert.Equal(t, 1, w.Running)
	status, err := b.QueueStatus(t.Context(), store.QueueFilter{ResourceClass: "default"})
	require.NoError(t, err)
	assert.Equal(t, w.Total, status.Classes[0].Total, "the lost one has nothing any more")
	assert.Equal(t, w.Used, status.Classes[0].Used)
	assert.False(t, w.Since.After(w.AnnouncedAt))
	assert.False(t, found[1].Alive)

	announce("w", time.Minute, "default", "gpu")
	again, err := b.Workers(t.Context(), "gpu")
	require.NoError(t, err)
	require.Len(t, again, 1)
	assert.Equal(t, w.Since, again[0].Since, "it has been there all the time")
	assert.True(t, again[0].AnnouncedAt.After(w.AnnouncedAt))
	announce("a", time.Minute, "default")
	again, err = b.Workers(t.Context(), "")
	require.NoError(t, err)
	assert.True(t, again[0].Since.After(found[1].Since), "one that was lost has come anew")

	_, err = b.pool.Exec(t.Context(), `UPDATE workers SET expires_at = clock_timestamp() - interval '25 hours' WHERE id = 'a'`)
	require.NoError(t, err)
	require.NoError(t, b.ForgetWorkers(t.Context()))
	again, err = b.Workers(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, again, 1)
	assert.Equal(t, "w", again[0].ID)
}

// However many there are, the count ends where it says.
func TestAheadIsCountedNoFurther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	first, last := b.submit(request(by("ada"), func(r *topics.Request) { r.Priority = 5 }))[0], b.submit(request(by("bob")))[0]
	b.queue(first, last)
	_, err := b.pool.Exec(t.Context(), `
		INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, request, state, version, attempt,
			ready_at, rank, requested_at, queued_at, flow, waits)
		SELECT gen_random_uuid(), tenant, user_name, executor, resource_class, slots, request, state, version, attempt,
			ready_at, rank - interval '1 day', requested_at, queued_at, flow, waits
		FROM executions, generate_series(1, $2) WHERE id = $1::text::uuid`, first, execution.AheadMax+10)
	require.NoError(t, err)
	s := b.situation(last)
	assert.Equal(t, execution.AheadMax, s.Ahead.Higher)
	assert.Equal(t, execution.AheadMax, s.Ahead.Count())
	x := s.Explain()
	assert.Equal(t, execution.AheadMax+1, x.Position, "which stands for any place behind")
	assert.Contains(t, x.Waits[len(x.Waits)-1].Message, "10000 or more executions go before it")
}
