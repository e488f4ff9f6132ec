package workflow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const end = `,{"id":"end","type":"END"}`

func TestRetriesOfAJob(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","retryCount":2,"nextStep":"end"}`+end)
	assert.Equal(t, 2, s.activity("a").RetriesRemaining)
	s.fails("a", "busy").is(workflow.Active, "a").tells("job-retried a: busy", "job-dispatched a attempt 2")
	a := s.activity("a")
	assert.Equal(t, []int{1, 2, 1}, []int{a.N, a.Attempt, a.RetriesRemaining}, "the same job, another attempt")
	assert.Zero(t, a.DueAt, "without a policy at once")
	s.fails("a", "busy").fails("a", "busy").is(workflow.Failed).
		tells("job-failed a attempt 3: busy", "step-failed a: busy", "instance-failed a: busy")
	assert.Equal(t, &workflow.Failure{Code: "busy", Message: "it is busy", StepID: "a"}, s.state.Failure)
}

func TestAFailureThatIsNotRetryableIsFinal(t *testing.T) {
	t.Parallel()
	given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","retryCount":9,"nextStep":"end"}`+end).breaks("a", "bad").is(workflow.Failed)
}

func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	with := func(retry string) *spec {
		return given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","retry":`+retry+`,"nextStep":"end"}`+end)
	}
	waits := func(s *spec, n int) (waits []time.Duration) {
		for range n {
			s.fails("a", "busy")
			due := s.activity("a").DueAt
			waits = append(waits, due.Sub(s.now))
			s.now = due
		}
		return waits
	}
	s := with(`{"count":4,"initial":"PT1S","multiplier":3,"max":"PT10S"}`)
	assert.Equal(t, []time.Duration{time.Second, 3 * time.Second, 9 * time.Second, 10 * time.Second}, waits(s, 4))
	s.fails("a", "busy").is(workflow.Failed)

	s = with(`{"count":9,"initial":"PT10S","multiplier":1,"maxAge":"PT25S"}`)
	waits(s, 2)
	s.fails("a", "busy").is(workflow.Failed)

	s = with(`{"count":2,"initial":"PT10S","maxAge":"PT1H"}`)
	after := func(wait time.Duration) *spec {
		in := s.failure("a", "busy", true)
		in.RetryAfter = wait
		return s.does(in)
	}
	after(time.Minute)
	assert.Equal(t, time.Minute, s.activity("a").DueAt.Sub(s.now), "the worker knows better")
	after(time.Hour).is(workflow.Failed)

	s = with(`{"count":9,"on":["busy"]}`)
	s.fails("a", "busy").is(workflow.Active, "a").fails("a", "broken").is(workflow.Failed)

	one := waits(with(`{"count":3,"initial":"PT100S","multiplier":1,"jitter":0.5}`), 3)
	two := waits(with(`{"count":3,"initial":"PT100S","multiplier":1,"jitter":0.5}`), 3)
	assert.Equal(t, one, two, "the same instance throws the same dice")
	for _, wait := range one {
		assert.GreaterOrEqual(t, wait, 50*time.Second)
		assert.LessOrEqual(t, wait, 100*time.Second)
	}
	assert.NotEqual(t, one[0], one[1])
}

func TestALeaseThatRanOutCostsNoRetry(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","nextStep":"end"}`+end)
	for range 3 {
		s.fails("a", workflow.CodeLeaseExpired).is(workflow.Active, "a")
		assert.Equal(t, 1, s.activity("a").Attempt)
	}
	s.breaks("a", workflow.CodeQuarantined).is(workflow.Failed)
}

func TestAFailureMaySetVariables(t *testing.T) {
	t.Parallel()
	s := given(t, `{"a":1}`, `{"id":"a","type":"SERVICE_TASK","retryCount":1,"nextStep":"end"}`+end)
	in := s.failure("a", "busy", true)
	in.Result = []byte(`{"b":2}`)
	s.does(in).has(`{"a":1,"b":2}`)
	in = s.failure("a", "busy", true)
	in.Result = []byte(`[]`)
	s.refuses(workflow.ErrBadInput, in)
}

func TestFailuresAreCleaned(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","nextStep":"end"}`+end)
	s.does(workflow.Input{Kind: workflow.ActivityFailed, Activity: 1, Failure: &workflow.Failure{Message: "a\x00b\xff" + strings.Repeat("é", 9000)}})
	assert.Equal(t, "failed", s.state.Failure.Code)
	assert.LessOrEqual(t, len(s.state.Failure.Message), 4099)
	assert.True(t, strings.HasPrefix(s.state.Failure.Message, "ab\uFFFDé"))
	bare := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","nextStep":"end"}`+end)
	bare.does(workflow.Input{Kind: workflow.ActivityFailed, Activity: 1}).is(workflow.Failed)
	assert.Equal(t, "failed", bare.state.Failure.Code)
}

func TestErrorBoundaries(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"a","type":"SERVICE_TASK","retryCount":1,"nextStep":"end","boundaryEvents":[
			{"type":"ERROR","codes":["busy"],"targetStepId":"later"},
			{"type":"ERROR","errorVariable":"why","targetStepId":"other"}]},
		{"id":"later","type":"SERVICE_TASK","nextStep":"end"},
		{"id":"other","type":"SERVICE_TASK","nextStep":"end"}` + end
	s := given(t, `{}`, steps).fails("a", "busy").is(workflow.Active, "a")
	s.fails("a", "busy").is(workflow.Active, "later").has(`{"error":{"code":"busy","message":"it is busy","stepId":"a"}}`)
	s.completes("later").is(workflow.Completed)
	assert.Nil(t, s.state.Failure)
	given(t, `{}`, steps).breaks("a", "broken").is(workflow.Active, "other").has(`{"why":{"code":"broken","message":"it is broken","stepId":"a"}}`)
}

func TestBoundaryTimers(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"a","type":"USER_TASK","nextStep":"end","boundaryEvents":[
			{"type":"TIMER","duration":"PT1H","interrupting":false,"targetStepId":"nag"},
			{"type":"TIMER","duration":"PT2H","interrupting":false,"targetStepId":"nag"},
			{"type":"TIMER","duration":"P1D","interrupting":true,"targetStepId":"escalate"}]},
		{"id":"nag","type":"SERVICE_TASK"},
		{"id":"escalate","type":"SERVICE_TASK","nextStep":"end"}` + end
	s := given(t, `{}`, steps)
	assert.Equal(t, []time.Duration{time.Hour, 2 * time.Hour, 24 * time.Hour},
		[]time.Duration{s.dueIn("a", "boundary", 0), s.dueIn("a", "boundary", 1), s.dueIn("a", "boundary", 2)})
	first := workflow.Input{Kind: workflow.TimerFired, Timer: s.timer("a", "boundary", 0)}
	s.does(first).is(workflow.Waiting, "a", "nag").refuses(workflow.ErrStale, first)
	s.completes("nag").is(workflow.Waiting, "a").fires("a", "boundary", 1).is(workflow.Waiting, "a", "nag")
	s.fires("a", "boundary", 2).is(workflow.Active, "nag", "escalate").tells("timer-fired a", "user-task-cancelled a", "step-failed a: interrupted")
	s.refuses(workflow.ErrStale, workflow.Input{Kind: workflow.UserTaskCompleted, Name: "a"})
	s.completes("nag", "escalate").is(workflow.Completed)

	quick := given(t, `{}`, steps)
	late := workflow.Input{Kind: workflow.TimerFired, Timer: quick.timer("a", "boundary", 2)}
	quick.completes("a").is(workflow.Completed).refuses(workflow.ErrStale, late)
}

func TestTimerSteps(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"TIMER","duration":"PT5M","nextStep":"end"}`+end).is(workflow.Active, "a")
	assert.Equal(t, 5*time.Minute, s.dueIn("a", workflow.WaitTimer))
	s.fires("a", workflow.WaitTimer).is(workflow.Completed)

	until := `{"id":"a","type":"TIMER","until":"${at}","nextStep":"end"}` + end
	for _, at := range []string{`"2026-11-22T12:00:00+02:00"`, `1795341600`, `1795341600.0`} {
		s = given(t, `{"at":`+at+`}`, until)
		assert.Equal(t, 22*time.Hour, s.dueIn("a", workflow.WaitTimer), at)
	}
	for _, at := range []string{`"tomorrow"`, `null`, `true`, `1e300`, `"0000-01-01T00:00:00+14:00"`} {
		given(t, `{"at":`+at+`}`, until).is(workflow.Failed).tells("step-failed a: expression_failed")
	}
	given(t, `{"at":0}`, until).is(workflow.Active, "a").fires("a", workflow.WaitTimer).is(workflow.Completed)
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","timeout":"PT1M","retryCount":5,"nextStep":"end"}`+end)
	s.fails("a", "busy").fires("a", workflow.StepTimer).is(workflow.Failed).
		tells("timer-fired a", "job-cancelled a attempt 2", "step-failed a: timeout", "instance-failed a: timeout")
	assert.Equal(t, []int{1}, s.last.Void)

	s = given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","nextStep":"end"}`+end, `"timeout":"PT1H"`)
	assert.Equal(t, time.Hour, s.dueIn("", workflow.TotalTimer))
	early := workflow.Input{Kind: workflow.TimerFired, Timer: s.timer("", workflow.TotalTimer, 0)}
	s.fires("", workflow.TotalTimer).is(workflow.Failed).tells("step-skipped a", "instance-failed: timeout").refuses(workflow.ErrStale, early)
	// A retry has its own time.
	s.does(person(workflow.RetryFailed)).is(workflow.Active, "a").refuses(workflow.ErrStale, early)
	assert.Equal(t, time.Hour, s.dueIn("", workflow.TotalTimer))
	s.completes("a").is(workflow.Completed)
}

func TestForEach(t *testing.T) {
	t.Parallel()
	steps := `{"id":"each","type":"FOREACH","items":"${orders}","item":"order","maxParallel":2,"outputVariable":"results","retryCount":1,"nextStep":"end"}` + end
	s := given(t, `{"orders":[{"id":1},{"id":2.50},{"id":3}]}`, steps).is(workflow.Active, "each")
	require.Len(t, s.open, 2, "at most two at once")
	assert.JSONEq(t, `{"orders":[{"id":1},{"id":2.50},{"id":3}],"order":{"id":1},"index":0}`, string(s.open[1].Input))
	second := workflow.Input{Kind: workflow.ActivityCompleted, Activity: 2, Result: []byte(`{"r":2}`)}
	s.does(second).refuses(workflow.ErrStale, second)
	require.Len(t, s.open, 2)
	assert.Equal(t, 2, s.open[3].Turn)
	s.does(workflow.Input{Kind: workflow.ActivityCompleted, Activity: 3})
	s.fails("each", "busy").gives("each", `{"r":1}`).is(workflow.Completed).
		has(`{"orders":[{"id":1},{"id":2.50},{"id":3}],"results":[{"r":1},{"r":2},null]}`)

	given(t, `{"orders":[]}`, steps).is(workflow.Completed).has(`{"orders":[],"results":[]}`)
	given(t, `{"orders":7}`, steps).is(workflow.Failed).tells("step-failed each: items_not_a_list")
	givenWithin(t, workflow.Limits{Items: 2}, `{"orders":[1,2,3]}`, steps).is(workflow.Failed).tells("step-failed each: too_many_items")
	given(t, `{}`, steps).is(workflow.Failed).tells("step-failed each: expression_failed")
}

func TestATurnThatFailsFailsTheForEach(t *testing.T) {
	t.Parallel()
	s := given(t, `{"n":[1,2,3]}`, `
		{"id":"each","type":"FOREACH","items":"${n}","workflowId":"child","input":{"x":"${item * 10}","i":"${index}"},"nextStep":"end",
		 "boundaryEvents":[{"type":"ERROR","targetStepId":"end"}]}`+end)
	require.Len(t, s.open, 3)
	assert.JSONEq(t, `{"x":20,"i":1}`, string(s.open[2].Input))
	assert.Equal(t, workflow.ChildActivity, s.open[2].Kind)
	s.does(workflow.Input{Kind: workflow.ActivityFailed, Activity: 2, Failure: &workflow.Failure{Code: "bad"}})
	s.is(workflow.Completed)
	assert.Equal(t, []int{1, 3}, s.last.Void)
}

func TestTheResultsOfAForEachAreLimited(t *testing.T) {
	t.Parallel()
	s := givenWithin(t, workflow.Limits{Variables: 100}, `{"n":[1,2,3]}`, `{"id":"each","type":"FOREACH","items":"${n}","outputVariable":"r","nextStep":"end"}`+end)
	large := fmt.Sprintf("%q", strings.Repeat("x", 35))
	s.gives("each", large).gives("each", large)
	s.refuses(workflow.ErrTooLarge, s.completion("each", large)).gives("each", `1`).is(workflow.Completed)
}

func TestTheInputsOfTurnsAreLimited(t *testing.T) {
	t.Parallel()
	steps := `{"id":"each","type":"FOREACH","items":"${n}","nextStep":"end"}` + end
	s := givenWithin(t, workflow.Limits{Variables: 100}, `{"n":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}`, steps)
	assert.Len(t, s.open, 6, "20 turns of 80 bytes would be more than 400")
	for range 20 {
		s.completes("each")
		assert.LessOrEqual(t, len(s.open), 7)
	}
	s.is(workflow.Completed)
}

func TestWhatIsDoneDuringABackoff(t *testing.T) {
	t.Parallel()
	steps := `{"id":"a","type":"COMMAND","commandType":"reserve","participant":"stock","retry":{"count":2,"initial":"PT1S"},"nextStep":"end"}` + end
	s := given(t, `{}`, steps)
	assert.Equal(t, []string{"reserve", "stock"}, []string{s.activity("a").CommandType, s.activity("a").Participant})
	s.fails("a", "busy")
	assert.Empty(t, s.open, "a command waits for a timer")
	assert.Equal(t, time.Second, s.dueIn("a", workflow.RetryTimer))
	s.refuses(workflow.ErrStale, workflow.Input{Kind: workflow.ActivityCompleted, Activity: 1})
	retry := workflow.Input{Kind: workflow.TimerFired, Timer: s.timer("a", workflow.RetryTimer, 0)}
	s.fires("a", workflow.RetryTimer).refuses(workflow.ErrStale, retry)
	assert.Equal(t, 2, s.activity("a").Attempt)
	s.refuses(workflow.ErrStale, workflow.Input{Kind: workflow.ActivityCompleted, Activity: 1, Attempt: 1})
	s.fails("a", "busy").refuses(workflow.ErrStale, retry)
	assert.Equal(t, 2*time.Second, s.dueIn("a", workflow.RetryTimer))
	s.does(cancel(false)).is(workflow.Cancelled)
}
