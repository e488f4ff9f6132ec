package execution_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const id = "01890000-0000-7000-8000-000000000001"

func request(t require.TestingT, change ...func(*topics.Request)) topics.Request {
	req := topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
	for _, f := range change {
		f(&req)
	}
	require.NoError(t, execution.Normalize(&req, start))
	return req
}

func attempts(n int) func(*topics.Request) {
	return func(r *topics.Request) { r.Retry = topics.Retry{MaxAttempts: n, Backoff: topics.Duration(time.Second)} }
}

// running returns an execution whose first attempt worker w has just started.
func running(t require.TestingT, change ...func(*topics.Request)) *execution.Execution {
	p := execution.DefaultPolicy()
	e := execution.New(id, request(t, change...), start)
	require.NoError(t, e.Queue(start, p))
	_, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
	require.NoError(t, err)
	require.NoError(t, e.Start(start, "w", 1, 30*time.Second))
	e.TakeEvents()
	return e
}

func types(events []execution.Recorded) []string {
	names := make([]string, len(events))
	for i, r := range events {
		names[i] = r.Event.EventType()
	}
	return names
}

func TestHappyPathRecordsOneEventPerChange(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := execution.New(id, request(t), start)
	require.NoError(t, e.Queue(start, p))
	task, err := e.Schedule(start.Add(time.Second), "admitter", topics.ScheduledInTurn, p)
	require.NoError(t, err)
	assert.Equal(t, 1, task.Attempt)
	require.NoError(t, e.Start(start.Add(2*time.Second), "w", 1, 30*time.Second))
	code := 0
	result := executor.Result{Outcome: executor.Completed, ExitCode: &code}
	require.NoError(t, e.Finish(start.Add(3*time.Second), "w", 1, result, p))

	events := e.TakeEvents()
	assert.Equal(t, []string{
		"millrace.execution.requested.v1", "millrace.execution.queued.v1", "millrace.execution.scheduled.v1",
		"millrace.execution.started.v1", "millrace.execution.completed.v1",
	}, types(events))
	for i, r := range events {
		assert.EqualValues(t, i+1, r.Sequence)
	}
	assert.Equal(t, execution.Completed, e.State)
	assert.True(t, e.DueAt.IsZero(), "nothing is due once it has ended")
	completed := events[4].Event.(topics.ExecutionCompleted)
	assert.EqualValues(t, 1000, completed.DurationMillis)
}

func TestFailureWithAttemptsLeftIsRequeuedWithBackoff(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t, attempts(3))
	failed := executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}
	require.NoError(t, e.Finish(start, "w", 1, failed, p))

	events := e.TakeEvents()
	require.Equal(t, []string{"millrace.execution.requeued.v1"}, types(events))
	requeued := events[0].Event.(topics.ExecutionRequeued)
	assert.Equal(t, "failed", requeued.Cause)
	assert.Equal(t, 2, requeued.Attempt)
	assert.Equal(t, "exit_code", requeued.Failure.Reason)
	assert.Equal(t, start.Add(time.Second), e.ReadyAt)
	assert.Equal(t, execution.Queued, e.State)

	t.Run("an old attempt cannot report any more", func(t *testing.T) {
		require.ErrorIs(t, e.Finish(start, "w", 1, failed, p), execution.ErrStaleAttempt)
		assert.Empty(t, e.TakeEvents())
	})
}

func TestFailureIsFinal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*topics.Request)
		result executor.Result
		at     time.Duration
	}{
		"no attempts left": {attempts(1), executor.Result{Outcome: executor.Failed, Retryable: true}, 0},
		"not retryable":    {attempts(5), executor.Result{Outcome: executor.Failed}, 0},
		"total limit passed": {func(r *topics.Request) {
			attempts(5)(r)
			r.Limits.Total = topics.Duration(time.Minute)
		}, executor.Result{Outcome: executor.Failed, Retryable: true}, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := running(t, tc.change)
			require.NoError(t, e.Finish(start.Add(tc.at), "w", 1, tc.result, execution.DefaultPolicy()))
			assert.Equal(t, []string{"millrace.execution.failed.v1"}, types(e.TakeEvents()))
			assert.Equal(t, execution.Failed, e.State)
		})
	}
}

func TestBackoffDoublesToItsCap(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t, func(r *topics.Request) {
		r.Retry = topics.Retry{
			MaxAttempts: 10, Backoff: topics.Duration(time.Second), MaxBackoff: topics.Duration(5 * time.Second),
		}
	})
	var waits []time.Duration
	for attempt := 1; attempt <= 5; attempt++ {
		require.NoError(t, e.Finish(start, "w", attempt, executor.Result{Outcome: executor.Failed, Retryable: true}, p))
		waits = append(waits, e.ReadyAt.Sub(start))
		_, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		require.NoError(t, e.Start(start, "w", attempt+1, time.Second))
	}
	s := time.Second
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}, waits)
}

func TestLostWorker(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	late := start.Add(31 * time.Second)

	t.Run("before the lease ends nothing happens", func(t *testing.T) {
		t.Parallel()
		e := running(t)
		assert.False(t, e.Expire(start.Add(29*time.Second), p))
		assert.Empty(t, e.TakeEvents())
	})
	t.Run("the next attempt costs no attempt of the retry policy", func(t *testing.T) {
		t.Parallel()
		e := running(t, attempts(1))
		require.True(t, e.Expire(late, p))
		events := e.TakeEvents()
		require.Equal(t, []string{"millrace.execution.lease_expired.v1", "millrace.execution.requeued.v1"}, types(events))
		assert.Equal(t, "w", events[0].Event.(topics.ExecutionLeaseExpired).Worker)
		assert.Equal(t, 2, e.Attempt)
		assert.Equal(t, execution.Queued, e.State)
	})
	t.Run("after too many it is quarantined", func(t *testing.T) {
		t.Parallel()
		e := running(t)
		now := start
		for e.State != execution.Quarantined {
			require.Less(t, e.Deliveries, p.MaxDeliveries)
			now = now.Add(time.Minute)
			require.True(t, e.Expire(now, p))
			if e.State == execution.Queued {
				_, err := e.Schedule(now, "admitter", topics.ScheduledInTurn, p)
				require.NoError(t, err)
				require.NoError(t, e.Start(now, "w", e.Attempt, 30*time.Second))
			}
		}
		assert.Equal(t, p.MaxDeliveries, e.Deliveries)
	})
	t.Run("a cancel that was asked for is kept", func(t *testing.T) {
		t.Parallel()
		e := running(t)
		require.NoError(t, e.RequestCancel(start, "ann", "too slow"))
		require.True(t, e.Expire(late, p))
		assert.Equal(t, execution.Cancelled, e.State)
		assert.Equal(t, "too slow", e.Result.Message)
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	t.Run("before the start at once", func(t *testing.T) {
		t.Parallel()
		e := execution.New(id, request(t), start)
		require.NoError(t, e.RequestCancel(start, "ann", ""))
		assert.Equal(t, execution.Cancelled, e.State)
		require.ErrorIs(t, e.RequestCancel(start, "ann", ""), execution.ErrTerminal)
		require.ErrorIs(t, e.Queue(start, p), execution.ErrTerminal)
	})
	t.Run("while running once", func(t *testing.T) {
		t.Parallel()
		e := running(t)
		require.NoError(t, e.RequestCancel(start, "ann", "no longer needed"))
		require.NoError(t, e.RequestCancel(start, "bob", "me too"))
		assert.Equal(t, []string{"millrace.execution.cancel_requested.v1"}, types(e.TakeEvents()))
		require.NoError(t, e.Finish(start, "w", 1, executor.Result{Outcome: executor.Cancelled}, p))
		cancelled := e.TakeEvents()[0].Event.(topics.ExecutionCancelled)
		assert.Equal(t, "ann", cancelled.By)
		assert.True(t, cancelled.WasRunning)
	})
	t.Run("an attempt that completed first stays completed", func(t *testing.T) {
		t.Parallel()
		e := running(t)
		require.NoError(t, e.RequestCancel(start, "ann", ""))
		require.NoError(t, e.Finish(start, "w", 1, executor.Result{Outcome: executor.Completed}, p))
		assert.Equal(t, execution.Completed, e.State)
	})
	t.Run("a failure after a cancel is not tried again", func(t *testing.T) {
		t.Parallel()
		e := running(t, attempts(5))
		require.NoError(t, e.RequestCancel(start, "ann", ""))
		require.NoError(t, e.Finish(start, "w", 1, executor.Result{Outcome: executor.Failed, Retryable: true}, p))
		assert.Equal(t, execution.Failed, e.State)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		e := execution.New(id, request(t, func(r *topics.Request) { r.Limits.Queue = topics.Duration(time.Minute) }), start)
		require.NoError(t, e.Queue(start, p))
		assert.Equal(t, start.Add(time.Minute), e.DueAt)
		assert.False(t, e.Expire(start.Add(59*time.Second), p))
		require.True(t, e.Expire(start.Add(time.Minute), p))
		assert.Equal(t, execution.TimedOut, e.State)
		assert.Equal(t, "queue", e.Result.Limit)
	})
	t.Run("start sends back to the queue and makes the old record stale", func(t *testing.T) {
		t.Parallel()
		e := execution.New(id, request(t), start)
		require.NoError(t, e.Queue(start, p))
		_, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		require.True(t, e.Expire(start.Add(p.StartLimit), p))
		assert.Equal(t, execution.Queued, e.State)
		_, err = e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		require.ErrorIs(t, e.Start(start, "w", 1, time.Second), execution.ErrStaleAttempt)
		require.NoError(t, e.Start(start, "w", 2, time.Second))
	})
	t.Run("run and total", func(t *testing.T) {
		t.Parallel()
		e := running(t, func(r *topics.Request) {
			r.Limits.Run = topics.Duration(time.Minute)
			r.Limits.Total = topics.Duration(2 * time.Minute)
		})
		assert.Equal(t, start.Add(time.Minute), e.RunDeadline())
		require.NoError(t, e.Finish(start.Add(time.Minute), "w", 1, executor.Result{Outcome: executor.TimedOut}, p))
		assert.Equal(t, "run", e.Result.Limit)
	})
}

func TestPriorityIsWorthAge(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	queued := func(priority int, at time.Time) *execution.Execution {
		e := execution.New(id, request(t, func(r *topics.Request) { r.Priority = priority }), at)
		require.NoError(t, e.Queue(at, p))
		return e
	}
	urgent, old := queued(5, start.Add(time.Minute)), queued(1, start)
	assert.True(t, urgent.Rank.Before(old.Rank), "a more urgent one overtakes")
	older := queued(1, start.Add(-4*p.AgeingStep))
	assert.True(t, older.Rank.Before(urgent.Rank), "but not one that has waited four steps longer")
}

// TestAnyHistory drives an execution with random commands at random times and
// checks what must hold whatever happens: versions without gaps, no way out of a
// terminal state, and a state that readers can tell from the events alone.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := execution.DefaultPolicy()
		now := start
		req := request(t, func(r *topics.Request) {
			r.Retry.MaxAttempts = rapid.IntRange(1, 4).Draw(t, "attempts")
			r.Retry.MaxAge = topics.Duration(rapid.IntRange(0, 120).Draw(t, "max age")) * topics.Duration(time.Second)
			r.Retry.RetryOn = rapid.SampledFrom([][]string{nil, {"run_limit"}, {"unspecified", "run_limit"}}).Draw(t, "retry on")
			r.Retry.NeverOn = rapid.SampledFrom([][]string{nil, {"lease_expired"}, {"unspecified"}}).Draw(t, "never on")
			r.Limits.Total = topics.Duration(rapid.IntRange(0, 300).Draw(t, "total")) * topics.Duration(time.Second)
			r.Limits.Queue = topics.Duration(rapid.IntRange(0, 60).Draw(t, "queue")) * topics.Duration(time.Second)
		})
		e := execution.New(id, req, now)
		told := execution.State("")
		var version int64
		attempt := 0
		check := func() {
			terminal := told.Terminal()
			for _, r := range e.TakeEvents() {
				version++
				require.Equal(t, version, r.Sequence, "versions have no gaps")
				env, err := topics.NewEnvelope(r.Event)
				require.NoError(t, err)
				require.NoError(t, topics.ValidateData(env), "readers accept what is written")
				require.False(t, terminal, "%s after the end", r.Event.EventType())
				if s, changes := execution.StateAfter(r.Event.EventType()); changes {
					told = s
				}
			}
			require.Equal(t, told, e.State, "the events tell the state")
			require.Equal(t, version, e.Version)
			require.GreaterOrEqual(t, e.Attempt, attempt, "the fencing token never goes back")
			attempt = e.Attempt
			require.Equal(t, e.State.Terminal(), e.Result != nil)
			require.Equal(t, e.State == execution.Running, !e.LeaseExpiresAt.IsZero())
		}
		check()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "wait")) * time.Second)
			var err error
			switch rapid.IntRange(0, 6).Draw(t, "command") {
			case 0:
				err = e.Queue(now, p)
			case 1:
				_, err = e.Schedule(now, "admitter", topics.ScheduledInTurn, p)
			case 2:
				err = e.Start(now, rapid.SampledFrom([]string{"v", "w"}).Draw(t, "worker"), e.Attempt, 30*time.Second)
			case 3:
				err = e.Finish(now, rapid.SampledFrom([]string{"v", "w"}).Draw(t, "worker"),
					rapid.IntRange(max(e.Attempt-1, 0), e.Attempt).Draw(t, "attempt"), executor.Result{
						Outcome: rapid.SampledFrom([]executor.Outcome{
							executor.Completed, executor.Failed, executor.TimedOut, executor.Cancelled, executor.Abandoned,
						}).Draw(t, "outcome"),
						Retryable: rapid.Bool().Draw(t, "retryable"),
					}, p)
			case 4:
				err = e.RequestCancel(now, "ann", "")
			case 5:
				e.Expire(now, p)
			case 6:
				err = e.Reject(now, "reason", "message", 0)
			}
			if err != nil {
				require.True(t, errors.Is(err, execution.ErrIllegal) || errors.Is(err, execution.ErrTerminal) ||
					errors.Is(err, execution.ErrStaleAttempt), "%v", err)
			}
			check()
		}
	})
}

func TestARejectionSaysWhenToAskAgain(t *testing.T) {
	t.Parallel()
	e := execution.New(id, request(t), start)
	require.NoError(t, e.Reject(start, topics.RejectedLimitKeyInvalid, "message", 20*time.Second))
	assert.Equal(t, execution.Rejected, e.State)
	assert.Equal(t, &execution.Result{Reason: "limit_key_invalid", Message: "message", RetryAfter: topics.Duration(20 * time.Second)}, e.Result)
	recorded := e.TakeEvents()
	assert.Equal(t, topics.ExecutionRejected{
		ExecutionID: id, Reason: "limit_key_invalid", Message: "message", RetryAfter: topics.Duration(20 * time.Second),
	}, recorded[len(recorded)-1].Event)
}
