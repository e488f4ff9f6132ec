package execution_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/topics"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func slots(n int) topics.Requirements { return topics.Requirements{Slots: n} }

// situated is a queued execution in a class with two workers of 8 slots.
func situated(change ...func(*execution.Situation)) execution.Situation {
	s := execution.Situation{
		Execution: &execution.Execution{
			ID: "e", State: execution.Queued, Attempt: 1, QueuedAt: noon.Add(-90 * time.Second), ReadyAt: noon.Add(-90 * time.Second),
			Request: topics.Request{Executor: "process", ResourceClass: "gpu", Requirements: topics.Requirements{Slots: 2}},
		},
		Now: noon, Workers: 2, Total: slots(16), Largest: slots(8), Servable: true, Executors: []string{"function", "process"},
		Overtake: time.Minute,
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func TestExplain(t *testing.T) {
	t.Parallel()
	type situation = execution.Situation
	explained := map[execution.WaitCode]bool{}
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
			func(s *situation) { s.Workers, s.Total, s.Largest, s.Executors = 0, slots(0), slots(0), nil },
			`It has been QUEUED for 1m30s: no worker serves the resource class "gpu".`,
			[]execution.WaitCode{execution.WaitNoWorkers},
		},
		"no executor": {
			func(s *situation) { s.Execution.Request.Executor = "kubernetes" },
			`It has been QUEUED for 1m30s: no worker of the resource class "gpu" offers the executor "kubernetes": those that there are offer function and process.`,
			[]execution.WaitCode{execution.WaitNoExecutor},
		},
		"one worker without the executor": {
			func(s *situation) {
				s.Workers, s.Executors, s.Execution.Request.Executor = 1, []string{"process"}, "function"
			},
			`It has been QUEUED for 1m30s: no worker of the resource class "gpu" offers the executor "function": the only one there is offers process.`,
			[]execution.WaitCode{execution.WaitNoExecutor},
		},
		"no node for its class": {
			func(s *situation) {
				s.Execution.Request.Executor, s.Executors = "kubernetes", []string{"kubernetes"}
				s.Pool, s.Largest = execution.Pool{Names: []string{"kubernetes/main"}, Known: true}, slots(0)
			},
			`It has been QUEUED for 1m30s: the pool kubernetes/main, where the executor "kubernetes" runs things, has nothing for the resource class "gpu": no node there is ready and fits the class, or a quota allows none.`,
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"no room in the cluster": {
			func(s *situation) {
				s.Execution.Attempt, s.Execution.ReadyAt = 2, noon.Add(15*time.Second)
				s.Execution.Setback = &execution.Setback{Cause: topics.RequeuedPostponed, Message: "no node has 4 GPUs", Times: 1, Since: noon}
			},
			`It has been QUEUED for 1m30s: there is no room for it where the executor "process" runs things: no node has 4 GPUs; it was tried once, and is tried again in 15s.`,
			[]execution.WaitCode{execution.WaitNoRoom},
		},
		"its pod has no node": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-time.Minute), "w1"
				s.Execution.LeaseExpiresAt = noon.Add(time.Minute)
				s.Pod = execution.Pod{Namespace: "work", Name: "mr-1", Phase: pods.Created, At: noon.Add(-40 * time.Second)}
			},
			"It has been RUNNING for 1m at worker w1, attempt 1: its pod work/mr-1 was created 40s ago and has no node yet.",
			[]execution.WaitCode{execution.WaitPod},
		},
		"its pod has a node": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-time.Minute), "w1"
				s.Execution.LeaseExpiresAt = noon.Add(time.Minute)
				s.Pod = execution.Pod{Namespace: "work", Name: "mr-1", Node: "node-3", Phase: pods.Scheduled, At: noon.Add(-40 * time.Second)}
			},
			"It has been RUNNING for 1m at worker w1, attempt 1: its pod work/mr-1 was given the node node-3 40s ago and does not run there yet.",
			[]execution.WaitCode{execution.WaitPod},
		},
		"its pod runs": {
			func(s *situation) {
				s.Execution.State, s.Execution.StartedAt, s.Execution.Worker = execution.Running, noon.Add(-time.Minute), "w1"
				s.Execution.LeaseExpiresAt = noon.Add(time.Minute)
				s.Pod = execution.Pod{Namespace: "work", Name: "mr-1", Node: "node-3", Phase: pods.Running, At: noon.Add(-40 * time.Second)}
			},
			"It has been RUNNING for 1m at worker w1, attempt 1, in the pod work/mr-1 on the node node-3.",
			nil,
		},
		"nobody admits any more": {
			func(s *situation) {
				s.Admitter = execution.Admitter{Absent: true, Last: "host-1", Until: noon.Add(-3 * time.Minute)}
				s.Used = slots(16)
			},
			`It has been QUEUED for 1m30s: no coordinator admits executions of the resource class "gpu": host-1 did until 3m ago.`,
			[]execution.WaitCode{execution.WaitNoAdmitter},
		},
		"nobody has ever admitted": {
			func(s *situation) { s.Admitter.Absent = true },
			`It has been QUEUED for 1m30s: no coordinator admits executions of the resource class "gpu".`,
			[]execution.WaitCode{execution.WaitNoAdmitter},
		},
		"nearly full by limit": {
			func(s *situation) { s.Cap, s.Used, s.Overtake = slots(4), slots(3), 2*time.Minute },
			`It has been QUEUED for 1m30s: the resource class "gpu" may use 4 slots at once, of which 3 are in use, and it needs 2.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"the only slot": {
			func(s *situation) {
				s.Total, s.Largest, s.Used, s.Execution.Request.Requirements = slots(1), slots(1), slots(1), slots(1)
			},
			`It has been QUEUED for 1m30s: the only slot of the resource class "gpu" is in use.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"both slots": {
			func(s *situation) { s.Total, s.Largest, s.Used = slots(2), slots(2), slots(2) },
			`It has been QUEUED for 1m30s: both slots of the resource class "gpu" are in use.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"one before it with its key": {
			func(s *situation) {
				s.Execution.Request.ConcurrencyKey, s.Predecessors = "acct-7", 1
				s.Predecessor = execution.Neighbour{ID: "first", State: execution.Scheduled}
			},
			`It has been QUEUED for 1m30s: executions with the concurrency key "acct-7" run one at a time, in the order of their submission, and first (SCHEDULED) comes before it.`,
			[]execution.WaitCode{execution.WaitConcurrencyKey},
		},
		"one of its own ahead": {
			func(s *situation) { s.Ahead.Own = 1 },
			"It has been QUEUED for 1m30s: 1 execution goes before it: one of its own user that came first.",
			[]execution.WaitCode{execution.WaitBehind},
		},
		"another user's turn": {
			func(s *situation) { s.Ahead = execution.Ahead{Others: 1, Rivals: 1} },
			"It has been QUEUED for 1m30s: 1 execution goes before it: one of another user, whose turn it is.",
			[]execution.WaitCode{execution.WaitBehind},
		},
		"too large": {
			func(s *situation) { s.Execution.Request.Requirements.Slots = 9 },
			"It has been QUEUED for 1m30s: it needs 9 slots at one worker, and the largest of its class may give 8 slots.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"too large for the limit": {
			func(s *situation) { s.Cap = slots(1) },
			"It has been QUEUED for 1m30s: it needs 2 slots at one worker, and the largest of its class may give 1 slot.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"not before": {
			func(s *situation) { s.Execution.ReadyAt = noon.Add(26 * time.Hour) },
			"It has been QUEUED for 1m30s: it is not to start before 2026-03-02T14:00:00Z, which is in 1d2h.",
			[]execution.WaitCode{execution.WaitNotBefore},
		},
		"backoff": {
			func(s *situation) { s.Execution.Attempt, s.Execution.ReadyAt = 3, noon.Add(10*time.Second) },
			"It has been QUEUED for 1m30s: its last attempt came to nothing, and attempt 3 is due in 10s.",
			[]execution.WaitCode{execution.WaitBackoff},
		},
		"concurrency key": {
			func(s *situation) {
				s.Execution.Request.ConcurrencyKey, s.Predecessors = "acct-7", 2
				s.Predecessor = execution.Neighbour{ID: "first", State: execution.Running}
				s.Ahead.Higher, s.Used = 5, slots(16)
			},
			`It has been QUEUED for 1m30s: executions with the concurrency key "acct-7" run one at a time, in the order of their submission, and 2 come before it, the first of them first (RUNNING).`,
			[]execution.WaitCode{execution.WaitConcurrencyKey},
		},
		"full": {
			func(s *situation) {
				s.Used, s.Ahead.Higher, s.Next = slots(16), 1, execution.Neighbour{ID: "n", Needs: slots(1)}
			},
			`It has been QUEUED for 1m30s: all 16 slots of the resource class "gpu" are in use.`,
			[]execution.WaitCode{execution.WaitCapacity, execution.WaitBehind},
		},
		"nearly full": {
			func(s *situation) { s.Used, s.Overtake = slots(15), 2*time.Minute },
			`It has been QUEUED for 1m30s: 15 of the 16 slots of the resource class "gpu" are in use, and it needs 2.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"full by limit": {
			func(s *situation) { s.Cap, s.Used = slots(4), slots(4) },
			`It has been QUEUED for 1m30s: the resource class "gpu" may use 4 slots at once, and no more is free.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"a large one ahead": {
			func(s *situation) {
				s.Used, s.Ahead.Higher, s.Next = slots(10), 3, execution.Neighbour{ID: "big", Needs: slots(8)}
			},
			"It has been QUEUED for 1m30s: execution big at the head of the queue needs 8 slots, 6 are free, and nothing passes it any more.",
			[]execution.WaitCode{execution.WaitReserved, execution.WaitBehind},
		},
		"behind others": {
			func(s *situation) {
				s.Ahead.Higher, s.Next = execution.AheadMax, execution.Neighbour{ID: "n", Needs: slots(1)}
			},
			"It has been QUEUED for 1m30s: 10000 or more executions go before it: those of other users with a higher priority.",
			[]execution.WaitCode{execution.WaitBehind},
		},
		"on hold": {
			func(s *situation) {
				s.Holds = []execution.Hold{{What: "everything", By: "ann", Reason: "power cut at noon.", Since: noon.Add(-5 * time.Minute), Resume: "millrace queue resume --all"},
					{What: `the resource class "gpu"`, Since: noon.Add(-time.Hour), Resume: "millrace queue resume --class gpu"}}
				s.Used = slots(16)
			},
			"It has been QUEUED for 1m30s: everything was put on hold 5m ago by ann (power cut at noon).",
			[]execution.WaitCode{execution.WaitHold, execution.WaitHold},
		},
		"too much memory": {
			func(s *situation) {
				s.Execution.Request.Requirements.MemoryBytes, s.Largest.MemoryBytes = 64<<30, 24<<30
			},
			"It has been QUEUED for 1m30s: it needs 64 GiB of memory at one worker, and the largest of its class may give 24 GiB of memory.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"memory that nobody counts": {
			func(s *situation) { s.Execution.Request.Requirements.MemoryBytes = 64 << 30 },
			"It has been QUEUED for 1m30s: nothing is in its way, it is admitted in the next round.",
			[]execution.WaitCode{execution.WaitAdmission},
		},
		"no GPUs": {
			func(s *situation) { s.Execution.Request.Requirements.GPUs = 1 },
			"It has been QUEUED for 1m30s: it needs 1 GPU at one worker, and the largest of its class may give 0 GPUs.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"too large together": {
			func(s *situation) {
				s.Servable, s.Execution.Request.Requirements = false, topics.Requirements{Slots: 4, GPUs: 1, CPUMillis: 2500}
				s.Largest = topics.Requirements{Slots: 8, GPUs: 2, CPUMillis: 4000}
			},
			"It has been QUEUED for 1m30s: it needs 4 slots, 1 GPU and 2.5 CPUs at one worker, and none of its class has all of that together.",
			[]execution.WaitCode{execution.WaitTooLarge},
		},
		"a rate is used up": {
			func(s *situation) {
				s.Limits = []execution.Exhausted{{Name: "emails", Key: "acme", Rate: "10/1m", Next: noon.Add(4 * time.Second), Turn: noon.Add(22 * time.Second), Before: 3}}
				s.Used = slots(16)
			},
			`It has been QUEUED for 1m30s: the limit "emails" (10/1m) is used up for "acme": the next one may go in 4s; 3 of the same key go first.`,
			[]execution.WaitCode{execution.WaitLimit},
		},
		"so many run at once": {
			func(s *situation) {
				s.Limits = []execution.Exhausted{{Name: "db", Key: "acme", InUse: 2, Concurrency: 2, Before: 1}}
			},
			`It has been QUEUED for 1m30s: the limit "db" lets 2 run at once for "acme", and 2 do; 1 of the same key goes first.`,
			[]execution.WaitCode{execution.WaitLimit},
		},
		"no memory free": {
			func(s *situation) {
				s.Execution.Request.Requirements.MemoryBytes = 8 << 30
				s.Total.MemoryBytes, s.Largest.MemoryBytes, s.Used.MemoryBytes = 64<<30, 32<<30, 60<<30
				s.Overtake = 2 * time.Minute
			},
			`It has been QUEUED for 1m30s: 60 GiB of the 64 GiB of memory of the resource class "gpu" are in use, and it needs 8 GiB.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"a large one that is first": {
			func(s *situation) { s.Used = slots(15) },
			`It has been QUEUED for 1m30s: 15 of the 16 slots of the resource class "gpu" are in use, and it needs 2; it has waited for so long that nothing passes it any more.`,
			[]execution.WaitCode{execution.WaitCapacity},
		},
		"a large one ahead that still lets others pass": {
			func(s *situation) {
				s.Used, s.Ahead.Higher, s.Next = slots(10), 1, execution.Neighbour{ID: "big", Needs: slots(8), Ready: noon.Add(-time.Second)}
			},
			"It has been QUEUED for 1m30s: 1 execution goes before it: one of another user with a higher priority.",
			[]execution.WaitCode{execution.WaitBehind},
		},
		"more than its share": {
			func(s *situation) {
				s.Execution.Request.User, s.UserUsed, s.Used = "ada", slots(12), slots(16)
				s.Ahead = execution.Ahead{Own: 4, Others: 10, Rivals: 2}
			},
			`It has been QUEUED for 1m30s: all 16 slots of the resource class "gpu" are in use.`,
			[]execution.WaitCode{execution.WaitCapacity, execution.WaitShare, execution.WaitBehind},
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
		for _, code := range c.codes {
			explained[code] = true
		}
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
	for _, code := range execution.WaitCodes() {
		assert.True(t, explained[code], "no case leads to the reason %q", code)
	}
}

func TestTheOtherReasonsReadLikeSentencesToo(t *testing.T) {
	t.Parallel()
	s := situated(func(s *execution.Situation) {
		s.Execution.Request.User, s.UserUsed, s.Used = "ada", slots(12), slots(16)
		s.Ahead = execution.Ahead{Higher: 7, Own: 4, Others: 10, Rivals: 2}
	})
	waits := s.Explain().Waits
	require.Len(t, waits, 3)
	assert.Equal(t, "user ada holds 12 of the 16 slots of the resource class, and users who hold less go first", waits[1].Message)
	assert.Equal(t, "about 21 executions go before it: those of other users with a higher priority; those of its own user that came first; "+
		"those of other users, who take turns with its own", waits[2].Message)
	assert.Equal(t, "`millrace queue resume --class gpu`", situated(func(s *execution.Situation) {
		s.Holds = []execution.Hold{{What: "it", Since: noon, Resume: "millrace queue resume --class gpu"}}
	}).Explain().Waits[0].Release)
}

// Users take turns, so the place of an execution follows from how many of its own
// user come first, from how many users there are and what they hold, and not from how
// much waits of them.
func TestTurns(t *testing.T) {
	t.Parallel()
	type party = execution.Party
	many := func(weight, share float64) party { return party{Weight: weight, Share: share, Queued: 9000} }
	me := party{Weight: 1}
	for name, c := range map[string]struct {
		own    int
		user   party
		others []party
		want   int
	}{
		"nobody else":                          {5, me, nil, 0},
		"another with many":                    {4, me, []party{many(1, 0)}, 5},
		"another of twice the weight":          {4, me, []party{many(2, 0)}, 9},
		"of twice the weight itself":           {4, party{Weight: 2}, []party{many(1, 0)}, 2},
		"three with few":                       {100, me, []party{{Weight: 1, Queued: 1}, {Weight: 1, Queued: 1}, {Weight: 1, Queued: 2}}, 4},
		"another that holds more":              {0, me, []party{many(1, 0.5)}, 0},
		"another that holds less catches up":   {0, party{Weight: 1, Share: 0.5}, []party{many(1, 0.1)}, 5},
		"what another holds is caught up with": {10, me, []party{many(1, 0.5)}, 6},
		"very many": {execution.AheadMax, me, []party{
			{Weight: 1, Queued: 1_000_000}, {Weight: 1, Queued: 1_000_000}}, execution.AheadMax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, execution.Turns(c.own, c.user, 0.1, c.others))
		})
	}
	assert.Equal(t, execution.AheadMax, execution.Ahead{Higher: execution.AheadMax, Own: execution.AheadMax}.Count())
	assert.Equal(t, 57, execution.Ahead{Higher: 50, Own: 1, Others: 6}.Count())
}

func TestOutlook(t *testing.T) {
	t.Parallel()
	full := func(change ...func(*execution.Situation)) execution.Explanation {
		return situated(append([]func(*execution.Situation){func(s *execution.Situation) {
			s.Used, s.Ahead.Own, s.Rate = slots(16), 99, 0.5
		}}, change...)...).Explain()
	}
	x := full()
	assert.Equal(t, 100, x.Position)
	assert.Equal(t, noon.Add(200*time.Second), x.StartsAt)
	assert.Equal(t, "At the rate of the last minutes it starts in about 3m20s.", x.Outlook)

	x = full(func(s *execution.Situation) { s.Rate = 0 })
	assert.Equal(t, 100, x.Position, "where nothing is known of the rate there is a place all the same")
	assert.Zero(t, x.StartsAt)
	assert.Empty(t, x.Outlook)

	x = full(func(s *execution.Situation) {
		s.Holds = []execution.Hold{{What: "everything", Since: noon}}
	})
	assert.Zero(t, x.Position, "what is held has no place")
	assert.Zero(t, x.StartsAt)

	x = full(func(s *execution.Situation) { s.Execution.ReadyAt = noon.Add(time.Hour) })
	assert.Equal(t, noon.Add(time.Hour), x.StartsAt, "what asked for a time starts then")

	turn := noon.Add(time.Minute)
	x = full(func(s *execution.Situation) {
		s.Limits = []execution.Exhausted{{Name: "emails", Key: "a", Rate: "1/1m", Next: turn, Turn: turn}}
	})
	assert.Equal(t, turn, x.StartsAt)
	x = full(func(s *execution.Situation) { s.Execution.State = execution.Scheduled })
	assert.Zero(t, x.Position)
}
