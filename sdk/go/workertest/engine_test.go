package workertest_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func claim(t *testing.T, e *workertest.Engine, worker string) []client.Job {
	t.Helper()
	jobs, err := e.PollJobs(t.Context(), client.PollRequest{WorkerID: worker, JobTypes: []string{"work"}, MaxJobs: 10})
	require.NoError(t, err)
	return jobs
}

func TestLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := workertest.NewEngine()
		id := e.Enqueue("work", nil)
		first := claim(t, e, "w1")
		require.Len(t, first, 1)
		assert.Empty(t, claim(t, e, "w2"), "it is leased")
		time.Sleep(31 * time.Second)
		second := claim(t, e, "w2")
		require.Len(t, second, 1)
		assert.Greater(t, second[0].Token, first[0].Token)
		assert.Equal(t, 1, second[0].Attempt, "a lease that ends costs no attempt")
		late := client.Completion{JobID: id, WorkerID: "w1", Token: first[0].Token}
		require.ErrorIs(t, e.CompleteJob(t.Context(), late), client.ErrConflict)
		right := client.Completion{JobID: id, WorkerID: "w2", Token: second[0].Token, Variables: json.RawMessage(`{"a":1}`)}
		require.NoError(t, e.CompleteJob(t.Context(), right))
		require.NoError(t, e.CompleteJob(t.Context(), right))
		require.ErrorIs(t, e.FailJob(t.Context(), client.Failure{JobID: id, WorkerID: "w2"}), client.ErrConflict)
		assert.Equal(t, map[string]any{"a": 1.0}, e.Job(id).Variables())
	})
}

func TestLateCompletionCountsWhileNobodyHasTheJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := workertest.NewEngine(workertest.WithLease(time.Second))
		id := e.Enqueue("work", nil)
		job := claim(t, e, "w1")[0]
		time.Sleep(time.Minute)
		require.NoError(t, e.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w1", Token: job.Token}))
		assert.Equal(t, workertest.Completed, e.Job(id).Status)
	})
}

func TestLongPollSeesALeaseEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := workertest.NewEngine(workertest.WithLease(3 * time.Second))
		e.Enqueue("work", nil)
		claim(t, e, "w1")
		began := time.Now()
		jobs, err := e.PollJobs(t.Context(), client.PollRequest{WorkerID: "w2", JobTypes: []string{"work"}, MaxJobs: 1, Wait: time.Minute})
		require.NoError(t, err)
		assert.Len(t, jobs, 1)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestResultsThatAreRefused(t *testing.T) {
	t.Parallel()
	e := workertest.NewEngine()
	id := e.Enqueue("work", nil)
	claim(t, e, "w1")
	for _, vars := range []string{`[]`, `"text"`, `{`, `{"a":"` + string(make([]byte, 2<<20)) + `"}`} {
		err := e.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w1", Variables: json.RawMessage(vars)})
		require.ErrorIs(t, err, client.ErrInvalid)
	}
	assert.Equal(t, workertest.Locked, e.Job(id).Status)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	e := workertest.NewEngine()
	id := e.Enqueue("work", nil)
	e.Break(workertest.Fault{Call: workertest.PollJobs, Times: 1, AfterEffect: true})
	_, err := e.PollJobs(t.Context(), client.PollRequest{WorkerID: "w1", JobTypes: []string{"work"}, MaxJobs: 1})
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.Equal(t, workertest.Locked, e.Job(id).Status, "it took effect")
	e.Break(workertest.Fault{Call: workertest.CompleteJob})
	for range 3 {
		require.ErrorIs(t, e.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w1"}), client.ErrUnavailable)
	}
	e.Heal()
	require.NoError(t, e.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w1"}))
	assert.Len(t, e.Jobs(), 1)
}
