package engine_test

import (
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
)

// Many instances of several steps, with workers in two processes: each step once, none
// left over. MILLRACE_TEST_INSTANCES says how many; 400 by default.
func TestManyInstances(t *testing.T) {
	t.Parallel()
	many := 400
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_TEST_INSTANCES")); err == nil {
		many = n
	}
	w := newWorld(t)
	other := worldOn(t, w.dsn, w.plans)
	w.define(`{"id": "three", "name": "x", "steps": [
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "jobType": "work", "nextStep": "b"},
		{"id": "b", "name": "B", "type": "SERVICE_TASK", "jobType": "work", "nextStep": "c"},
		{"id": "c", "name": "C", "type": "SERVICE_TASK", "jobType": "work", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	for left := many; left > 0; left -= 100 {
		requests := make([]engine.StartRequest, min(left, 100))
		for i := range requests {
			requests[i].DefinitionID = "three"
		}
		_, errs := w.StartMany(t.Context(), requests)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	began := time.Now()
	var wait sync.WaitGroup
	for k, process := range []*world{w, other, w, other} {
		wait.Go(func() {
			worker := strconv.Itoa(k)
			for w.queryInt(`SELECT count(*) FROM wf_instances WHERE ended_at IS NULL`) > 0 {
				list, err := process.jobs.Claim(t.Context(), jobs.ClaimRequest{WorkerID: worker, Types: []string{"work"}, Max: 50})
				if !assert.NoError(t, err) {
					return
				}
				completions := make([]jobs.Completion, len(list))
				for i, j := range list {
					completions[i] = done(j, `{"by": "`+worker+`"}`)
				}
				for _, err := range process.CompleteJobs(t.Context(), completions) {
					assert.NoError(t, err)
				}
			}
		})
	}
	wait.Wait()
	t.Logf("%d instances in %s", many, time.Since(began))
	assert.Equal(t, many, w.queryInt(`SELECT count(*) FROM wf_instances WHERE status = 'COMPLETED' AND version = 4`))
	assert.Equal(t, 3*many, w.queryInt(`SELECT count(*) FROM jobs WHERE status = 'COMPLETED' AND attempt = 1`))
	w.sound()
}
