package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

// waits is a claim that waits.
type waits struct {
	t     *testing.T
	got   chan []jobs.Job
	leave context.CancelFunc
}

// wait has a claim wait until nothing is looked for any more.
func (w *world) wait(r jobs.ClaimRequest) *waits {
	w.t.Helper()
	if r.Wait == 0 {
		r.Wait = jobs.WaitMax
	}
	r.Max = max(r.Max, 1)
	ctx, cancel := context.WithCancel(w.t.Context())
	c := &waits{w.t, make(chan []jobs.Job, 1), cancel}
	before := w.Store.Waiting()
	go func() {
		defer cancel()
		list, err := w.Store.Claim(ctx, r)
		if !errors.Is(err, context.Canceled) {
			assert.NoError(w.t, err)
		}
		c.got <- list
	}()
	require.Eventually(w.t, func() bool { return w.Store.Waiting() == before+1 }, patience, time.Millisecond)
	return c
}

func (c *waits) answer() []jobs.Job {
	c.t.Helper()
	select {
	case list := <-c.got:
		return list
	case <-time.After(patience):
		require.Fail(c.t, "the claim has no answer")
		return nil
	}
}

// quietWorld is one whose claims look for nothing on their own, with a count of the jobs
// that were handed.
func quietWorld(t *testing.T, change ...func(*jobs.Config)) (*world, func() int) {
	t.Helper()
	reg := prometheus.NewRegistry()
	w := newWorld(t, append(change, func(c *jobs.Config) { c.Poll, c.Metrics = time.Hour, reg })...)
	return w, func() int { return int(counted(t, reg, "millrace_jobs_handed_total")) }
}

func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "there is no such metric", name)
	return 0
}

func TestAJobBeginsInTheHandsOfAClaimThatWaits(t *testing.T) {
	t.Parallel()
	w, handed := quietWorld(t)
	first := w.wait(jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a", "b"}, Max: 2, Lease: 90 * time.Second})
	second := w.wait(jobs.ClaimRequest{WorkerID: "w2", Types: []string{"a"}})
	ids := w.begin(
		jobstest.Spec{JobType: "a", Retries: 2, Variables: json.RawMessage(`{"n": 9007199254740993}`)},
		jobstest.Spec{JobType: "b", Variables: json.RawMessage(`{"n": 1}`), Input: json.RawMessage(`{"only": true}`)},
		jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"},
	)
	list := first.answer()
	require.Equal(t, ids[:2], idsOf(list), "who came first has as many as it asked for")
	assert.Equal(t, ids[2:3], idsOf(second.answer()))
	assert.Equal(t, 3, handed())
	a, b := list[0], list[1]
	assert.Equal(t, "w1", a.WorkerID)
	assert.Equal(t, int64(1), a.Token)
	assert.Equal(t, 2, a.RetriesRemaining)
	assert.JSONEq(t, `{"n": 9007199254740993}`, string(a.Variables))
	assert.JSONEq(t, `{"only": true}`, string(b.Variables))
	assert.InDelta(t, 90, a.LockExpiresAt.Sub(a.LockedAt).Seconds(), 1)

	stored, err := w.Store.Reader().Get(t.Context(), a.ID)
	require.NoError(t, err)
	a.Variables, stored.Variables = nil, nil
	assert.Equal(t, a, stored.Job, "it is as if it had been claimed")
	require.NoError(t, w.complete(holder(a)))
	assert.Equal(t, ids[3:], idsOf(w.claim("w3", 5, "a")), "what nobody waited for is claimed")
	w.expire(b.ID)
	w.sweep()
	again := w.claim("w3", 5, "b")
	require.Len(t, again, 1)
	assert.Equal(t, int64(2), again[0].Token)
	assert.ErrorIs(t, w.complete(holder(b)), jobs.ErrLeaseLost)
}

func TestWhatIsNotHanded(t *testing.T) {
	t.Parallel()
	w, handed := quietWorld(t)
	run(t, w.Store.Run)
	instance := uuid.Must(uuid.NewV7())
	id := jobs.ID(instance, 1)
	spec := jobs.New{InstanceID: instance, Activity: 1, Step: 1, StepID: "step", JobType: "a", Priority: 3, Attempt: 1, Variables: json.RawMessage(`{}`)}

	c := w.wait(jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}})
	w.begin(jobstest.Spec{JobType: "a", RunAt: time.Now().Add(time.Hour)})
	require.NoError(t, w.Do(t.Context(), jobs.Writes{Insert: []jobs.New{spec}, Cancel: []uuid.UUID{id}}))
	assert.Equal(t, jobs.Cancelled, w.status(id), "neither what is not due, nor what has ended again")

	// A limit that this process has not heard of: others count then.
	w.exec(`INSERT INTO wf_job_types (job_type, max_running) VALUES ('a', 1)`)
	ids := w.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	list := c.answer()
	require.Len(t, list, 1)
	assert.Contains(t, ids, list[0].ID)
	limits, err := w.Store.Limits(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, 1, limits.Running, "it was claimed under the limit")
	assert.Zero(t, handed())
}

// What a transaction was to give away is as it was when it is not committed.
func TestAHandingThatIsAbandoned(t *testing.T) {
	t.Parallel()
	w, handed := quietWorld(t)
	begin := func() jobs.Queued { // a transaction that is never sent
		q, err := w.Store.Queue(&pgx.Batch{}, jobs.Writes{Handing: true, Insert: []jobs.New{{
			InstanceID: uuid.Must(uuid.NewV7()), Activity: 1, Step: 1, StepID: "step", JobType: "a", Priority: 3, Attempt: 1,
		}}})
		require.NoError(t, err)
		return q
	}
	stays := w.wait(jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a"}})
	behind := w.wait(jobs.ClaimRequest{WorkerID: "w2", Types: []string{"a"}})
	q := begin()
	assert.Equal(t, 1, w.Store.Waiting(), "it is set aside")
	w.Store.Abandoned(q)
	require.Eventually(t, func() bool { return w.Store.Waiting() == 2 }, patience, time.Millisecond)
	ids := w.begin(jobstest.Spec{JobType: "a"})
	assert.Equal(t, ids, idsOf(stays.answer()), "and keeps its place")
	assert.Equal(t, 1, handed())

	q = begin()
	behind.leave()
	assert.Empty(t, behind.answer(), "nobody has to stay for the end")
	w.Store.Abandoned(q)

	ends := w.wait(jobs.ClaimRequest{WorkerID: "w3", Types: []string{"a"}, Wait: 100 * time.Millisecond})
	w.Store.Abandoned(begin())
	assert.Empty(t, ends.answer(), "its wait ends when it was to")

	late := w.wait(jobs.ClaimRequest{WorkerID: "w4", Types: []string{"a"}})
	q = begin()
	w.Store.Close()
	w.Store.Abandoned(q)
	assert.Empty(t, late.answer(), "a store that is closed answers it")
}

// A transaction of which nothing was heard may have put jobs into hands that do not know
// of it.
func TestAHandingInDoubt(t *testing.T) {
	t.Parallel()
	w, handed := quietWorld(t)
	put := func() (jobs.Queued, uuid.UUID) {
		instance := uuid.Must(uuid.NewV7())
		var b pgx.Batch
		b.Queue(`INSERT INTO wf_instances (id, definition_id, definition_version, status, version, variables, state, started_at, updated_at)
			VALUES ($1, 'jobstest', 1, 'ACTIVE', 1, '{}', '{}', now(), now())`, instance)
		q, err := w.Store.Queue(&b, jobs.Writes{Handing: true, Insert: []jobs.New{{
			InstanceID: instance, Activity: 1, Step: 1, StepID: "step", JobType: "a", Priority: 3, Attempt: 1,
		}}})
		require.NoError(t, err)
		for _, query := range b.QueuedQueries { // its answer is lost
			query.Fn = nil
		}
		require.NoError(t, w.Pool.SendBatch(t.Context(), &b).Close())
		require.Equal(t, jobs.Locked, w.status(jobs.ID(instance, 1)))
		return q, jobs.ID(instance, 1)
	}
	c := w.wait(jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a"}})
	q, id := put()
	w.Store.Committed(q) // which is known in the end
	list := c.answer()
	require.Equal(t, []uuid.UUID{id}, idsOf(list), "it comes back, and to whoever waits")
	assert.Equal(t, int64(2), list[0].Token)

	c = w.wait(jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a"}})
	q, id = put()
	w.Store.Abandoned(q)
	w.Store.Committed(jobs.Queued{}, q) // a later attempt has found it done
	assert.Equal(t, []uuid.UUID{id}, idsOf(c.answer()))
	assert.Zero(t, handed())

	c = w.wait(jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a"}})
	q, id = put()
	c.leave() // its caller goes before the commit is known
	assert.Empty(t, c.answer())
	w.Store.Committed(q)
	require.Eventually(t, func() bool { return w.status(id) == jobs.Unlocked }, patience, time.Millisecond)
}

// A claim need not look for what the one before it has not found; and is told all the same.
func TestWhatIsKnownNotToBeThere(t *testing.T) {
	t.Parallel()
	one, two := newListeners(t)
	for range 10 {
		c := two.wait(jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}})
		ids := one.begin(jobstest.Spec{JobType: "a"})
		assert.Equal(t, ids, idsOf(c.answer()), "from another process, while it waits")

		ids = one.begin(jobstest.Spec{JobType: "a"})
		assert.Equal(t, ids, idsOf(one.claim("w", 1, "a")), "a claim that does not wait looks")

		c = two.wait(jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}})
		instance := uuid.Must(uuid.NewV7())
		id := one.begin(jobstest.Spec{JobType: "a", Instance: instance, RunAt: time.Now().Add(time.Hour)})[0]
		one.exec(`UPDATE jobs SET run_at = now() WHERE id = $1`, id)
		one.Signals.Wake("jobs/a")
		assert.Equal(t, []uuid.UUID{id}, idsOf(c.answer()))
	}
}

// Nobody hears of a row that is written behind everybody's back; the poll finds it.
func TestThePollFindsWhatNobodyHasTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *jobs.Config) { c.Poll = 20 * time.Millisecond })
	run(t, w.Store.Run)
	for range 5 {
		id := w.begin(jobstest.Spec{JobType: "a", RunAt: time.Now().Add(time.Hour)})[0]
		c := w.wait(jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}})
		w.exec(`UPDATE jobs SET run_at = now() WHERE id = $1`, id)
		assert.Equal(t, []uuid.UUID{id}, idsOf(c.answer()))
	}
}
