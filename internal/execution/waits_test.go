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

// What an execution took to its admission counts from when nothing of its own kept it
// from that, and its wait for a worker from its admission.
func TestEventsTellHowLongItTook(t *testing.T) {
	t.Parallel()
	later := start.Add(time.Hour)
	for name, c := range map[string]struct {
		change          func(*topics.Request)
		queued, admit   time.Time
		pending, waited int64
	}{
		"from its request, not from when it was queued": {
			queued: start.Add(2 * time.Second), admit: start.Add(5 * time.Second), pending: 5000, waited: 3000,
		},
		"from its not_before": {
			change: func(r *topics.Request) { r.NotBefore = &later },
			queued: start, admit: later.Add(time.Second), pending: 1000, waited: 1000,
		},
		"from its request, where not_before is over": {
			change: func(r *topics.Request) { r.NotBefore = &start },
			queued: start.Add(time.Second), admit: start.Add(2 * time.Second), pending: 2000, waited: 1000,
		},
		"rounded up":        {queued: start, admit: start.Add(time.Microsecond), pending: 1, waited: 0},
		"at once":           {queued: start, admit: start, pending: 1, waited: 0},
		"a clock goes back": {queued: start, admit: start.Add(-time.Minute), pending: 1, waited: 0},
	} {
		p := execution.DefaultPolicy()
		e := execution.New(id, request(t), start)
		if c.change != nil {
			c.change(&e.Request) // not_before that is over is no valid request any more
		}
		require.NoError(t, e.Queue(c.queued, p), name)
		_, err := e.Schedule(c.admit, "admitter", topics.ScheduledInTurn, p)
		require.NoError(t, err, name)
		require.NoError(t, e.Start(c.admit.Add(1500*time.Microsecond), "w", 1, 30*time.Second), name)
		events := e.TakeEvents()
		scheduled := events[2].Event.(topics.ExecutionScheduled)
		assert.Equal(t, []int64{c.pending, c.waited}, []int64{scheduled.PendingMillis, scheduled.WaitedMillis}, name)
		assert.EqualValues(t, 2, events[3].Event.(topics.ExecutionStarted).WaitedMillis, name)
	}
}

// A later attempt counts from the end of its backoff.
func TestALaterAttemptIsPendingFromItsBackoff(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := running(t, attempts(2))
	require.NoError(t, e.Finish(start.Add(time.Minute), "w", 1, executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}, p))
	require.True(t, e.ReadyAt.After(start.Add(time.Minute)))
	_, err := e.Schedule(e.ReadyAt.Add(2*time.Second), "admitter", topics.ScheduledInTurn, p)
	require.NoError(t, err)
	events := e.TakeEvents()
	assert.EqualValues(t, 2000, events[len(events)-1].Event.(topics.ExecutionScheduled).PendingMillis)
}
