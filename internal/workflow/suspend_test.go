package workflow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/workflow"
)

const approval = `
	{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","ask"],"joinStep":"join"},
	{"id":"a","type":"SERVICE_TASK","retryCount":1,"nextStep":"join","compensation":{"jobType":"undo"},
	 "boundaryEvents":[{"type":"TIMER","duration":"PT1H","interrupting":true,"targetStepId":"late"}]},
	{"id":"late","type":"SERVICE_TASK","nextStep":"join"},
	{"id":"ask","type":"USER_TASK","nextStep":"wait"},
	{"id":"wait","type":"WAIT","signal":"paid","nextStep":"join"},
	{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"},
	{"id":"end","type":"END"}`

func TestASuspendedInstanceBeginsNothing(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, approval).does(person(workflow.Suspend)).is(workflow.Suspended, "a", "ask")
	job, task := s.completion("a", `{"a":1}`), s.completion("ask", `{"b":2}`)
	s.does(job).does(task).does(signal("paid", `{"c":3}`)).is(workflow.Suspended, "a", "ask").has(`{}`)
	assert.True(t, s.last.Deferred)
	s.refuses(workflow.ErrStale, job).refuses(workflow.ErrStale, task).refuses(workflow.ErrStale, person(workflow.Suspend))
	s.refuses(workflow.ErrStale, person(workflow.RetryFailed))
	s.does(person(workflow.Resume)).is(workflow.Completed).has(`{"a":1,"b":2,"c":3}`).
		tells("input-deferred", "instance-resumed", "step-completed a", "user-task-completed ask", "signal-received wait")
	s.refuses(workflow.ErrStale, person(workflow.Resume))
}

func TestWhatCameDuringASuspensionIsTakenInItsOrder(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, approval).does(person(workflow.Suspend))
	job := s.completion("a", `{}`)
	timer := workflow.Input{Kind: workflow.TimerFired, Timer: s.timer("a", workflow.BoundaryTimer, 0)}
	s.does(timer).refuses(workflow.ErrStale, timer).does(job)
	// The timer was first: the completion comes too late.
	s.does(person(workflow.Resume)).is(workflow.Waiting, "ask", "late")

	s = given(t, `{}`, approval).does(person(workflow.Suspend))
	s.does(s.completion("a", `{}`)).does(timer).does(person(workflow.Resume)).is(workflow.Waiting, "ask", "join")
}

func TestAFailureDuringASuspensionIsRetriedAfterIt(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, approval).does(person(workflow.Suspend)).fails("a", "busy").is(workflow.Suspended, "a", "ask")
	assert.Empty(t, s.last.Begin)
	s.does(person(workflow.Resume)).is(workflow.Waiting, "a", "ask")
	assert.Equal(t, 2, s.activity("a").Attempt)
}

func TestResultsAreLimitedDuringASuspension(t *testing.T) {
	t.Parallel()
	s := givenWithin(t, workflow.Limits{Variables: 60}, `{}`, approval).does(person(workflow.Suspend))
	s.refuses(workflow.ErrTooLarge, s.completion("a", `{"a":"`+strings.Repeat("x", 60)+`"}`))
	large := strings.Repeat("x", 30)
	s.does(s.completion("a", `{"a":"`+large+`"}`)).does(s.completion("ask", `{"b":"`+large+`"}`))
	// Each was fine when it came; together they are too large, and nobody can be told.
	s.does(person(workflow.Resume)).is(workflow.Compensating, "a").tells("step-failed ask: variables_too_large")
}

func TestAReplyThatIsTooLargeDuringASuspension(t *testing.T) {
	t.Parallel()
	s := givenWithin(t, workflow.Limits{Variables: 60}, `{}`, `
		{"id":"a","type":"COMMAND","commandType":"do","participant":"p","nextStep":"end"}`+end)
	s.does(person(workflow.Suspend)).gives("a", `{"a":"`+strings.Repeat("x", 60)+`"}`).is(workflow.Suspended, "a")
	s.does(person(workflow.Resume)).is(workflow.Failed).tells("job-failed a: variables_too_large")
}

func TestACancelledSuspension(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, approval).does(person(workflow.Suspend))
	s.does(s.completion("a", `{"seat":7}`)).does(cancel(false)).is(workflow.Cancelled).tells("step-skipped a")
	s = given(t, `{}`, approval).does(person(workflow.Suspend))
	s.does(s.completion("a", `{"seat":7}`)).does(cancel(true)).is(workflow.Compensating, "a")
	assert.JSONEq(t, `{"result":{"seat":7}}`, string(s.activity("a").Input), "what was done while it was suspended is undone with its result")
	s.does(person(workflow.Suspend)).is(workflow.Suspended, "a").refuses(workflow.ErrStale, cancel(true)).refuses(workflow.ErrStale, person(workflow.Compensate))
	s.does(s.completion("a", `{}`)).is(workflow.Suspended, "a").does(person(workflow.Resume)).is(workflow.Compensated)
}

func TestTheTimeIsOverDuringASuspension(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, approval, `"timeout":"PT1H","onFailure":"fail"`).does(person(workflow.Suspend)).fires("", workflow.TotalTimer)
	s.is(workflow.Suspended, "a", "ask").does(person(workflow.Resume)).is(workflow.Failed)
}

func TestSignals(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"a","type":"SERVICE_TASK","nextStep":"wait"},
		{"id":"wait","type":"WAIT","signal":"paid","correlationKey":"${order}","conditionalNextSteps":{"more":"wait","!more":"end"}}` + end
	s := given(t, `{"order":17}`, steps).completes("a").is(workflow.Waiting, "wait")
	a := s.activity("wait")
	assert.Equal(t, []any{workflow.SignalActivity, "paid", "17"}, []any{a.Kind, a.Signal, a.CorrelationKey})
	s.does(signal("wait", `{"more":true}`)).does(signal("paid", `{"more":false}`)).is(workflow.Completed).
		has(`{"order":17,"more":false}`).refuses(workflow.ErrStale, signal("paid", ``))

	// By the number of the activity, as who looks for a correlation key finds it.
	s = given(t, `{"order":"x"}`, steps).completes("a")
	in := signal("paid", `{"more":false}`)
	in.Activity = 2
	s.does(in).is(workflow.Completed).refuses(workflow.ErrStale, in)

	s = given(t, `{"order":"x"}`, steps)
	s.refuses(workflow.ErrBadInput, signal("a", ``)).refuses(workflow.ErrBadInput, signal("nonsense", ``))
	s.refuses(workflow.ErrBadInput, signal("paid", `7`))
}

func TestSignalsThatComeBeforeTheirWait(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"a","type":"SERVICE_TASK","nextStep":"wait"},
		{"id":"wait","type":"WAIT","signal":"paid","conditionalNextSteps":{"n < 3":"wait","n == 3":"end"}}` + end
	s := givenWithin(t, workflow.Limits{Signals: 2, Variables: 60}, `{}`, steps)
	s.does(signal("paid", `{"n":1}`)).does(signal("wait", `{"n":2}`)).refuses(workflow.ErrStale, signal("paid", `{"n":3}`))
	s.completes("a").is(workflow.Waiting, "wait").has(`{"n":2}`).tells("signal-kept", "signal-kept", "signal-received wait", "signal-received wait")
	s.does(signal("paid", `{"n":3}`)).is(workflow.Completed)

	s = givenWithin(t, workflow.Limits{Variables: 60}, `{}`, steps)
	large := `{"x":"` + strings.Repeat("x", 40) + `"}`
	s.does(signal("paid", large)).refuses(workflow.ErrTooLarge, signal("paid", large))

	s = givenWithin(t, workflow.Limits{Signals: 1}, `{}`, steps).does(person(workflow.Suspend))
	s.does(signal("paid", `{"n":3}`)).refuses(workflow.ErrStale, signal("paid", `{"n":3}`))
	s.does(person(workflow.Resume)).completes("a").is(workflow.Completed)
}

func TestCancelAndRetryBelongToTheirStatuses(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, twoTasks).refuses(workflow.ErrStale, person(workflow.RetryFailed)).refuses(workflow.ErrStale, person(workflow.Resolve))
	s.does(cancel(true)).is(workflow.Cancelled).tells("job-cancelled a", "step-skipped a", "instance-cancelled: cancelled")
	assert.Equal(t, "no longer wanted", s.state.Failure.Message)
	for _, in := range []workflow.Input{cancel(false), person(workflow.RetryFailed), person(workflow.Compensate), person(workflow.Suspend), person(workflow.Resume)} {
		s.refuses(workflow.ErrStale, in)
	}
	in := person(workflow.RetryFailed)
	failed := given(t, `{"x":1}`, twoTasks).completes("a").breaks("b", "bad")
	in.Result = []byte(`[]`)
	failed.refuses(workflow.ErrBadInput, in)
	in.Result = []byte(`{"x":2}`)
	failed.does(in).is(workflow.Active, "b").has(`{"x":2}`).tells("instance-retried b", "variables-set", "step-entered b")
	assert.Equal(t, 2, failed.state.Open[0].Attempt)
	assert.Nil(t, failed.state.Failure)
	failed.breaks("b", "bad")
	in.Name = "a"
	failed.does(in).is(workflow.Active, "a").completes("a", "b").is(workflow.Completed)
}

func TestEachDeferredInputIsTakenToItsEnd(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"true":"end","false":"join"}},
		{"id":"b","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"}`+end)
	s.does(person(workflow.Suspend)).completes("a").breaks("b", "bad")
	s.does(person(workflow.Resume)).is(workflow.Completed)
}
