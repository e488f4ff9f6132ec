package execution_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// situated is a queued execution in a class with two workers of 8 slots.
func situated(change ...func(*execution.Situation)) execution.Situation {
	s := execution.Situation{
		Execution: &execution.Execution{
			ID: "e", State: execution.Queued, Attempt: 1, QueuedAt: noon.Add(-90 * time.Second), ReadyAt: noon.Add(-90 * time.Second),
			Request: topics.Request{Executor: "process", ResourceClass: "gpu", Requirements: topics.Requirements{Slots: 2}},
		},
		Now: noon, Workers: 2, Slots: 16, Largest: 8, Executors: []string{"function", "process"},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func TestExplain(t *testing.T) {
	t.Parallel()
	type situation = execution.Situation
	for name, c := range map[string]struct {
		change  func(*situation)
		summary string
		codes   []execution.WaitCode
	}{
		"its turn": {
			func(*situation) {},
			"It has been QUEUED for 1m30s: nothing is in its way, it is admitted in the next round.",
			[]execution.WaitCode{execution.WaitAdmission},
		},
		"no workers": {
			func(s *situation) { s.Workers, s.Slots, s.Largest, s.Executors = 0, 0, 0, nil },
			`It has been QUEUED for 1m30s: no worker serves the resource class "gpu".`,
			[]execution.WaitCode{execution.WaitNoWorkers},
		},
		"no executor": {
			func(s *situation) { s.Execution.Request.Executor = "kubernetes" },
			`It has been QUEUED for 1m30s: 2 workers are of the resource class "gpu", with the executors function, process, and none offers "kubernetes".`,
			[]execution.WaitCode{execution.WaitNoExecutor},
		},
		"too large": {
			func(s *situation) { s.Execution.Request.Requirements.Slots = 9 },
			"It has been QUEUED for 1m30s: it needs 9 slots at one worker, and the largest of its class may give 8.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"too large for the limit": {
			func(s *situation) { s.Limit = 1 },
			"It has been QUEUED for 1m30s: it needs 2 slots at one worker, and the largest of its class may give 1.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"not before": {
			func(s *situation) { s.Execution.ReadyAt = noon.Add(26 * time.Hour) },
			"It has been QUEUED for 1m30s: it asked to start in 1d2h, not before.",
			[]execution.WaitCode{execution.WaitNotBefore},
		},
		"backoff": {
			func(s *situation) { s.Execution.Attempt, s.Execution.ReadyAt = 3, noon.Add(10*time.Second) },
			"It has been QUEUED for 1m30s: its attempt 3 is due in 10s.",
			[]execution.WaitCode{execution.WaitBackoff},
		},
		"concurrency key": {
			func(s *situation) {
				s.Execution.Request.ConcurrencyKey, s.Predecessors = "acct-7", 2
				s.Predecessor = execution.Neighbour{ID: "first", State: execution.Running}
				s.Ahead, s.Used = 5, 16
			},
			`It has been QUEUED for 1m30s: executions with the concurrency key "acct-7" run one at a time, in the order of their submission, and 2 come before it, the first of them first (RUNNING).`,
			[]execution.WaitCode{execution.WaitConcurrencyKey},
		},
		"full": {
			func(s *situation) { s.Used, s.Ahead, s.Next = 16, 1, execution.Neighbour{ID: "n", Slots: 1} },
			`It has been QUEUED for 1m30s: 16 of the 16 slots of the resource class "gpu" are in use.`,
			[]execution.WaitCode{execution.WaitCapacity, execution.WaitBehind},
		},
		"nearly full": {
			func(s *situation) { s.Used = 15 },
			`It has been QUEUED for 1m30s: 15 of the 16 slots of the resource class "gpu" are in use, and it needs 2.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"full by limit": {
			func(s *situation) { s.Limit, s.Used = 4, 4 },
			`It has been QUEUED for 1m30s: 4 of the 4 slots of the resource class "gpu" are in use.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"a large one ahead": {
			func(s *situation) { s.Used, s.Ahead, s.Next = 10, 3, execution.Neighbour{ID: "big", Slots: 8} },
			"It has been QUEUED for 1m30s: execution big at the head of the queue needs 8 slots, 6 are free, and nothing overtakes it.",
			[]execution.WaitCode{execution.WaitCapacity, execution.WaitBehind},
		},
		"behind others": {
			func(s *situation) { s.Ahead, s.Next = execution.AheadMax, execution.Neighbour{ID: "n", Slots: 1} },
			"It has been QUEUED for 1m30s: 10000 or more executions are ahead of it, being older or of higher priority.",
			[]execution.WaitCode{execution.WaitBehind},
		},
		"several at once": {
			func(s *situation) { s.Workers = 0; s.Execution.ReadyAt = noon.Add(time.Minute); s.Predecessors = 1 },
			`It has been QUEUED for 1m30s: no worker serves the resource class "gpu".`,
			[]execution.WaitCode{execution.WaitNoWorkers, execution.WaitNotBefore, execution.WaitConcurrencyKey},
		},
		"requested": {
			func(s *situation) {
				s.Execution.State, s.Execution.RequestedAt = execution.Requested, noon.Add(-time.Millisecond)
			},
			"It has been REQUESTED for less than a second: it is stored, and no coordinator has looked at it yet.",
			[]execution.WaitCode{execution.WaitCoordinator},
		},
		"scheduled": {
			func(s *situation) {
				s.Execution.State, s.Execution.ScheduledAt = execution.Scheduled, noon.Add(-2*time.Hour)
			},
			"It has been SCHEDULED for 2h: it is admitted, and no worker has taken it yet.",
			[]execution.WaitCode{execution.WaitWorker},
		},
		"running": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-5*time.Second), "w-1"
				s.Execution.LeaseExpiresAt = noon.Add(time.Second)
			},
			"It has been RUNNING for 5s at worker w-1, attempt 1.", nil,
		},
		"its worker is lost": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-5*time.Second), "w-1"
				s.Execution.LeaseExpiresAt = noon
			},
			"It has been RUNNING for 5s at worker w-1, attempt 1.", []execution.WaitCode{execution.WaitWorker},
		},
		"to be cancelled": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-5*time.Second), "w-1"
				s.Execution.LeaseExpiresAt, s.Execution.Cancel = noon.Add(time.Second), &execution.CancelRequest{At: noon.Add(-time.Second)}
			},
			"It has been RUNNING for 5s at worker w-1, attempt 1.", []execution.WaitCode{execution.WaitCancel},
		},
		"ended": {
			func(s *situation) {
				s.Execution.State, s.Execution.FinishedAt = execution.Failed, noon.Add(-61*time.Second)
				s.Execution.Result = &execution.Result{Reason: "exit_code", Message: "exit code 3."}
			},
			"It ended 1m1s ago as FAILED: exit code 3.", nil,
		},
		"ended well": {
			func(s *situation) {
				s.Execution.State, s.Execution.FinishedAt, s.Execution.Result = execution.Completed, noon.Add(-time.Hour), &execution.Result{}
			},
			"It ended 1h ago as COMPLETED.", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := situated(c.change).Explain()
			assert.Equal(t, c.summary, x.Summary)
			var codes []execution.WaitCode
			for _, w := range x.Waits {
				codes = append(codes, w.Code)
				assert.NotEmpty(t, w.Message)
				assert.NotEmpty(t, w.Release, "whoever waits wants to know what to do")
			}
			assert.Equal(t, c.codes, codes)
			require.False(t, x.Since.IsZero())
		})
	}
}
