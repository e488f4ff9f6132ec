package execution_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

func exited(code int) executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: "exit_code", ExitCode: &code, Retryable: true}
}

func TestClassesOfFailuresDecideAboutTheRetry(t *testing.T) {
	t.Parallel()
	var (
		killed   = executor.Result{Outcome: executor.Failed, Reason: "signal", Signal: "SIGKILL", Retryable: true}
		timedOut = executor.Stopped(executor.ErrRunLimit)
		hopeless = executor.Result{Outcome: executor.Failed, Reason: "start_failed"}
	)
	for name, tc := range map[string]struct {
		retryOn, neverOn []string
		result           executor.Result
		want             execution.State
	}{
		"everything by default":     {nil, nil, exited(1), execution.Queued},
		"but not a run limit":       {nil, nil, timedOut, execution.TimedOut},
		"a run limit that is named": {[]string{"run_limit"}, nil, timedOut, execution.Queued},
		"nor what is not named":     {[]string{"run_limit"}, nil, exited(1), execution.Failed},
		"a reason":                  {[]string{"exit_code"}, nil, exited(1), execution.Queued},
		"an exit code":              {[]string{"exit_code:75"}, nil, exited(75), execution.Queued},
		"another exit code":         {[]string{"exit_code:75"}, nil, exited(74), execution.Failed},
		"the first of a range":      {nil, []string{"exit_code:64-78"}, exited(64), execution.Failed},
		"the last of a range":       {nil, []string{"exit_code:64-78"}, exited(78), execution.Failed},
		"outside of a range":        {nil, []string{"exit_code:64-78"}, exited(79), execution.Queued},
		"a signal":                  {[]string{"signal:SIGKILL"}, nil, killed, execution.Queued},
		"another signal":            {[]string{"signal:SIGSEGV"}, nil, killed, execution.Failed},
		"never wins":                {[]string{"exit_code"}, []string{"exit_code:2"}, exited(2), execution.Failed},
		"one of several":            {[]string{"signal", "exit_code:2", "exit_code:3"}, nil, exited(3), execution.Queued},
		"what cannot end otherwise, even when named": {[]string{"start_failed"}, nil, hopeless, execution.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := running(t, func(r *topics.Request) {
				r.Retry = topics.Retry{MaxAttempts: 2, RetryOn: tc.retryOn, NeverOn: tc.neverOn}
				require.NoError(t, execution.Normalize(r, start))
			})
			require.NoError(t, e.Finish(start, "w", 1, tc.result, execution.DefaultPolicy()))
			assert.Equal(t, tc.want, e.State)
		})
	}
}

func TestRunLimitsCostAttempts(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t, func(r *topics.Request) {
		r.Retry = topics.Retry{MaxAttempts: 2, RetryOn: []string{"run_limit"}}
	})
	require.NoError(t, e.Finish(start, "w", 1, executor.Stopped(executor.ErrRunLimit), p))
	require.Equal(t, execution.Queued, e.State)
	again(t, e, start)
	require.NoError(t, e.Finish(start, "w", 2, executor.Stopped(executor.ErrRunLimit), p))
	assert.Equal(t, execution.TimedOut, e.State)
	assert.Equal(t, "run", e.Result.Limit)
}

// again admits and starts a queued execution.
func again(t *testing.T, e *execution.Execution, at time.Time) {
	t.Helper()
	_, err := e.Schedule(at, "admitter", topics.ScheduledInTurn, execution.DefaultPolicy())
	require.NoError(t, err)
	require.NoError(t, e.Start(at, "w", e.Attempt, time.Minute))
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	failed := executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}
	failedOnce := func(t *testing.T) *execution.Execution {
		e := running(t, func(r *topics.Request) {
			r.Retry = topics.Retry{MaxAttempts: 10, Backoff: topics.Duration(10 * time.Second), MaxAge: topics.Duration(time.Minute)}
		})
		require.NoError(t, e.Finish(start.Add(30*time.Second), "w", 1, failed, p))
		require.Equal(t, execution.Queued, e.State)
		e.TakeEvents()
		return e
	}
	t.Run("a retry that could only start later does not happen", func(t *testing.T) {
		t.Parallel()
		e := failedOnce(t)
		again(t, e, start.Add(40*time.Second))
		require.NoError(t, e.Finish(start.Add(45*time.Second), "w", 2, failed, p))
		assert.Equal(t, execution.Failed, e.State, "the backoff is 20 s by now, and ends after a minute")
		assert.Equal(t, "exit_code", e.Result.Reason)
	})
	t.Run("a retry that waits for too long is given up", func(t *testing.T) {
		t.Parallel()
		e := failedOnce(t)
		assert.Equal(t, start.Add(time.Minute), e.DueAt)
		assert.False(t, e.Expire(start.Add(59*time.Second), p))
		require.True(t, e.Expire(start.Add(time.Minute), p))
		assert.Equal(t, execution.Failed, e.State)
		assert.Equal(t, "max_age", e.Result.Reason)
		assert.Equal(t, []string{"millrace.execution.failed.v1"}, types(e.TakeEvents()))
	})
	t.Run("so is one that no worker takes", func(t *testing.T) {
		t.Parallel()
		e := failedOnce(t)
		_, err := e.Schedule(start.Add(50*time.Second), "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		assert.Equal(t, start.Add(time.Minute), e.DueAt)
		require.True(t, e.Expire(start.Add(time.Minute), p))
		assert.Equal(t, "max_age", e.Result.Reason)
	})
	t.Run("one that has started may end later", func(t *testing.T) {
		t.Parallel()
		e := failedOnce(t)
		again(t, e, start.Add(59*time.Second))
		require.NoError(t, e.Finish(start.Add(time.Hour), "w", 2, executor.Result{Outcome: executor.Completed}, p))
		assert.Equal(t, execution.Completed, e.State)
	})
	t.Run("the first attempt may start at any age", func(t *testing.T) {
		t.Parallel()
		e := execution.New(id, request(t, func(r *topics.Request) { r.Retry.MaxAge = topics.Duration(time.Minute) }), start)
		require.NoError(t, e.Queue(start, p))
		assert.False(t, e.Expire(start.Add(time.Hour), p))
	})
}

func TestWhatMayNotRunTwiceEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	once := func(r *topics.Request) { r.Retry.NeverOn = []string{"lease_expired", "shutdown"} }
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		e := running(t, once)
		e.TakeEvents()
		require.True(t, e.Expire(e.LeaseExpiresAt, p))
		assert.Equal(t, execution.Failed, e.State)
		assert.Equal(t, "lease_expired", e.Result.Reason)
		assert.Equal(t, []string{"millrace.execution.lease_expired.v1", "millrace.execution.failed.v1"}, types(e.TakeEvents()))
	})
	for name, tc := range map[string]struct {
		result executor.Result
		reason string
	}{
		"handed back":               {executor.Stopped(executor.ErrShutdown), "shutdown"},
		"stopped by its own worker": {executor.Stopped(executor.ErrLeaseLost), "lease_lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := running(t, once)
			require.NoError(t, e.Finish(start, "w", 1, tc.result, p))
			assert.Equal(t, execution.Failed, e.State)
			assert.Equal(t, tc.reason, e.Result.Reason)
		})
	}
	t.Run("others do, although retry_on does not name it", func(t *testing.T) {
		t.Parallel()
		e := running(t, func(r *topics.Request) { r.Retry.RetryOn = []string{"exit_code"} })
		require.True(t, e.Expire(e.LeaseExpiresAt, p))
		assert.Equal(t, execution.Queued, e.State)
	})
}

func TestACancelIsNotLostWithTheAttempt(t *testing.T) {
	t.Parallel()
	e := running(t)
	require.NoError(t, e.RequestCancel(start, "ann", "enough"))
	require.NoError(t, e.Finish(start, "w", 1, executor.Stopped(executor.ErrShutdown), execution.DefaultPolicy()))
	assert.Equal(t, execution.Cancelled, e.State)
	assert.Equal(t, "enough", e.Result.Message)
}

// Work that is to be cancelled and loses what it runs on has not failed. Work that fails by
// itself before it is told has.
func TestACancelCountsMoreThanALoss(t *testing.T) {
	t.Parallel()
	for disrupted, state := range map[bool]execution.State{true: execution.Cancelled, false: execution.Failed} {
		e := running(t, func(r *topics.Request) { r.Retry.MaxAttempts = 3 })
		require.NoError(t, e.RequestCancel(start, "ann", "enough"))
		lost := executor.Result{Outcome: executor.Failed, Reason: "node_lost", Retryable: true, Disrupted: disrupted}
		require.NoError(t, e.Finish(start, "w", 1, lost, execution.DefaultPolicy()))
		assert.Equal(t, state, e.State)
	}
	e := running(t, func(r *topics.Request) { r.Retry.MaxAttempts = 3 })
	lost := executor.Result{Outcome: executor.Failed, Reason: "node_lost", Retryable: true, Disrupted: true}
	require.NoError(t, e.Finish(start, "w", 1, lost, execution.DefaultPolicy()))
	assert.Equal(t, execution.Queued, e.State)
	assert.Equal(t, 1, e.Failures, "it is a failure all the same")
}

func TestFormsOfClasses(t *testing.T) {
	t.Parallel()
	check := func(class string) error {
		req := request(t)
		req.Retry.NeverOn = []string{class}
		return execution.Normalize(&req, start)
	}
	for _, class := range []string{
		"exit_code", "exit_code:1", "exit_code:255", "exit_code:3-3", "signal", "signal:SIGRTMIN+1",
		"function_error", "card_declined", "lease_expired", "shutdown", "run_limit",
	} {
		assert.NoError(t, check(class), class)
	}
	for _, class := range []string{
		"", ":", "exit_code:", "exit_code:0", "exit_code:256", "exit_code:5-4", "exit_code:a", "exit_code:1-2-3", "exit_code:-1",
		"signal:KILL", "signal:", "function_error:x", "Exit_code", "exit code", "cancelled", "total_limit", "lease_lost",
	} {
		assert.Error(t, check(class), class)
	}
}

// The total limit is counted from the request over all attempts and waits.
func TestTotalLimitSpansRetries(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	failed := executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}
	retried := func(t *testing.T) *execution.Execution {
		e := running(t, func(r *topics.Request) {
			r.Limits.Run, r.Limits.Total = topics.Duration(time.Hour), topics.Duration(time.Minute)
			r.Retry = topics.Retry{MaxAttempts: 10, Backoff: topics.Duration(time.Second), RetryOn: []string{"exit_code", "run_limit"}}
		})
		require.NoError(t, e.Finish(start.Add(30*time.Second), "w", 1, failed, p))
		require.Equal(t, execution.Queued, e.State)
		return e
	}
	t.Run("in the queue", func(t *testing.T) {
		t.Parallel()
		e := retried(t)
		assert.Equal(t, start.Add(time.Minute), e.DueAt)
		require.True(t, e.Expire(e.DueAt, p))
		assert.Equal(t, "total", e.Result.Limit)
	})
	t.Run("while scheduled", func(t *testing.T) {
		t.Parallel()
		e := retried(t)
		_, err := e.Schedule(start.Add(31*time.Second), "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err)
		assert.Equal(t, start.Add(time.Minute), e.DueAt)
		require.True(t, e.Expire(e.DueAt, p))
		assert.Equal(t, "total", e.Result.Limit)
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		e := retried(t)
		again(t, e, start.Add(40*time.Second))
		assert.Equal(t, start.Add(time.Minute), e.RunDeadline(), "an hour less would be the run limit's")
		// The worker's clock is ahead of the database's by a little.
		require.NoError(t, e.Finish(start.Add(59*time.Second), "w", 2, executor.Stopped(executor.ErrRunLimit), p))
		assert.Equal(t, execution.TimedOut, e.State, "no retry, whatever the policy names")
		assert.Equal(t, "total", e.Result.Limit)
	})
	t.Run("with the worker lost", func(t *testing.T) {
		t.Parallel()
		e := retried(t)
		again(t, e, start.Add(59*time.Second))
		require.True(t, e.Expire(e.LeaseExpiresAt, p))
		assert.Equal(t, execution.TimedOut, e.State)
		assert.Equal(t, "total", e.Result.Limit)
	})
}

func TestQueueLimitEndsWithTheFirstAdmission(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	limited := func(r *topics.Request) {
		attempts(3)(r)
		r.Limits.Queue = topics.Duration(time.Minute)
	}
	t.Run("a retry has none", func(t *testing.T) {
		t.Parallel()
		e := running(t, limited)
		require.NoError(t, e.Finish(start.Add(time.Hour), "w", 1, executor.Result{Outcome: executor.Failed, Retryable: true}, p))
		assert.Zero(t, e.DueAt)
		assert.False(t, e.Expire(start.Add(2*time.Hour), p))
	})
	t.Run("waiting for not_before does not count", func(t *testing.T) {
		t.Parallel()
		begin := start.Add(time.Hour)
		e := execution.New(id, request(t, limited, func(r *topics.Request) { r.NotBefore = &begin }), start)
		assert.False(t, e.Expire(begin, p))
		require.NoError(t, e.Queue(start, p))
		assert.False(t, e.Expire(begin, p))
		require.True(t, e.Expire(begin.Add(time.Minute), p))
		assert.Equal(t, "queue", e.Result.Limit)
	})
}
