package execution_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// full is the end of an attempt for which there was no room.
func full(wait time.Duration) executor.Result {
	return executor.Result{
		Outcome: executor.Abandoned, Reason: "quota_exceeded", Message: "the quota of the namespace is used up", Retryable: true, RetryAfter: wait,
	}
}

// restart has the execution admitted again and taken by a worker.
func restart(t *testing.T, e *execution.Execution, at time.Time) {
	t.Helper()
	_, err := e.Schedule(at, "admitter", topics.ScheduledInTurn, execution.DefaultPolicy())
	require.NoError(t, err)
	require.NoError(t, e.Start(at, "w", e.Attempt, 30*time.Second))
}

// Whatever takes an attempt from its worker leaves its work to be carried on; only a
// failure has it begin afresh.
func TestWorkBeginsAfreshAfterAFailureOnly(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t, attempts(3))
	at := start
	finish := func(r executor.Result) {
		at = at.Add(time.Minute)
		require.NoError(t, e.Finish(at, "w", e.Attempt, r, p))
	}
	expire := func() {
		at = at.Add(time.Hour)
		require.True(t, e.Expire(at, p))
	}
	type numbers struct{ attempt, first int }
	now := func() numbers { return numbers{e.Attempt, e.First} }
	require.Equal(t, numbers{1, 1}, now())

	finish(executor.Stopped(executor.ErrShutdown))
	assert.Equal(t, numbers{2, 1}, now(), "handed back")
	restart(t, e, at)
	expire()
	assert.Equal(t, numbers{3, 1}, now(), "its worker was lost")
	_, err := e.Schedule(at, "admitter", topics.ScheduledInTurn, p)
	require.NoError(t, err)
	expire()
	assert.Equal(t, numbers{4, 1}, now(), "nobody took it")
	restart(t, e, at)
	finish(full(time.Minute))
	assert.Equal(t, numbers{5, 1}, now(), "there was no room")
	assert.Zero(t, e.Failures)
	restart(t, e, at)
	finish(executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true})
	assert.Equal(t, numbers{6, 6}, now(), "it failed")
	restart(t, e, at)
	expire()
	assert.Equal(t, numbers{7, 6}, now())
}

// A row of an earlier version does not say where the work began.
func TestTheWorkOfEarlierVersionsIsCarriedOn(t *testing.T) {
	t.Parallel()
	e := running(t)
	e.Attempt, e.First = 4, 0
	assert.Equal(t, 4, e.Origin())
	require.True(t, e.Expire(start.Add(time.Hour), execution.DefaultPolicy()))
	assert.Equal(t, 5, e.Attempt)
	assert.Equal(t, 4, e.Origin())
}

// Work that outlives its workers is not quarantined for having seen many of them go, but for
// taking them down one after the other.
func TestLostWorkersCountAgainstWorkThatTakesThemDown(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	lose := func(executor string, after time.Duration) (*execution.Execution, int) {
		e := running(t)
		e.Request.Executor = executor
		at := start
		for n := 1; n < 20; n++ {
			e.Renew(at.Add(after), time.Second)
			at = at.Add(after + time.Second)
			require.True(t, e.Expire(at, p))
			if e.State.Terminal() {
				return e, n
			}
			restart(t, e, at)
		}
		return e, 20
	}
	e, n := lose("kubernetes", 10*time.Minute)
	assert.Equal(t, execution.Running, e.State)
	assert.Equal(t, 20, n)
	assert.Equal(t, 1, e.First)
	for _, c := range []struct {
		executor string
		after    time.Duration
	}{{"kubernetes", time.Minute}, {"workflow", time.Minute}, {"process", time.Hour}} {
		e, n := lose(c.executor, c.after)
		assert.Equal(t, execution.Quarantined, e.State, c.executor)
		assert.Equal(t, p.MaxDeliveries, n, c.executor)
	}
}

func TestWhatIsPostponedWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t)
	at := start
	var waits []time.Duration
	for n := range 7 {
		require.NoError(t, e.Finish(at, "w", e.Attempt, full(15*time.Second), p))
		assert.Equal(t, execution.Queued, e.State)
		assert.Equal(t, execution.WaitingForTime, e.Waiting)
		require.NotNil(t, e.Setback)
		assert.Equal(t, execution.Setback{
			Cause: topics.RequeuedPostponed, Reason: "quota_exceeded", Message: "the quota of the namespace is used up", Times: n + 1, Since: start,
		}, *e.Setback)
		waits = append(waits, e.ReadyAt.Sub(at))
		at = e.ReadyAt
		restart(t, e, at)
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	assert.Equal(t, []time.Duration{seconds(15), seconds(30), seconds(60), seconds(120), seconds(240), seconds(300), seconds(300)}, waits)
	events := e.TakeEvents()
	requeued := events[0].Event.(topics.ExecutionRequeued)
	assert.Equal(t, topics.RequeuedPostponed, requeued.Cause)
	assert.Equal(t, "the quota of the namespace is used up", requeued.Failure.Message)

	// An executor that asks for longer gets longer, and another cause ends the row.
	require.NoError(t, e.Finish(at, "w", e.Attempt, full(time.Hour), p))
	assert.Equal(t, time.Hour, e.ReadyAt.Sub(at))
	restart(t, e, at)
	require.NoError(t, e.Finish(at, "w", e.Attempt, executor.Stopped(executor.ErrShutdown), p))
	assert.Equal(t, topics.RequeuedHandedBack, e.Setback.Cause)
	assert.Equal(t, 1, e.Setback.Times)
	restart(t, e, at)
	require.NoError(t, e.Finish(at, "w", e.Attempt, full(time.Second), p))
	assert.Equal(t, time.Second, e.ReadyAt.Sub(at))
	restart(t, e, at)
	require.NoError(t, e.Finish(at, "w", e.Attempt, executor.Result{Outcome: executor.Completed}, p))
	assert.Nil(t, e.Setback, "the end says how it ended")
}

func TestASetbackKeepsTheBeginningOfALongMessage(t *testing.T) {
	t.Parallel()
	e := running(t)
	r := full(time.Second)
	r.Message = "x" + strings.Repeat("\u00e9", 4000)
	require.NoError(t, e.Finish(start, "w", 1, r, execution.DefaultPolicy()))
	assert.Equal(t, r.Message[:2047], e.Setback.Message, "no letter is cut in two")
}

// Postponing does not get in the way of those who want it to end.
func TestWhatIsNotToWaitIsNotPostponed(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t)
	require.NoError(t, e.RequestCancel(start, "ann", ""))
	require.NoError(t, e.Finish(start, "w", 1, full(time.Minute), p))
	assert.Equal(t, execution.Cancelled, e.State)

	e = running(t, func(r *topics.Request) { r.Retry.NeverOn = []string{"quota_exceeded"} })
	require.NoError(t, e.Finish(start, "w", 1, full(time.Minute), p))
	assert.Equal(t, execution.Failed, e.State)
	assert.Equal(t, "quota_exceeded", e.Result.Reason)

	e = running(t, func(r *topics.Request) { r.Limits.Total = topics.Duration(time.Minute) })
	require.NoError(t, e.Finish(start, "w", 1, full(time.Hour), p))
	assert.Equal(t, execution.Queued, e.State)
	require.True(t, e.Expire(start.Add(time.Minute), p))
	assert.Equal(t, execution.TimedOut, e.State)
	assert.Equal(t, topics.TimedOutTotal, e.Result.Limit)
}

// The work of an attempt that carries on may reach its run limit long before the attempt
// would have.
func TestTheRunLimitOfWorkThatIsCarriedOn(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	limits := func(r *topics.Request) {
		r.Limits.Run, r.Limits.Total = topics.Duration(time.Hour), topics.Duration(90*time.Minute)
	}
	timedOut := executor.Stopped(executor.ErrRunLimit)
	for name, c := range map[string]struct {
		after time.Duration
		limit string
	}{
		"its run limit":            {time.Hour, topics.TimedOutRun},
		"the total limit, nearly":  {90*time.Minute - time.Millisecond, topics.TimedOutTotal},
		"the total limit has gone": {91 * time.Minute, topics.TimedOutTotal},
	} {
		e := running(t, limits)
		require.NoError(t, e.Finish(start.Add(50*time.Minute), "w", 1, executor.Stopped(executor.ErrShutdown), p))
		restart(t, e, start.Add(50*time.Minute))
		require.NoError(t, e.Finish(start.Add(c.after), "w", 2, timedOut, p))
		assert.Equal(t, execution.TimedOut, e.State, name)
		assert.Equal(t, c.limit, e.Result.Limit, name)
	}
}

func TestExplainOfWhatIsPostponed(t *testing.T) {
	t.Parallel()
	s := situated(func(s *execution.Situation) {
		s.Execution.Request.Executor, s.Executors = "kubernetes", []string{"kubernetes"}
		s.Execution.Attempt, s.Execution.ReadyAt = 4, noon.Add(40*time.Second)
		s.Execution.Setback = &execution.Setback{
			Cause: topics.RequeuedPostponed, Reason: "quota_exceeded", Message: "exceeded quota: pods, requested: 1, used: 10, limited: 10.",
			Times: 3, Since: noon.Add(-2 * time.Minute),
		}
	})
	x := s.Explain()
	require.NotEmpty(t, x.Waits)
	assert.Equal(t, execution.Wait{
		Code: execution.WaitNoRoom,
		Message: `there is no room for it where the executor "kubernetes" runs things: exceeded quota: pods, requested: 1, used: 10, limited: 10; ` +
			`it was tried 3 times in 2m, and is tried again in 40s`,
		Release: "room there; it is tried again at 2026-03-01T12:00:40Z", Until: noon.Add(40 * time.Second),
	}, x.Waits[0])
	assert.Equal(t, noon.Add(40*time.Second), x.StartsAt)

	s.Execution.Setback = &execution.Setback{Cause: topics.RequeuedFailed, Reason: "exit_code", Message: "exit status 3", Times: 1}
	assert.Equal(t, "its last attempt came to nothing: exit status 3, and attempt 4 is due in 40s", s.Explain().Waits[0].Message)
	s.Execution.Setback.Message = ""
	assert.Equal(t, "its last attempt came to nothing: exit_code, and attempt 4 is due in 40s", s.Explain().Waits[0].Message)
}
