package workflow_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const forked = `
	{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
	{"id":"a","type":"SERVICE_TASK","nextStep":"join"},
	{"id":"b","type":"SERVICE_TASK","nextStep":"join"},
	{"id":"join","type":"JOIN_GATEWAY","nextStep":"after"},
	{"id":"after","type":"SERVICE_TASK","nextStep":"end"},
	{"id":"end","type":"END"}`

func TestAJoinWaitsForEveryBranch(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, forked).is(workflow.Active, "a", "b")
	s.gives("b", `{"b":1}`).is(workflow.Active, "a", "join")
	s.gives("a", `{"a":1}`).is(workflow.Active, "after").has(`{"b":1,"a":1}`)
	s.completes("after").is(workflow.Completed)
	history := workflow.History(s.journal)
	require.Len(t, history, 6)
	var ids []string
	for _, step := range history {
		assert.Equal(t, workflow.StepIsCompleted, step.Status)
		ids = append(ids, step.StepID)
	}
	assert.Equal(t, []string{"fork", "a", "b", "join", "after", "end"}, ids)
}

func TestForksNest(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"outer","type":"PARALLEL_GATEWAY","parallelNextSteps":["inner","c"],"joinStep":"outer-join"},
		{"id":"inner","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"inner-join"},
		{"id":"a","type":"SERVICE_TASK","nextStep":"inner-join"},
		{"id":"b","type":"SERVICE_TASK","nextStep":"inner-join"},
		{"id":"inner-join","type":"JOIN_GATEWAY","nextStep":"d"},
		{"id":"d","type":"SERVICE_TASK","nextStep":"outer-join"},
		{"id":"c","type":"SERVICE_TASK","nextStep":"outer-join"},
		{"id":"outer-join","type":"JOIN_GATEWAY","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.is(workflow.Active, "a", "b", "c")
	s.completes("c", "a").is(workflow.Active, "b", "outer-join", "inner-join")
	s.completes("b").is(workflow.Active, "d", "outer-join")
	s.completes("d").is(workflow.Completed)
}

func TestAForkInALoop(t *testing.T) {
	t.Parallel()
	s := given(t, `{"again":true}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"b","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"route"},
		{"id":"route","type":"DECISION","conditionalNextSteps":{"again":"fork","!again":"end"}},
		{"id":"end","type":"END"}`)
	s.completes("a", "b").is(workflow.Active, "a", "b")
	s.gives("b", `{"again":false}`).completes("a").is(workflow.Completed)
	assert.Equal(t, []int{2, 2, 2, 2, 2, 1}, s.state.Attempts)
}

func TestAJoinDoesNotWaitForABranchWithoutTokens(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"b","type":"SERVICE_TASK","conditionalNextSteps":{"ok":"join","!ok":"stray"}},
		{"id":"stray","type":"SERVICE_TASK"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"after"},
		{"id":"after","type":"SERVICE_TASK","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.gives("b", `{"ok":false}`).completes("a").is(workflow.Active, "stray", "join")
	s.completes("stray").is(workflow.Active, "after").completes("after").is(workflow.Completed)
}

func TestAForkWhoseBranchesAllEndIsOver(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"false":"join","true":"stray"}},
		{"id":"b","type":"SERVICE_TASK","conditionalNextSteps":{"false":"join","true":"stray"}},
		{"id":"stray","type":"SERVICE_TASK"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.completes("a", "b", "stray", "stray").is(workflow.Completed).tellsNothingOf("join")
}

const escalating = `
	{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"join"},
	{"id":"a","type":"SERVICE_TASK","nextStep":"join","boundaryEvents":[{"type":"TIMER","duration":"PT1H","interrupting":false,"targetStepId":"nag"}]},
	{"id":"nag","type":"SERVICE_TASK","nextStep":"join"},
	{"id":"b","type":"SERVICE_TASK","nextStep":"join"},
	{"id":"join","type":"JOIN_GATEWAY","nextStep":"after"},
	{"id":"after","type":"SERVICE_TASK","nextStep":"end"},
	{"id":"end","type":"END"}`

func TestABranchArrivesOnce(t *testing.T) {
	t.Parallel()
	// What a boundary timer began beside the step belongs to the same branch.
	s := given(t, `{}`, escalating).fires("a", workflow.BoundaryTimer).is(workflow.Active, "a", "b", "nag")
	s.completes("nag", "a").is(workflow.Active, "b", "join")
	s.completes("b").is(workflow.Active, "after")

	// It may be open still when the join goes on, and then it just ends.
	s = given(t, `{}`, escalating).fires("a", workflow.BoundaryTimer)
	s.completes("a", "b").is(workflow.Active, "nag", "after")
	s.completes("nag").is(workflow.Active, "after").completes("after").is(workflow.Completed)
}

func TestOneFailureVoidsTheOtherBranches(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, forked).breaks("a", "broken").is(workflow.Failed).
		tells("step-failed a: broken", "job-cancelled b", "step-skipped b", "instance-failed a: broken")
	assert.Equal(t, []int{2}, s.last.Void)
	// A retry opens both again.
	s.does(person(workflow.RetryFailed)).is(workflow.Active, "a", "b")
	s.completes("b", "a", "after").is(workflow.Completed)
}

func TestARetryKeepsTheBranchesThatHaveArrived(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, forked).completes("b").breaks("a", "broken").is(workflow.Failed)
	s.does(person(workflow.RetryFailed)).is(workflow.Active, "a", "join").completes("a").is(workflow.Active, "after")
}

func TestGoingOnWithinABranch(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, forked).breaks("a", "broken").is(workflow.Failed)
	in := person(workflow.RetryFailed)
	in.Name = "b"
	// The join will not wait for the other branch: a person has said where to go on.
	s.does(in).is(workflow.Active, "b").completes("b").is(workflow.Active, "after")
}

func TestWhatIsLeftOfAForkBelongsToTheBranchAroundIt(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"outer","type":"PARALLEL_GATEWAY","parallelNextSteps":["inner","c"],"joinStep":"outer-join"},
		{"id":"inner","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b"],"joinStep":"inner-join"},
		{"id":"a","type":"SERVICE_TASK","nextStep":"inner-join","boundaryEvents":[{"type":"TIMER","duration":"PT1H","interrupting":false,"targetStepId":"nag"}]},
		{"id":"nag","type":"SERVICE_TASK"},
		{"id":"b","type":"SERVICE_TASK","nextStep":"inner-join"},
		{"id":"inner-join","type":"JOIN_GATEWAY","nextStep":"route"},
		{"id":"route","type":"DECISION","conditionalNextSteps":{"true":"stray","false":"outer-join"}},
		{"id":"stray","type":"SERVICE_TASK"},
		{"id":"c","type":"SERVICE_TASK","nextStep":"outer-join"},
		{"id":"outer-join","type":"JOIN_GATEWAY","nextStep":"after"},
		{"id":"after","type":"SERVICE_TASK","nextStep":"end"}`+end)
	s.fires("a", workflow.BoundaryTimer).completes("a", "b", "c", "stray").is(workflow.Active, "nag", "outer-join")
	s.completes("nag").is(workflow.Active, "after")
}
