package jobs_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/jobs"
)

// Requests that share a transaction say things of a job one after the other. Only the last
// word is written: statements about one job would undo each other in their own order.
func TestTheLastWordAboutAJobCounts(t *testing.T) {
	t.Parallel()
	one, other := uuid.New(), uuid.New()
	again := func(id uuid.UUID) jobs.Again { return jobs.Again{Held: jobs.Held{Job: jobs.Job{ID: id}}, Attempt: 2} }
	failed := func(id uuid.UUID) jobs.Finished { return jobs.Finished{ID: id, Status: jobs.Failed} }

	var w jobs.Writes
	w.End(failed(one))
	w.End(failed(other))
	w.Retry(again(one))
	assert.Equal(t, []jobs.Finished{failed(other)}, w.Finish, "what failed is tried again")
	assert.Equal(t, []jobs.Again{again(one)}, w.Again)
	w.End(failed(one))
	assert.Equal(t, []jobs.Finished{failed(other), failed(one)}, w.Finish, "and its last attempt is reported late")
	assert.Empty(t, w.Again)

	w.Suspend(one, other)
	w.Resume(one)
	assert.Equal(t, []uuid.UUID{other}, w.Hold)
	assert.Equal(t, []uuid.UUID{one}, w.Release)
	w.Suspend(one)
	assert.Equal(t, []uuid.UUID{other, one}, w.Hold)
	assert.Empty(t, w.Release)
}
