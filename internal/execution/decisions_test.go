package execution_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// Whatever is decided says why, with a code that is known, and every code comes of
// something: each case leads to the decision that it is called after.
func TestEveryDecisionSaysWhy(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	limits := func(l topics.Limits) func(*topics.Request) {
		return func(r *topics.Request) { r.Limits = l }
	}
	second := topics.Duration(time.Second)
	waiting := func(change ...func(*topics.Request)) *execution.Execution {
		e := execution.New(id, request(t, change...), start)
		require.NoError(t, e.Queue(start, p))
		return e
	}
	scheduled := func(change ...func(*topics.Request)) *execution.Execution {
		e := waiting(change...)
		_, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		return e
	}
	expired := func(e *execution.Execution, after time.Duration) *execution.Execution {
		require.True(t, e.Expire(start.Add(after), p))
		return e
	}
	ended := func(r executor.Result, change ...func(*topics.Request)) *execution.Execution {
		e := running(t, change...)
		require.NoError(t, e.Finish(start.Add(time.Second), "w", 1, r, p))
		return e
	}
	cancelled := func(e *execution.Execution) *execution.Execution {
		require.NoError(t, e.RequestCancel(start, "ann", "wrong input"))
		return e
	}
	cases := map[topics.Decision]func() *execution.Execution{
		{Name: "queued", Reason: topics.QueuedReady}: func() *execution.Execution { return waiting() },
		{Name: "queued", Reason: topics.QueuedNotBefore}: func() *execution.Execution {
			later := start.Add(time.Hour)
			return waiting(func(r *topics.Request) { r.NotBefore = &later })
		},
		{Name: "requeued", Reason: topics.RequeuedFailed}: func() *execution.Execution {
			return ended(executor.Result{Outcome: executor.Failed, Retryable: true, Reason: "exit_code"}, attempts(2))
		},
		{Name: "requeued", Reason: topics.RequeuedHandedBack}: func() *execution.Execution {
			return ended(executor.Result{Outcome: executor.Abandoned, Reason: "shutdown"})
		},
		{Name: "requeued", Reason: topics.RequeuedPostponed}: func() *execution.Execution {
			return ended(executor.Result{Outcome: executor.Abandoned, Reason: "quota_exceeded", RetryAfter: time.Second})
		},
		{Name: "requeued", Reason: topics.RequeuedLeaseExpired}: func() *execution.Execution { return expired(running(t), time.Hour) },
		{Name: "requeued", Reason: topics.RequeuedStartLimit}:   func() *execution.Execution { return expired(scheduled(), time.Hour) },
		{Name: "cancelled", Reason: topics.CancelledOnRequest}:  func() *execution.Execution { return cancelled(waiting()) },
		{Name: "cancelled", Reason: topics.CancelledWorkerLost}: func() *execution.Execution { return expired(cancelled(running(t)), time.Hour) },
		{Name: "timed_out", Reason: topics.TimedOutQueue}: func() *execution.Execution {
			return expired(waiting(limits(topics.Limits{Queue: second})), time.Hour)
		},
		{Name: "timed_out", Reason: topics.TimedOutTotal}: func() *execution.Execution {
			return expired(waiting(limits(topics.Limits{Total: second})), time.Hour)
		},
		{Name: "timed_out", Reason: topics.TimedOutRun}: func() *execution.Execution {
			return ended(executor.Result{Outcome: executor.TimedOut, Reason: "run_limit"}, limits(topics.Limits{Run: second}))
		},
		{Name: "quarantined", Reason: topics.QuarantinedLeaseExpired}: func() *execution.Execution {
			e := running(t)
			e.Deliveries = p.MaxDeliveries
			return expired(e, time.Hour)
		},
	}
	_, rejected := topics.ReasonsOf(topics.ExecutionRejected{}.EventType())
	for _, reason := range rejected {
		cases[topics.Decision{Name: "rejected", Reason: reason}] = func() *execution.Execution {
			e := execution.New(id, request(t), start)
			require.NoError(t, e.Reject(start, reason, "no", 0))
			return e
		}
	}
	_, admitted := topics.ReasonsOf(topics.ExecutionScheduled{}.EventType())
	for _, reason := range admitted {
		cases[topics.Decision{Name: "scheduled", Reason: reason}] = func() *execution.Execution {
			e := waiting()
			_, err := e.Schedule(start, "admitter", reason, p)
			require.NoError(t, err)
			return e
		}
	}
	for want, lead := range cases {
		var last topics.Decision
		for _, r := range lead().TakeEvents() {
			data, err := json.Marshal(r.Event)
			require.NoError(t, err)
			if d, decides := topics.DecisionIn(r.Event.EventType(), data); decides {
				assert.True(t, d.Known(), "%+v", d)
				last = d
			}
		}
		assert.Equal(t, want, last)
	}
	for _, typ := range topics.Types() {
		_, codes := topics.ReasonsOf(typ.Name)
		for _, code := range codes {
			d, _ := topics.DecisionIn(typ.Name, []byte(`{"reason":"`+code+`","cause":"`+code+`","limit":"`+code+`"}`))
			if d == (topics.Decision{Name: "timed_out", Reason: topics.TimedOutStart}) {
				continue // reserved: at its start limit an execution is requeued
			}
			assert.Contains(t, cases, d, "nothing leads to it")
		}
	}
}
