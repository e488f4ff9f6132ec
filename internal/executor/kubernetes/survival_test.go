package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

// held is an execution and whoever works on it.
type held struct {
	task    executor.Task
	attempt *executortest.Attempt
	by      *kubernetes.Executor
}

// Workers die one after another, and the API server is not at its best either: each program
// runs once, its output is whole, each fact is told once, and nothing is left.
func TestRunsSurviveTheirWorkersAndTheAPIServer(t *testing.T) {
	t.Parallel()
	const (
		executions = 20
		lines      = 60
	)
	s := newSide(t, splitStreams)
	count := script(fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; sleep 0.05; done", lines))
	e, kill := s.worker()
	other, killOther := s.worker()
	workers, kills := []*kubernetes.Executor{e, other}, []func(){kill, killOther}
	all := make([]*held, executions)
	for i := range all {
		h := &held{task: taskOf(count), by: workers[i%2]}
		h.attempt = executortest.StartTask(t, h.by, h.task, long)
		all[i] = h
	}
	disturbances := []func(){
		func() { s.Restart(t) },
		func() { s.Gate().CutStreams(nil) },
		func() { s.Compact(t); s.Gate().CutWatches() },
		func() { s.Disturb(10) },
	}
	for round, disturb := range disturbances {
		all[0].attempt.WaitStdout(t, fmt.Sprintf("%d\n", 10*(round+1)))
		disturb()
		dead := workers[0]
		kills[0]()
		e, kill := s.worker()
		workers, kills = append(workers[1:], e), append(kills[1:], kill)
		for i, h := range all {
			if h.by == dead {
				h.attempt.Lease.Extend(0)
				h.attempt.Wait(t)
				h.task.First, h.task.Attempt, h.by = 1, h.task.Attempt+1, workers[i%2]
				h.attempt = executortest.StartTask(t, h.by, h.task, long)
			}
		}
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	for _, h := range all {
		result := h.attempt.Wait(t)
		assert.Equal(t, executor.Completed, result.Outcome, result.Message)
		assert.Equal(t, want.String(), h.attempt.Stdout())
		assert.Equal(t, 1, s.Started(h.task.ExecutionID))
		h.by.Settle(t.Context(), h.task)
	}
	for _, h := range all {
		s.empty(h.task.ExecutionID)
		run := runOf(h.task)
		require.Eventually(t, func() bool { return len(s.book.phases(run)) == len(allPhases()) }, executortest.Patience, 5*time.Millisecond)
		assert.Equal(t, allPhases(), s.book.phases(run))
	}
}
