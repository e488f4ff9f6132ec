package jobs_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

func (w *world) limit(l jobs.Limits) {
	w.t.Helper()
	_, err := w.Store.SetLimits(w.t.Context(), l)
	require.NoError(w.t, err)
}

func TestLimitsAreSetListedAndLifted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin(jobstest.Spec{JobType: "mail"}, jobstest.Spec{JobType: "mail"})
	require.Len(t, w.claim("w", 1, "mail"), 1)
	got, err := w.Store.SetLimits(t.Context(), jobs.Limits{JobType: "mail", MaxRunning: 2, Rate: 0.5, UpdatedBy: "ann"})
	require.NoError(t, err)
	assert.Equal(t, 1, got.Running, "what is held already counts")
	assert.Equal(t, 1, got.Burst)
	assert.Equal(t, "ann", got.UpdatedBy)
	all, err := w.Store.AllLimits(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []jobs.Limits{got}, all)
	had, err := w.Store.UnsetLimits(t.Context(), "mail")
	require.NoError(t, err)
	assert.True(t, had)
	had, err = w.Store.UnsetLimits(t.Context(), "mail")
	require.NoError(t, err)
	assert.False(t, had)
	_, err = w.Store.Limits(t.Context(), "mail")
	require.ErrorIs(t, err, jobs.ErrNoLimits)
	for _, bad := range []jobs.Limits{{}, {JobType: "a"}, {JobType: "a", MaxRunning: -1}, {JobType: "a", Burst: 3, MaxRunning: 1}, {JobType: "a\x00", Rate: 1}} {
		_, err := w.Store.SetLimits(t.Context(), bad)
		assert.ErrorIs(t, err, jobs.ErrInvalid, "%+v", bad)
	}
}

func TestNoMoreJobsAreHeldThanTheLimitOverAllProcesses(t *testing.T) {
	t.Parallel()
	const limit, n = 3, 60
	one := newWorld(t)
	two := worldOn(t, one.dsn)
	for _, w := range []*world{one, two} {
		run(t, w.Signals.Run)
		run(t, w.Store.Run)
	}
	one.limit(jobs.Limits{JobType: "a", MaxRunning: limit})
	specs := make([]jobstest.Spec, n)
	for i := range specs {
		specs[i] = jobstest.Spec{JobType: "a", Priority: 1 + i%5}
	}
	one.begin(specs...)
	one.begin(jobstest.Spec{JobType: "free"}, jobstest.Spec{JobType: "free"})
	var running, most, done atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		w := []*world{one, two}[i%2]
		wg.Go(func() {
			for done.Load() < n+2 {
				list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a", "free"}, Max: 4, Wait: 50 * time.Millisecond})
				if !assert.NoError(t, err) {
					return
				}
				for _, j := range list {
					if j.JobType == "free" {
						done.Add(1)
						continue
					}
					now := running.Add(1)
					for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
				}
				for _, j := range list {
					if j.JobType == "free" {
						continue
					}
					running.Add(-1)
					if !assert.NoError(t, w.complete(holder(j))) {
						return
					}
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most.Load(), int64(limit))
	assert.Equal(t, int64(n+2), done.Load())
}

func TestNoMoreJobsAreClaimedThanTheRateAllows(t *testing.T) {
	t.Parallel()
	one := newWorld(t)
	two := worldOn(t, one.dsn)
	for _, w := range []*world{one, two} {
		run(t, w.Signals.Run)
		run(t, w.Store.Run)
	}
	const rate, burst, n = 50, 5, 60
	one.limit(jobs.Limits{JobType: "a", Rate: rate, Burst: burst})
	specs := make([]jobstest.Spec, n)
	for i := range specs {
		specs[i].JobType = "a"
	}
	one.begin(specs...)
	var mu sync.Mutex
	var times []time.Time
	var wg sync.WaitGroup
	for i := range 4 {
		w := []*world{one, two}[i%2]
		wg.Go(func() {
			for {
				list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 10, Wait: time.Second})
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				for _, j := range list {
					times = append(times, j.LockedAt)
				}
				all := len(times) == n
				mu.Unlock()
				if all {
					return
				}
			}
		})
	}
	wg.Wait()
	// In any stretch of time no more than the burst and what was refilled, by the clock
	// of the database.
	for i, from := range times {
		for _, to := range times[i:] {
			within := 0
			for _, at := range times {
				if !at.Before(from) && !at.After(to) {
					within++
				}
			}
			allowed := burst + rate*to.Sub(from).Seconds() + 1
			require.LessOrEqual(t, float64(within), allowed, "within %s", to.Sub(from))
		}
	}
}

func TestALiftedLimitLetsThrough(t *testing.T) {
	t.Parallel()
	one := newWorld(t)
	two := worldOn(t, one.dsn)
	for _, w := range []*world{one, two} {
		run(t, w.Signals.Run)
		run(t, w.Store.Run)
	}
	one.limit(jobs.Limits{JobType: "a", MaxRunning: 1})
	one.begin(jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	require.Len(t, two.claim("w", 2, "a"), 1)
	require.Empty(t, two.claim("w", 2, "a"))
	got := make(chan []jobs.Job, 1)
	go func() {
		list, err := two.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: jobs.WaitMax})
		assert.NoError(t, err)
		got <- list
	}()
	_, err := one.Store.UnsetLimits(t.Context(), "a")
	require.NoError(t, err)
	assert.Len(t, <-got, 1)
}
