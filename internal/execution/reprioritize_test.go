package execution_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

func TestReprioritizeKeepsWhatWasWaited(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	rapid.Check(t, func(t *rapid.T) {
		priority := func(name string) int {
			return rapid.IntRange(topics.MinPriority, topics.MaxPriority).Draw(t, name)
		}
		first, last := priority("first"), priority("last")
		asked := func(n int) func(*topics.Request) { return func(r *topics.Request) { r.Priority = n } }
		e, like := execution.New(id, request(t, asked(first)), start), execution.New(id, request(t, asked(last)), start)
		require.NoError(t, e.Queue(start, p))
		require.NoError(t, like.Queue(start, p))
		now := start
		for _, to := range append(rapid.SliceOf(rapid.IntRange(1, 5)).Draw(t, "between"), last) {
			now = now.Add(time.Minute)
			require.NoError(t, e.Reprioritize(now, to, "ann", "", p))
		}
		assert.Equal(t, like.Rank, e.Rank, "its place is the one of the priority, whatever lay between")
		assert.Equal(t, like.ReadyAt, e.ReadyAt)
		assert.Equal(t, like.DueAt, e.DueAt)
		assert.Equal(t, last, e.Request.Priority)

		previous := first
		for i, r := range e.TakeEvents() {
			assert.EqualValues(t, i+1, r.Sequence)
			if ev, ok := r.Event.(topics.ExecutionReprioritized); ok {
				assert.Equal(t, previous, ev.PreviousPriority)
				assert.NotEqual(t, previous, ev.Priority, "what changes nothing is no fact")
				previous = ev.Priority
			}
		}
		assert.Equal(t, last, previous)
	})
}

func TestReprioritizeByState(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	must := func(err error) { require.NoError(t, err) }
	at := map[execution.State]func(*execution.Execution){
		execution.Requested: func(*execution.Execution) {},
		execution.Queued:    func(e *execution.Execution) { must(e.Queue(start, p)) },
	}
	at[execution.Scheduled] = func(e *execution.Execution) {
		at[execution.Queued](e)
		_, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
		must(err)
	}
	at[execution.Running] = func(e *execution.Execution) {
		at[execution.Scheduled](e)
		must(e.Start(start, "w", 1, time.Minute))
	}
	at[execution.Completed] = func(e *execution.Execution) {
		at[execution.Running](e)
		must(e.Finish(start, "w", 1, executor.Result{Outcome: executor.Completed}, p))
	}
	for state, want := range map[execution.State]error{
		execution.Requested: nil, execution.Queued: nil,
		execution.Scheduled: execution.ErrAdmitted, execution.Running: execution.ErrAdmitted,
		execution.Completed: execution.ErrTerminal,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			e := execution.New(id, request(t), start)
			at[state](e)
			require.Equal(t, state, e.State)
			e.TakeEvents()
			require.NoError(t, e.Reprioritize(start, topics.DefaultPriority, "ann", "", p), "what is so already is no error")
			require.Empty(t, e.TakeEvents())

			err := e.Reprioritize(start.Add(time.Second), 5, "ann", "urgent", p)
			require.ErrorIs(t, err, want)
			if want != nil {
				assert.Empty(t, e.TakeEvents())
				assert.Equal(t, topics.DefaultPriority, e.Request.Priority)
				return
			}
			events := e.TakeEvents()
			require.Len(t, events, 1)
			assert.Equal(t, topics.ExecutionReprioritized{
				ExecutionID: id, Attempt: e.Attempt, Priority: 5, PreviousPriority: topics.DefaultPriority, By: "ann", Reason: "urgent",
			}, events[0].Event)
			assert.Equal(t, e.Version, events[0].Sequence)
			assert.Equal(t, state, e.State)
		})
	}
}

func TestThePriorityOfARequestedExecutionCountsWhenItIsQueued(t *testing.T) {
	t.Parallel()
	p := execution.DefaultPolicy()
	e := execution.New(id, request(t), start)
	require.NoError(t, e.Reprioritize(start, 5, "", "", p))
	require.NoError(t, e.Queue(start, p))
	assert.Equal(t, start.Add(-4*p.AgeingStep), e.Rank)
	events := e.TakeEvents()
	assert.Equal(t, 5, events[len(events)-1].Event.(topics.ExecutionQueued).Priority)
	task, err := e.Schedule(start, "admitter", topics.ScheduledInTurn, p)
	require.NoError(t, err)
	assert.Equal(t, 5, task.Request.Priority)
}

func TestReprioritizeRefusesWhatIsNoPriority(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 6} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			e := execution.New(id, request(t), start)
			var invalid *execution.InvalidError
			require.ErrorAs(t, e.Reprioritize(start, n, "", "", execution.DefaultPolicy()), &invalid)
			assert.Equal(t, "/priority", invalid.Fields[0].Pointer)
			assert.Equal(t, topics.DefaultPriority, e.Request.Priority)
		})
	}
}
