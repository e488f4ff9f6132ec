package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

func TestClaimsGoByPriorityAndAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	ids := w.begin(
		jobstest.Spec{JobType: "a", Priority: 3, RunAt: now.Add(-3 * time.Second)},
		jobstest.Spec{JobType: "a", Priority: 3, RunAt: now.Add(-5 * time.Second)},
		jobstest.Spec{JobType: "a", Priority: 5, RunAt: now.Add(-time.Second)},
		jobstest.Spec{JobType: "b", Priority: 4, RunAt: now.Add(-time.Second)},
		jobstest.Spec{JobType: "a", Priority: 5, RunAt: now.Add(time.Hour)},
		jobstest.Spec{JobType: "c", Priority: 5},
	)
	assert.Equal(t, []uuid.UUID{ids[2], ids[3]}, idsOf(w.claim("w", 2, "b", "a")), "priority goes before age, over all types asked for")
	assert.Equal(t, []uuid.UUID{ids[1], ids[0]}, idsOf(w.claim("w", 10, "a")), "what is not due is not there")
	assert.Empty(t, w.claim("w", 10, "a", "b"))
}

func TestAClaimCarriesWhatItsHandlerNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.begin(
		jobstest.Spec{JobType: "a", Retries: 2, Variables: json.RawMessage(`{"n": 9007199254740993}`)},
		jobstest.Spec{JobType: "b", Variables: json.RawMessage(`{"n": 1}`), Input: json.RawMessage(`{"only": true}`)},
	)
	list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w1", Types: []string{"a", "b"}, Max: 5, Lease: 90 * time.Second})
	require.NoError(t, err)
	require.Len(t, list, 2)
	a, b := list[0], list[1]
	if a.ID != ids[0] {
		a, b = b, a
	}
	assert.Equal(t, "w1", a.WorkerID)
	assert.Equal(t, 1, a.Attempt)
	assert.Equal(t, 2, a.RetriesRemaining)
	assert.Equal(t, int64(1), a.Token)
	assert.Equal(t, jobs.Locked, a.Status)
	assert.Equal(t, "step", a.StepID)
	assert.Equal(t, `{"n": 9007199254740993}`, string(a.Variables), "numbers stay as they were written")
	assert.Equal(t, `{"only": true}`, string(b.Variables))
	assert.InDelta(t, 90, a.LockExpiresAt.Sub(a.LockedAt).Seconds(), 1)
}

func TestBadClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1}
	for what, change := range map[string]func(*jobs.ClaimRequest){
		"no worker":      func(r *jobs.ClaimRequest) { r.WorkerID = "" },
		"no types":       func(r *jobs.ClaimRequest) { r.Types = nil },
		"an empty type":  func(r *jobs.ClaimRequest) { r.Types = []string{"a", ""} },
		"no jobs":        func(r *jobs.ClaimRequest) { r.Max = 0 },
		"too many jobs":  func(r *jobs.ClaimRequest) { r.Max = jobs.MaxJobs + 1 },
		"a short lease":  func(r *jobs.ClaimRequest) { r.Lease = time.Millisecond },
		"a long lease":   func(r *jobs.ClaimRequest) { r.Lease = 2 * time.Hour },
		"a long wait":    func(r *jobs.ClaimRequest) { r.Wait = time.Hour },
		"a zero byte":    func(r *jobs.ClaimRequest) { r.WorkerID = "a\x00b" },
		"too many types": func(r *jobs.ClaimRequest) { r.Types = make([]string, 0); addTypes(r, jobs.MaxTypes+1) },
	} {
		r := good
		change(&r)
		_, err := w.Store.Claim(t.Context(), r)
		assert.ErrorIs(t, err, jobs.ErrInvalid, what)
	}
}

func addTypes(r *jobs.ClaimRequest, n int) {
	for range n {
		r.Types = append(r.Types, uuid.NewString())
	}
}

func TestManyClaimersGetEachJobOnce(t *testing.T) {
	t.Parallel()
	one := newWorld(t)
	two := worldOn(t, one.dsn)
	const n = 400
	specs := make([]jobstest.Spec, n)
	for i := range specs {
		specs[i] = jobstest.Spec{JobType: []string{"a", "b", "c"}[i%3], Priority: 1 + i%5}
	}
	want := one.begin(specs...)
	var mu sync.Mutex
	var got []uuid.UUID
	var wg sync.WaitGroup
	for i := range 16 {
		w := one
		if i%2 == 0 {
			w = two
		}
		types := [][]string{{"a", "b", "c"}, {"a", "b"}, {"c"}, {"b", "c"}}[i%4]
		wg.Go(func() {
			for {
				list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: types, Max: 1 + i%7, Wait: 100 * time.Millisecond})
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				got = append(got, idsOf(list)...)
				done := len(got) >= n
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	assert.ElementsMatch(t, want, got)
}

// newListeners are two processes that hear of each other. Their polls are far apart, so only
// wake-ups bring anything.
func newListeners(t *testing.T) (one, two *world) {
	t.Helper()
	slow := func(c *jobs.Config) { c.Poll = time.Hour }
	one = newWorld(t, slow)
	two = worldOn(t, one.dsn, slow)
	for _, w := range []*world{one, two} {
		ready, stop := w.Signals.Subscribe("ready")
		run(t, w.Signals.Run)
		<-ready // the connection stands
		stop()
		run(t, w.Store.Run)
	}
	return one, two
}

func TestAWaitingClaimIsWoken(t *testing.T) {
	t.Parallel()
	one, two := newListeners(t)
	for range 20 {
		for what, there := range map[string]*world{"here": one, "in another process": two} {
			got := make(chan []jobs.Job, 1)
			go func() {
				list, err := there.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a", "x"}, Max: 1, Wait: jobs.WaitMax})
				assert.NoError(t, err)
				got <- list
			}()
			ids := one.begin(jobstest.Spec{JobType: "a"})
			select {
			case list := <-got:
				require.Equal(t, ids, idsOf(list), what)
			case <-time.After(patience):
				require.Fail(t, "a wake-up was lost", what)
			}
		}
	}
}

func TestWaitingClaimsAreServedInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *jobs.Config) { c.Poll = time.Hour })
	run(t, w.Store.Run)
	var order []chan []jobs.Job
	for range 5 {
		got := make(chan []jobs.Job, 1)
		before := w.Store.Waiting()
		go func() {
			list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: jobs.WaitMax})
			assert.NoError(t, err)
			got <- list
		}()
		require.Eventually(t, func() bool { return w.Store.Waiting() == before+1 }, patience, time.Millisecond)
		order = append(order, got)
	}
	for i, got := range order {
		ids := w.begin(jobstest.Spec{JobType: "a"})
		assert.Equal(t, ids, idsOf(<-got), "waiter %d", i)
	}
}

func TestAWaitEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: 20 * time.Millisecond})
	require.NoError(t, err)
	assert.Empty(t, list)

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := w.Store.Claim(ctx, jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: jobs.WaitMax})
		failed <- err
	}()
	require.Eventually(t, func() bool { return w.Store.Waiting() == 1 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)

	stop := run(t, w.Store.Run)
	empty := make(chan error, 1)
	go func() {
		list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 2, Wait: jobs.WaitMax})
		if len(list) > 0 {
			err = errors.New("there is something")
		}
		empty <- err
	}()
	require.Eventually(t, func() bool { return w.Store.Waiting() == 1 }, patience, time.Millisecond)
	stop()
	require.NoError(t, <-empty, "the end of the process answers those who wait")
	// From then on nobody waits.
	assert.Empty(t, w.claim("w", 1, "a"))
}

func TestClaimsWhoseCallersHaveGoneAreGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 30 {
		ids := w.begin(jobstest.Spec{JobType: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		list, err := w.Store.Claim(ctx, jobs.ClaimRequest{WorkerID: "gone", Types: []string{"a"}, Max: 1})
		cancel()
		if err == nil {
			require.Equal(t, ids, idsOf(list))
			continue
		}
		require.Eventually(t, func() bool { return len(w.claim("next", 1, "a")) == 1 }, patience, time.Millisecond)
	}
}

func TestRetriesBecomeDueWithoutAWakeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *jobs.Config) { c.Poll = time.Hour })
	run(t, w.Store.Run)
	ids := w.begin(jobstest.Spec{JobType: "a", RunAt: time.Now().Add(300 * time.Millisecond)})
	assert.Empty(t, w.claim("w", 1, "a"))
	list, err := w.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1, Wait: jobs.WaitMax})
	require.NoError(t, err)
	assert.Equal(t, ids, idsOf(list))
}
