package jobs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

func TestHeartbeatsExtendTheirOwnLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	list := w.claim("w", 4, "a")
	require.NoError(t, w.Do(t.Context(), jobs.Writes{Cancel: []uuid.UUID{list[2].ID}}))
	require.NoError(t, w.complete(holder(list[3])))
	results, err := w.Store.Heartbeat(t.Context(), []jobs.Beat{
		{Holder: holder(list[0]), Lease: time.Minute},
		{Holder: jobs.Holder{JobID: list[1].ID, WorkerID: "somebody else"}},
		{Holder: holder(list[2])},
		{Holder: holder(list[3])},
		{Holder: jobs.Holder{JobID: uuid.New(), WorkerID: "w"}},
		{Holder: jobs.Holder{JobID: list[1].ID, WorkerID: "w", Token: 7}},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	assert.InDelta(t, 60, results[0].LockExpiresAt.Sub(list[0].LockedAt).Seconds(), 30)
	assert.True(t, results[0].LockExpiresAt.After(list[0].LockExpiresAt))
	require.ErrorIs(t, results[1].Err, jobs.ErrLeaseLost)
	assert.ErrorContains(t, results[1].Err, `worker "w"`)
	require.ErrorIs(t, results[2].Err, jobs.ErrFinished)
	assert.True(t, results[2].Cancelled)
	assert.ErrorContains(t, results[2].Err, "CANCELLED")
	require.ErrorIs(t, results[3].Err, jobs.ErrFinished)
	assert.False(t, results[3].Cancelled)
	require.ErrorIs(t, results[4].Err, jobs.ErrNotFound)
	require.ErrorIs(t, results[5].Err, jobs.ErrLeaseLost, "the token counts when it is given")

	_, err = w.Store.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(list[0]), Lease: time.Millisecond}})
	require.ErrorIs(t, err, jobs.ErrInvalid)
}

func TestAHeartbeatWaitsForAJobThatIsLockedForAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	list := w.claim("w", 2, "a")
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE`, list[0].ID)
	require.NoError(t, err)
	done := make(chan []jobs.BeatResult, 1)
	go func() {
		results, err := w.Store.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(list[0])}, {Holder: holder(list[1])}})
		assert.NoError(t, err)
		done <- results
	}()
	// The other job is extended meanwhile, and not held.
	require.Eventually(t, func() bool {
		var waiting bool
		err := w.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&waiting)
		return err == nil && waiting
	}, patience, 5*time.Millisecond)
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE NOWAIT`, list[1].ID)
	require.NoError(t, err, "what waits holds nothing")
	require.NoError(t, tx.Rollback(t.Context()))
	for _, r := range <-done {
		require.NoError(t, r.Err)
		assert.False(t, r.LockExpiresAt.IsZero())
	}
}

func TestAnExpiredLeaseGoesToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a", Retries: 1})
	first := w.claim("w1", 1, "a")[0]
	w.sweep()
	assert.Equal(t, jobs.Locked, w.status(ids[0]), "a lease that is not over is nobody's business")
	w.expire(ids[0])
	w.sweep()
	assert.Equal(t, jobs.Unlocked, w.status(ids[0]))
	second := w.claim("w2", 1, "a")[0]
	assert.Equal(t, first.Attempt, second.Attempt, "an expired lease costs no attempt")
	assert.Equal(t, first.RetriesRemaining, second.RetriesRemaining)
	assert.Equal(t, first.Token+1, second.Token)
	require.ErrorIs(t, w.complete(holder(first)), jobs.ErrLeaseLost)
	require.ErrorIs(t, w.complete(jobs.Holder{JobID: ids[0], WorkerID: "w1"}), jobs.ErrLeaseLost)
	require.NoError(t, w.complete(holder(second)))
	require.NoError(t, w.complete(holder(second)), "the same again is fine")
	require.ErrorIs(t, w.complete(holder(first)), jobs.ErrFinished)
}

func TestALateCompletionIsAcceptedOnceWhileNobodyElseHasTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a"})
	job := w.claim("w1", 1, "a")[0]
	w.expire(ids[0])
	w.sweep()
	require.ErrorIs(t, w.complete(jobs.Holder{JobID: ids[0], WorkerID: "w2"}), jobs.ErrLeaseLost)
	require.NoError(t, w.complete(holder(job)))
	assert.Equal(t, jobs.Completed, w.status(ids[0]))
	require.NoError(t, w.complete(holder(job)))
	assert.Empty(t, w.claim("w2", 1, "a"))
	w.sweep()
	assert.Equal(t, jobs.Completed, w.status(ids[0]))
}

func TestAFailedAttemptIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a", Retries: 1})
	first := w.claim("w", 1, "a")[0]
	fail := jobs.Failure{Holder: holder(first), Retryable: true, Message: "no"}
	require.NoError(t, w.Fail(t.Context(), fail))
	require.NoError(t, w.Fail(t.Context(), fail), "the same again changes nothing")
	require.ErrorIs(t, w.complete(holder(first)), jobs.ErrLeaseLost, "that attempt is over")
	second := w.claim("w", 1, "a")[0]
	assert.Equal(t, 2, second.Attempt)
	assert.Equal(t, 0, second.RetriesRemaining)
	require.ErrorIs(t, w.Fail(t.Context(), fail), jobs.ErrLeaseLost, "by its token a late repetition is told from the second attempt")
	fail.Holder = holder(second)
	require.NoError(t, w.Fail(t.Context(), fail))
	assert.Equal(t, jobs.Failed, w.status(ids[0]))
	require.NoError(t, w.Fail(t.Context(), fail))
	require.ErrorIs(t, w.complete(holder(second)), jobs.ErrFinished)
}

func TestTooManyExpiredLeasesAreQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a", Retries: 5})
	for i := range jobs.MaxExpired + 1 {
		require.Equal(t, jobs.Unlocked, w.status(ids[0]), "after %d", i)
		require.Len(t, w.claim("w", 1, "a"), 1)
		w.expire(ids[0])
		w.sweep()
	}
	assert.Equal(t, jobs.Failed, w.status(ids[0]))
}

func TestSeveralSweepersAndTheDeathOfOne(t *testing.T) {
	t.Parallel()
	one := newWorld(t)
	two := worldOn(t, one.dsn)
	const n = 600
	specs := make([]jobstest.Spec, n)
	for i := range specs {
		specs[i].JobType = "a"
	}
	ids := one.begin(specs...)
	require.Len(t, one.claim("w", n, "a"), n)
	one.expire(ids...)
	// The first sweeper dies between the two halves of its work: it has told of nothing.
	dead, cancel := context.WithCancel(t.Context())
	reporter := reporterFunc(func(ctx context.Context, list []jobs.Expired) error {
		cancel()
		return one.JobsExpired(ctx, list)
	})
	_, err := jobs.NewSweeper(one.Store, reporter).Sweep(dead)
	require.ErrorIs(t, err, context.Canceled)
	var wg sync.WaitGroup
	for _, w := range []*world{one, two} {
		wg.Go(func() {
			_, err := jobs.NewSweeper(w.Store, w.Shell).Sweep(t.Context())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	var unlocked, once int
	require.NoError(t, one.Pool.QueryRow(t.Context(),
		`SELECT count(*) FILTER (WHERE status = 'UNLOCKED'), count(*) FILTER (WHERE expired = 1) FROM jobs`).Scan(&unlocked, &once))
	assert.Equal(t, n, unlocked)
	assert.Equal(t, n, once, "each expiry counts once")
}

type reporterFunc func(ctx context.Context, list []jobs.Expired) error

func (f reporterFunc) JobsExpired(ctx context.Context, list []jobs.Expired) error {
	return f(ctx, list)
}

func TestTheSweeperWakesWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a"})
	_, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "killed", Types: []string{"a"}, Max: 1, Lease: time.Second})
	require.NoError(t, err)
	run(t, jobs.NewSweeper(w.Store, w.Shell).Run)
	list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "next", Types: []string{"a"}, Max: 1, Wait: jobs.WaitMax})
	require.NoError(t, err)
	assert.Equal(t, ids, idsOf(list))
}

func TestASweepGoesPastWhatCannotBeHandedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(make300("a")...)
	require.Len(t, w.claim("w", 300, "a"), 300)
	w.expire(ids...)
	calls := 0
	_, err := jobs.NewSweeper(w.Store, reporterFunc(func(ctx context.Context, list []jobs.Expired) error {
		calls++
		if calls == 1 {
			return assert.AnError
		}
		return w.JobsExpired(ctx, list)
	})).Sweep(t.Context())
	require.ErrorIs(t, err, assert.AnError)
	assert.Equal(t, 2, calls)
	w.sweep()
	assert.Len(t, w.claim("w", 300, "a"), 300)
}

func make300(jobType string) []jobstest.Spec {
	specs := make([]jobstest.Spec, 300)
	for i := range specs {
		specs[i].JobType = jobType
	}
	return specs
}

func TestReleasedJobsCanBeClaimedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	list := w.claim("w", 2, "a")
	require.NoError(t, w.Store.Release(t.Context(), []jobs.Holder{holder(list[0]), {JobID: list[1].ID, WorkerID: "not its holder"}}))
	again := w.claim("w2", 2, "a")
	require.Len(t, again, 1)
	assert.Equal(t, list[0].ID, again[0].ID)
	assert.Equal(t, list[0].Token+1, again[0].Token)
	assert.Equal(t, list[0].Attempt, again[0].Attempt)
	require.ErrorIs(t, w.complete(holder(list[0])), jobs.ErrLeaseLost)
}

func TestJobsOfASuspendedInstanceAreNotClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a", RunAt: time.Now().Add(-time.Minute)}, jobstest.Spec{JobType: "a", Retries: 1})
	held := w.claim("w", 2, "a")
	require.NoError(t, w.Store.Release(t.Context(), []jobs.Holder{holder(held[0])}))
	require.NoError(t, w.Do(t.Context(), jobs.Writes{Hold: ids}))
	assert.Empty(t, w.claim("w", 2, "a"))
	// What is held is finished, or comes back and stays.
	w.expire(ids[1])
	w.sweep()
	assert.Empty(t, w.claim("w", 2, "a"))
	run(t, w.Store.Run)
	got := make(chan []jobs.Job, 1)
	go func() {
		list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: jobs.WaitMax})
		assert.NoError(t, err)
		got <- list
	}()
	require.NoError(t, w.Do(t.Context(), jobs.Writes{Release: ids}))
	assert.Equal(t, ids[0], (<-got)[0].ID)
}

func TestACancelledJobIsNobodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	job := w.claim("w", 1, "a")[0]
	require.NoError(t, w.Do(t.Context(), jobs.Writes{Cancel: append(ids, uuid.New())}))
	err := w.complete(holder(job))
	require.ErrorIs(t, err, jobs.ErrFinished)
	require.ErrorContains(t, err, "CANCELLED")
	require.ErrorIs(t, w.Fail(t.Context(), jobs.Failure{Holder: holder(job), Retryable: true}), jobs.ErrFinished)
	assert.Empty(t, w.claim("w", 2, "a"))
	require.ErrorIs(t, w.complete(jobs.Holder{JobID: uuid.New(), WorkerID: "w"}), jobs.ErrNotFound)
}
