package jobstest

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
)

// Suite is what holds for workers however their jobs reach them and whatever they report
// over: the definition of what a switch of the mode preserves. The scenarios share a rig
// and run side by side, each with a job type of its own.
func Suite(t *testing.T, rig *Rig) {
	for name, scenario := range map[string]func(*testing.T, *Rig){
		"each job is done once":                       eachJobOnce,
		"a worker gets the variables as they are":     variablesAsTheyAre,
		"a retryable failure is another attempt":      retries,
		"a failure that is not retryable is final":    notRetryable,
		"a worker says when to try again":             retryAfter,
		"of many reports one is accepted":             oneReport,
		"an expired lease is the same attempt again":  expiry,
		"a late completion is accepted once":          lateCompletion,
		"too many expired leases are quarantine":      quarantine,
		"a heartbeat extends and tells":               heartbeats,
		"the job of another cannot be completed":      foreign,
		"a cancelled job is void":                     cancelled,
		"jobs of a suspended instance wait":           suspended,
		"what is not there is not found":              unknown,
		"an expired lease is completed by its holder": expiredHolder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *rig
			own.t, own.JobType = t, strings.ReplaceAll(name, " ", "-")
			scenario(t, &own)
		})
	}
}

// By is the holder of a job as its worker says it.
func By(j jobs.Job) jobs.Holder {
	return jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
}

// withoutToken is how a worker says it that knows of no tokens.
func withoutToken(j jobs.Job) jobs.Holder {
	return jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID}
}

func (r *Rig) begin(t *testing.T, specs ...Spec) []uuid.UUID {
	t.Helper()
	ids, err := r.Begin(t.Context(), specs...)
	require.NoError(t, err)
	require.Len(t, ids, len(specs))
	return ids
}

func (r *Rig) complete(t *testing.T, by jobs.Holder) error {
	t.Helper()
	return r.Complete(t.Context(), jobs.Completion{Holder: by})[0]
}

func (r *Rig) beat(t *testing.T, by jobs.Holder) jobs.BeatResult {
	t.Helper()
	results, err := r.Heartbeat(t.Context(), []jobs.Beat{{Holder: by}})
	require.NoError(t, err)
	return results[0]
}

func eachJobOnce(t *testing.T, r *Rig) {
	const n = 60
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{JobType: []string{r.JobType, r.JobType + "-file"}[i%2], Priority: 1 + i%5}
	}
	ids := r.begin(t, specs...)
	var mu sync.Mutex
	var got []uuid.UUID
	var wg sync.WaitGroup
	for _, worker := range []string{"w1", "w2", "w3"} {
		wg.Go(func() {
			for until := time.Now().Add(patience); time.Now().Before(until); {
				list, err := r.Take(t.Context(), worker, 7, r.JobType, r.JobType+"-file")
				if !assert.NoError(t, err) {
					return
				}
				var done []jobs.Completion
				for _, j := range list {
					done = append(done, jobs.Completion{Holder: withoutToken(j), Variables: json.RawMessage(`{"done": true}`)})
				}
				if len(done) > 0 {
					for _, err := range r.Complete(t.Context(), done...) {
						assert.NoError(t, err)
					}
				}
				mu.Lock()
				for _, j := range list {
					got = append(got, j.ID)
				}
				all := len(got) >= n
				mu.Unlock()
				if all {
					return
				}
			}
		})
	}
	wg.Wait()
	assert.ElementsMatch(t, ids, got)
	for _, id := range ids {
		assert.Equal(t, jobs.Completed, r.Status(id))
	}
}

func variablesAsTheyAre(t *testing.T, r *Rig) {
	variables := `{"id":9007199254740993,"amount":1.10,"name":"Zoë","list":[1,{"a":null}]}`
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 2, Variables: json.RawMessage(variables)})
	j := r.One("w", r.JobType)
	assert.Equal(t, ids[0], j.ID)
	assert.Equal(t, r.JobType, j.JobType)
	assert.Equal(t, 2, j.RetriesRemaining)
	assert.JSONEq(t, variables, string(j.Variables))
	require.NoError(t, r.complete(t, By(j)))
}

func retries(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 2})
	var last jobs.Job
	for attempt := 1; attempt <= 3; attempt++ {
		j := r.One("w", r.JobType)
		require.Equal(t, ids[0], j.ID)
		assert.Equal(t, 3-attempt, j.RetriesRemaining)
		if j.Attempt != 0 { // not every transport tells
			assert.Equal(t, attempt, j.Attempt)
		}
		require.NoError(t, r.Fail(t.Context(), jobs.Failure{Holder: By(j), Retryable: true, Message: "not yet"}))
		last = j
	}
	assert.Equal(t, jobs.Failed, r.Status(ids[0]))
	require.NoError(t, r.Fail(t.Context(), jobs.Failure{Holder: By(last), Retryable: true, Message: "not yet"}), "the same again")
	require.ErrorIs(t, r.complete(t, By(last)), jobs.ErrFinished)
}

func retryAfter(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 1})
	j := r.One("w", r.JobType)
	require.NoError(t, r.Fail(t.Context(), jobs.Failure{Holder: By(j), Retryable: true, Message: "not today", RetryAfter: jobs.RetryAfterMax}))
	var wait time.Duration
	require.NoError(t, r.Pool.QueryRow(t.Context(), `SELECT run_at - clock_timestamp() FROM jobs WHERE id = $1`, ids[0]).Scan(&wait))
	assert.Greater(t, wait, jobs.RetryAfterMax/2)
	assert.LessOrEqual(t, wait, jobs.RetryAfterMax)
	list, err := r.Take(t.Context(), "w", 1, r.JobType)
	require.NoError(t, err)
	assert.Empty(t, list)
	_, err = r.Pool.Exec(t.Context(), `UPDATE jobs SET run_at = clock_timestamp() WHERE id = $1`, ids[0])
	require.NoError(t, err)
	again := r.One("w", r.JobType)
	assert.Equal(t, 0, again.RetriesRemaining)
	require.NoError(t, r.complete(t, By(again)))
}

func notRetryable(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 5})
	j := r.One("w", r.JobType)
	require.NoError(t, r.Fail(t.Context(), jobs.Failure{Holder: By(j), Message: "never"}))
	assert.Equal(t, jobs.Failed, r.Status(ids[0]))
}

func oneReport(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType})
	j := r.One("w", r.JobType)
	require.NoError(t, r.beat(t, By(j)).Err, "it is this worker's from now on")
	const each = 4
	outcomes := make(chan error, 2*each)
	var wg sync.WaitGroup
	for range each {
		wg.Go(func() { outcomes <- r.Complete(t.Context(), jobs.Completion{Holder: By(j)})[0] })
		wg.Go(func() {
			outcomes <- r.Complete(t.Context(), jobs.Completion{Holder: jobs.Holder{JobID: j.ID, WorkerID: "thief"}})[0]
		})
	}
	wg.Wait()
	accepted := 0
	for range 2 * each {
		if err := <-outcomes; err == nil {
			accepted++
		}
	}
	assert.Equal(t, each, accepted, "one, and its repetitions")
	assert.Equal(t, jobs.Completed, r.Status(ids[0]))
}

func expiry(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 1})
	first := r.One("w1", r.JobType)
	require.NoError(t, r.beat(t, By(first)).Err)
	r.Expire(ids[0])
	second := r.One("w2", r.JobType)
	assert.Equal(t, ids[0], second.ID)
	assert.Equal(t, first.RetriesRemaining, second.RetriesRemaining, "it costs no retry")
	require.NoError(t, r.beat(t, By(second)).Err)
	require.ErrorIs(t, r.complete(t, withoutToken(first)), jobs.ErrLeaseLost)
	require.ErrorIs(t, r.beat(t, withoutToken(first)).Err, jobs.ErrLeaseLost)
	if first.Token != 0 {
		assert.Greater(t, second.Token, first.Token)
		require.ErrorIs(t, r.complete(t, By(first)), jobs.ErrLeaseLost)
	}
	require.NoError(t, r.complete(t, By(second)))
	assert.Equal(t, jobs.Completed, r.Status(ids[0]))
}

func lateCompletion(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType})
	j := r.One("w1", r.JobType)
	require.NoError(t, r.beat(t, By(j)).Err)
	r.Expire(ids[0])
	require.NoError(t, r.complete(t, By(j)), "nobody else has it")
	assert.Equal(t, jobs.Completed, r.Status(ids[0]))
	require.NoError(t, r.complete(t, withoutToken(j)), "the same again")
	// Where a record was on its way already, its reader is told.
	if list, err := r.Take(t.Context(), "w2", 1, r.JobType); assert.NoError(t, err) && len(list) == 1 {
		require.ErrorIs(t, r.beat(t, By(list[0])).Err, jobs.ErrFinished)
	}
}

func expiredHolder(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType})
	j := r.One("w1", r.JobType)
	require.NoError(t, r.beat(t, By(j)).Err)
	_, err := r.Pool.Exec(t.Context(), `UPDATE jobs SET lock_expires_at = clock_timestamp() - interval '1 s' WHERE id = $1`, ids[0])
	require.NoError(t, err)
	require.NoError(t, r.complete(t, withoutToken(j)), "the sweep has not been there")
	r.Expire(ids[0])
	assert.Equal(t, jobs.Completed, r.Status(ids[0]))
}

func quarantine(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 3})
	for range jobs.MaxExpired + 1 {
		require.Equal(t, ids[0], r.One("w", r.JobType).ID)
		r.Expire(ids[0])
	}
	assert.Equal(t, jobs.Failed, r.Status(ids[0]))
}

func heartbeats(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType}, Spec{JobType: r.JobType}, Spec{JobType: r.JobType})
	list := r.Some("w", 3, r.JobType)
	first := r.beat(t, By(list[0]))
	require.NoError(t, first.Err)
	again := r.beat(t, withoutToken(list[0]))
	require.NoError(t, again.Err)
	assert.False(t, again.LockExpiresAt.Before(first.LockExpiresAt))
	other := By(list[0])
	other.Token++
	both, err := r.Heartbeat(t.Context(), []jobs.Beat{{Holder: other}, {Holder: By(list[0])}})
	require.NoError(t, err)
	require.ErrorIs(t, both[0].Err, jobs.ErrLeaseLost, "each beat of a call is judged for itself")
	require.NoError(t, both[1].Err)
	require.NoError(t, r.complete(t, By(list[1])))
	require.ErrorIs(t, r.beat(t, By(list[1])).Err, jobs.ErrFinished)
	require.NoError(t, r.Cancel(t.Context(), list[2].ID))
	gone := r.beat(t, By(list[2]))
	require.ErrorIs(t, gone.Err, jobs.ErrFinished)
	assert.True(t, gone.Cancelled)
	assert.Len(t, ids, 3)
}

func foreign(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 1})
	j := r.One("w", r.JobType)
	require.NoError(t, r.beat(t, By(j)).Err)
	thief := jobs.Holder{JobID: j.ID, WorkerID: "thief"}
	require.ErrorIs(t, r.complete(t, thief), jobs.ErrLeaseLost)
	require.ErrorIs(t, r.Fail(t.Context(), jobs.Failure{Holder: thief}), jobs.ErrLeaseLost)
	require.ErrorIs(t, r.beat(t, thief).Err, jobs.ErrLeaseLost)
	assert.Equal(t, jobs.Locked, r.Status(ids[0]))
	require.NoError(t, r.complete(t, withoutToken(j)))
	require.ErrorIs(t, r.complete(t, thief), jobs.ErrFinished)
}

func cancelled(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 1})
	j := r.One("w", r.JobType)
	require.NoError(t, r.Cancel(t.Context(), ids[0]))
	require.ErrorIs(t, r.complete(t, By(j)), jobs.ErrFinished)
	require.ErrorIs(t, r.Fail(t.Context(), jobs.Failure{Holder: By(j), Retryable: true}), jobs.ErrFinished)
	assert.Equal(t, jobs.Cancelled, r.Status(ids[0]))
	r.Expire(ids[0])
	assert.Equal(t, jobs.Cancelled, r.Status(ids[0]))
}

func suspended(t *testing.T, r *Rig) {
	ids := r.begin(t, Spec{JobType: r.JobType, Retries: 1})
	j := r.One("w", r.JobType)
	require.NoError(t, r.Suspend(t.Context(), ids[0]))
	r.Expire(ids[0])
	list, err := r.Take(t.Context(), "w", 1, r.JobType)
	require.NoError(t, err)
	assert.Empty(t, list)
	require.NoError(t, r.Resume(t.Context(), ids[0]))
	again := r.One("w", r.JobType)
	assert.Equal(t, j.ID, again.ID)
	require.NoError(t, r.complete(t, By(again)))
	assert.Equal(t, jobs.Completed, r.Status(ids[0]))
}

func unknown(t *testing.T, r *Rig) {
	nobody := jobs.Holder{JobID: uuid.New(), WorkerID: "w"}
	require.ErrorIs(t, r.complete(t, nobody), jobs.ErrNotFound)
	require.ErrorIs(t, r.Fail(t.Context(), jobs.Failure{Holder: nobody}), jobs.ErrNotFound)
	require.ErrorIs(t, r.beat(t, nobody).Err, jobs.ErrNotFound)
}
