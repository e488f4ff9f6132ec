package workflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const trip = `
	{"id":"flight","type":"SERVICE_TASK","nextStep":"hotel","compensation":{"jobType":"cancel-flight"}},
	{"id":"hotel","type":"COMMAND","commandType":"book","participant":"hotels","outputVariable":"hotel","nextStep":"look",
	 "compensation":{"commandType":"cancel","participant":"hotels","input":{"booking":"${result.id}"},"retry":{"count":1,"initial":"PT10S"},"timeout":"PT1M"}},
	{"id":"look","type":"SERVICE_TASK","nextStep":"car"},
	{"id":"car","type":"SERVICE_TASK","nextStep":"end","compensation":{"jobType":"cancel-car"}},
	{"id":"end","type":"END"}`

func booked(t *testing.T, header ...string) *spec {
	t.Helper()
	return given(t, `{"trip":42}`, trip, header...).gives("flight", `{"seat":"1A"}`).gives("hotel", `{"id":7}`).completes("look")
}

func TestCompensationRunsInReverse(t *testing.T) {
	t.Parallel()
	s := booked(t).breaks("car", "sold_out").is(workflow.Compensating, "hotel")
	a := s.activity("hotel")
	assert.Equal(t, []any{workflow.CommandActivity, true, 2, "cancel", "hotels", 1},
		[]any{a.Kind, a.Compensation, a.Undoes, a.CommandType, a.Participant, a.RetriesRemaining})
	assert.JSONEq(t, `{"booking":7}`, string(a.Input))
	assert.Equal(t, time.Minute, s.dueIn("hotel", workflow.AttemptTimer))

	s.completes("hotel").is(workflow.Compensating, "flight")
	a = s.activity("flight")
	assert.Equal(t, []any{workflow.JobActivity, "cancel-flight", 5, 1}, []any{a.Kind, a.JobType, a.RetriesRemaining, a.Undoes})
	assert.JSONEq(t, `{"trip":42,"seat":"1A","hotel":{"id":7},"result":{"seat":"1A"}}`, string(a.Input))
	assert.Equal(t, 5*time.Minute, s.dueIn("flight", workflow.AttemptTimer))
	s.completes("flight").is(workflow.Compensated)
	assert.Equal(t, "sold_out", s.state.Failure.Code)
	s.tells("step-failed car: sold_out", "instance-compensating: sold_out",
		"step-entered hotel (undo)", "job-completed hotel (undo)", "step-completed hotel (undo)",
		"step-entered flight (undo)", "step-completed flight (undo)", "instance-compensated: sold_out")
	s.refuses(workflow.ErrStale, person(workflow.RetryFailed)).refuses(workflow.ErrStale, person(workflow.Compensate))
}

func TestAFailureWithNothingToUndo(t *testing.T) {
	t.Parallel()
	given(t, `{}`, trip).breaks("flight", "sold_out").is(workflow.Failed).
		does(person(workflow.RetryFailed)).is(workflow.Active, "flight")
}

func TestOnFailureFailLeavesThingsAsTheyAre(t *testing.T) {
	t.Parallel()
	s := booked(t, `"onFailure":"fail"`).breaks("car", "sold_out").is(workflow.Failed)
	s.does(person(workflow.RetryFailed)).is(workflow.Active, "car").breaks("car", "sold_out")
	s.does(person(workflow.Compensate)).is(workflow.Compensating, "hotel")
	s.completes("hotel", "flight").is(workflow.Compensated)
}

func TestCompensationsAreRepeatedAndThenNeedAPerson(t *testing.T) {
	t.Parallel()
	s := booked(t).breaks("car", "sold_out").fails("hotel", "busy")
	assert.Equal(t, 10*time.Second, s.dueIn("hotel", workflow.RetryTimer))
	s.fires("hotel", workflow.RetryTimer)
	late := workflow.Input{Kind: workflow.TimerFired, Timer: s.timer("hotel", workflow.AttemptTimer, 0)}
	s.fires("hotel", workflow.AttemptTimer).is(workflow.NeedsAttention).refuses(workflow.ErrStale, late).
		tells("job-retried hotel (undo): busy", "timer-fired hotel (undo)", "job-failed hotel (undo) attempt 2: timeout",
			"step-failed hotel (undo): timeout", "instance-needs-attention hotel (undo): timeout")
	assert.Equal(t, "timeout", s.state.Stuck.Code)
	assert.Equal(t, "sold_out", s.state.Failure.Code)
	assert.Equal(t, []int{5}, s.last.Void)
	s.refuses(workflow.ErrStale, cancel(true)).refuses(workflow.ErrStale, person(workflow.Suspend))

	s.does(person(workflow.RetryFailed)).is(workflow.Compensating, "hotel").tells("instance-retried")
	assert.Equal(t, 2, s.activity("hotel").Step.Attempt)
	s.breaks("hotel", "no").is(workflow.NeedsAttention)
	s.does(person(workflow.SkipCompensation)).is(workflow.Compensating, "flight").tells("compensation-skipped hotel (undo): no")
	s.completes("flight").is(workflow.Compensated)
}

func TestAnInstanceThatNeedsAttentionIsResolved(t *testing.T) {
	t.Parallel()
	s := booked(t).breaks("car", "sold_out").breaks("hotel", "no").is(workflow.NeedsAttention)
	s.does(person(workflow.Resolve)).is(workflow.Failed).tells("instance-resolved: sold_out")
	s.refuses(workflow.ErrStale, person(workflow.RetryFailed)).refuses(workflow.ErrStale, person(workflow.Resolve))
	s.refuses(workflow.ErrStale, person(workflow.SkipCompensation))
	in := person(workflow.RetryFailed)
	in.Name = "car"
	s.does(in).is(workflow.Active, "car").completes("car").is(workflow.Completed)

	s = booked(t).does(cancel(true)).is(workflow.Compensating, "car").completes("car").breaks("hotel", "no")
	s.does(person(workflow.Resolve)).is(workflow.Cancelled)
}

func TestGoingOnInsteadOfCompensating(t *testing.T) {
	t.Parallel()
	s := booked(t).breaks("car", "sold_out").breaks("hotel", "no").is(workflow.NeedsAttention)
	in := person(workflow.RetryFailed)
	in.Name, in.Result = "look", []byte(`{"size":"small"}`)
	s.does(in).is(workflow.Active, "look").has(`{"trip":42,"seat":"1A","hotel":{"id":7},"size":"small"}`)
	s.completes("look", "car").is(workflow.Completed)
	for _, name := range []string{"nowhere", "end"} {
		bad := booked(t).breaks("car", "sold_out").breaks("hotel", "no")
		in.Name = name
		if name == "end" {
			bad.does(in).is(workflow.Completed)
			continue
		}
		bad.refuses(workflow.ErrBadInput, in)
	}
}

func TestWhatIsInDoubtIsUndoneToo(t *testing.T) {
	t.Parallel()
	timedOut := `{"id":"a","type":"COMMAND","commandType":"do","participant":"p","timeout":"PT1M","nextStep":"end","compensation":{"commandType":"undo","participant":"p"}}` + end
	s := given(t, `{}`, timedOut).fires("a", workflow.StepTimer).is(workflow.Compensating, "a")
	assert.True(t, s.state.Undo[0].InDoubt)
	assert.Equal(t, 1, s.activity("a").Undoes)
	assert.JSONEq(t, `{"result":null}`, string(s.activity("a").Input))
	s.completes("a").is(workflow.Compensated)

	job := `{"id":"a","type":"SERVICE_TASK","retryCount":1,"nextStep":"end","compensation":{"jobType":"undo"}}` + end
	given(t, `{}`, job).breaks("a", workflow.CodeQuarantined).is(workflow.Compensating, "a")
	given(t, `{}`, job).breaks("a", "refused").is(workflow.Failed)
	// An earlier attempt without an answer is enough, a lease that ran out as well.
	given(t, `{}`, job).fails("a", workflow.CodeLeaseExpired).breaks("a", "refused").is(workflow.Compensating, "a")
	given(t, `{}`, job).does(cancel(true)).is(workflow.Compensating, "a")
	given(t, `{}`, job).does(cancel(false)).is(workflow.Cancelled).does(person(workflow.Compensate)).is(workflow.Compensating, "a")
	given(t, `{}`, job, `"timeout":"PT1H"`).fires("", workflow.TotalTimer).is(workflow.Compensating, "a")
}

func TestOtherBranchesAreUndoneThoughTheyWereNotDone(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b","c"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","nextStep":"join","compensation":{"jobType":"undo-a"}},
		{"id":"b","type":"SERVICE_TASK","nextStep":"join","compensation":{"jobType":"undo-b"}},
		{"id":"c","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"}`+end)
	s.completes("b").breaks("c", "bad").is(workflow.Compensating, "a").completes("a").is(workflow.Compensating, "b")
	s.completes("b").is(workflow.Compensated)
}

func TestAStepWhoseWaysOutDoNotFitIsUndone(t *testing.T) {
	t.Parallel()
	given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"false":"end"},"compensation":{"jobType":"undo"}}`+end).
		completes("a").is(workflow.Compensating, "a").completes("a").is(workflow.Compensated)
}

func TestAnInterruptedStepIsUndoneWhenTheInstanceFails(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"a","type":"SERVICE_TASK","nextStep":"end","compensation":{"jobType":"undo"},
		 "boundaryEvents":[{"type":"TIMER","duration":"PT1M","interrupting":true,"targetStepId":"b"}]},
		{"id":"b","type":"SERVICE_TASK","nextStep":"end"}`+end)
	s.fires("a", workflow.BoundaryTimer).breaks("b", "bad").is(workflow.Compensating, "a")
}

func TestAForEachThatIsHalfDoneIsUndone(t *testing.T) {
	t.Parallel()
	s := given(t, `{"n":[1,2]}`, `{"id":"each","type":"FOREACH","items":"${n}","maxParallel":1,"nextStep":"end","compensation":{"jobType":"undo"}}`+end)
	s.gives("each", `{"r":1}`).breaks("each", "bad").is(workflow.Compensating, "each")
	assert.JSONEq(t, `{"n":[1,2],"result":[{"r":1},null]}`, string(s.activity("each").Input))
}

func TestEveryExecutionIsUndone(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"a","type":"SERVICE_TASK","outputVariable":"n","conditionalNextSteps":{"n < 3":"a","n >= 3":"b"},"compensation":{"jobType":"undo","input":{"n":"${result}"}}},
		{"id":"b","type":"SERVICE_TASK","nextStep":"end"}`+end)
	s.gives("a", `1`).gives("a", `2`).gives("a", `3`).breaks("b", "bad")
	for _, n := range []string{`{"n":3}`, `{"n":2}`, `{"n":1}`} {
		assert.JSONEq(t, n, string(s.activity("a").Input))
		s.completes("a")
	}
	s.is(workflow.Compensated)
}

func TestACompletedInstanceIsUndone(t *testing.T) {
	t.Parallel()
	s := booked(t).completes("car").is(workflow.Completed).refuses(workflow.ErrStale, cancel(true))
	s.does(person(workflow.Compensate)).is(workflow.Compensating, "car").tells("instance-compensating: compensation_requested")
	s.completes("car", "hotel", "flight").is(workflow.Compensated)
	given(t, `{}`, twoTasks).completes("a", "b").refuses(workflow.ErrStale, person(workflow.Compensate))
}

func TestACompensationThatCannotBeDescribedNeedsAPerson(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"a","type":"SERVICE_TASK","nextStep":"b","compensation":{"jobType":"undo","input":{"x":"${result.missing.deep}"}}},
		{"id":"b","type":"SERVICE_TASK","nextStep":"end"}`+end)
	s.gives("a", `{"ok":1}`).breaks("b", "bad").is(workflow.NeedsAttention).tells("step-failed a (undo): expression_failed")
	s.does(person(workflow.Compensate)).is(workflow.NeedsAttention).does(person(workflow.SkipCompensation)).is(workflow.Compensated)
}

func TestResultsThatAreKeptForCompensationsAreLimited(t *testing.T) {
	t.Parallel()
	s := givenWithin(t, workflow.Limits{Variables: 100}, `{}`, `
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"true":"a","false":"end"},"compensation":{"jobType":"undo"}}`+end)
	result := `{"x":"0123456789012345678901234567890123456789"}`
	s.gives("a", result).gives("a", result).refuses(workflow.ErrTooLarge, s.completion("a", result)).completes("a")
}

func TestWhatACompensationSaysIsKeptInTheHistory(t *testing.T) {
	t.Parallel()
	s := booked(t).breaks("car", "sold_out").gives("hotel", `{"refund":10}`).completes("flight")
	history := workflow.History(s.journal)
	require.Len(t, history, 6)
	undone := history[4]
	assert.Equal(t, []any{"hotel", 2, workflow.StepIsCompleted, `{"refund":10}`}, []any{undone.StepID, undone.Compensates, undone.Status, string(undone.Output)})
	s.has(`{"trip":42,"seat":"1A","hotel":{"id":7}}`)
}
