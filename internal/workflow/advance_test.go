package workflow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const twoTasks = `
	{"id":"a","type":"SERVICE_TASK","jobType":"do-a","nextStep":"b"},
	{"id":"b","type":"SERVICE_TASK","nextStep":"end"},
	{"id":"end","type":"END"}`

func TestALinearWorkflow(t *testing.T) {
	t.Parallel()
	s := given(t, `{"x": 9007199254740993, "y": {"z": 1}}`, twoTasks)
	s.is(workflow.Active, "a")
	a := s.activity("a")
	assert.Equal(t, workflow.Activity{N: 1, Kind: workflow.JobActivity, Attempt: 1, JobType: "do-a", Step: a.Step}, a)
	assert.Equal(t, 1, a.Step.N)

	s.gives("a", `{"y": {"w": 2}, "done": true}`).is(workflow.Active, "b").
		has(`{"x":9007199254740993,"y":{"w":2},"done":true}`)
	assert.Equal(t, "b", s.activity("b").JobType, "the type of a job defaults to the step")
	s.completes("b").is(workflow.Completed)
	assert.Equal(t, strings.TrimSpace(`
instance-started
step-entered a
job-dispatched a
job-completed a
step-completed a
step-entered b
job-dispatched b
job-completed b
step-completed b
step-completed end
instance-completed`), s.log())
}

func TestAJobIsCompletedOnce(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, twoTasks)
	first := s.completion("a", `{}`)
	s.does(first).refuses(workflow.ErrStale, first)
	s.refuses(workflow.ErrStale, workflow.Input{Kind: workflow.ActivityFailed, Activity: 1})
	s.refuses(workflow.ErrBadInput, workflow.Input{Kind: workflow.ActivityCompleted, Activity: 7})
	s.refuses(workflow.ErrBadInput, workflow.Input{Kind: "nonsense"})
	s.refuses(workflow.ErrStale, workflow.Input{Kind: workflow.Start})
	last := s.completion("b", `{}`)
	s.does(last).refuses(workflow.ErrStale, last).is(workflow.Completed)
}

func TestResultsThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	s := givenWithin(t, workflow.Limits{Variables: 60}, `{"a":1}`, twoTasks)
	for _, result := range []string{`[1]`, `"text"`, `{"a":`, "{\"a\":\"\xff\"}", strings.Repeat(" ", 200) + `{}`} {
		s.refuses(workflow.ErrBadInput, s.completion("a", result))
	}
	tooLarge := s.completion("a", `{"b":"`+strings.Repeat("x", 60)+`"}`)
	s.refuses(workflow.ErrBadInput, tooLarge).refuses(workflow.ErrTooLarge, tooLarge)
	s.is(workflow.Active, "a")
	s.gives("a", `null`).has(`{"a":1}`)

	deep := given(t, `{}`, twoTasks)
	deep.refuses(workflow.ErrBadInput, deep.completion("a", `{"a":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}`))

	_, err := define(t, twoTasks).Advance(t.Context(), workflow.State{Variables: json.RawMessage(`[]`)}, workflow.Input{Kind: workflow.Start}, workflow.Limits{})
	require.ErrorIs(t, err, workflow.ErrBadInput)
}

func TestVariablesAreMergedKeyByKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variables, result, want string }{
		{`{}`, `{}`, `{}`},
		{``, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, ``, `{"a":1}`},
		{`{"a":{"b":1}}`, `{"a":{"c":2}}`, `{"a":{"c":2}}`},
		{`{"a":1,"b":2,"c":3}`, `{"b":20,"d":4}`, `{"a":1,"b":20,"c":3,"d":4}`},
		{`{"a":1}`, `{"\u0061":2,"x,}\"":"]"}`, `{"a":2,"x,}\"":"]"}`},
		{`{"\u0061":1}`, `{"a":2}`, `{"\u0061":2}`},
		{`{"a":1,"a":2}`, `{"a":3,"a":4,"b":0}`, `{"a":4,"b":0}`},
		{`{"a":[1,{"b":"}"}]}`, `{"c":1e400}`, `{"a":[1,{"b":"}"}],"c":1e400}`},
	} {
		s := given(t, c.variables, twoTasks)
		s.gives("a", c.result).has(c.want)
	}
	wide := map[string]int{}
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		wide[name] = 1
	}
	text, err := json.Marshal(wide)
	require.NoError(t, err)
	s := given(t, string(text), twoTasks)
	s.gives("a", strings.ReplaceAll(string(text), ":1", ":2")).has(strings.ReplaceAll(string(text), ":1", ":2"))
}

func TestOutputVariablesAndInputs(t *testing.T) {
	t.Parallel()
	s := given(t, `{"order":{"id":7},"secret":1}`, `
		{"id":"a","type":"SERVICE_TASK","outputVariable":"made","input":{"id":"${order.id}","kind":"full","double":"${id * 2}"},"nextStep":"b"},
		{"id":"b","type":"SERVICE_TASK","nextStep":"end"},{"id":"end","type":"END"}`)
	assert.JSONEq(t, `{"id":7,"kind":"full","double":14}`, string(s.activity("a").Input))
	s.gives("a", `[1, 2]`).has(`{"order":{"id":7},"secret":1,"made":[1,2]}`)
	assert.Nil(t, s.activity("b").Input, "nil means the variables as they are")
	s.completes("b").is(workflow.Completed)
}

func TestAnInputThatCannotBeEvaluatedFailsTheStep(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `{"id":"a","type":"SERVICE_TASK","input":{"id":"${missing.id}"},"nextStep":"end"},{"id":"end","type":"END"}`)
	s.is(workflow.Failed).tells("step-failed a: expression_failed", "instance-failed a: expression_failed").tellsNothingOf("job-dispatched")
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"route","type":"DECISION","conditionalNextSteps":{"#score >= 700":"good","#score >= 500":"fair","#flag":"odd"}},
		{"id":"good","type":"SERVICE_TASK","nextStep":"end"},{"id":"fair","type":"SERVICE_TASK"},{"id":"odd","type":"SERVICE_TASK"},{"id":"end","type":"END"}`
	given(t, `{"score":720}`, steps).is(workflow.Active, "good")
	given(t, `{"score":500.5}`, steps).is(workflow.Active, "fair")
	given(t, `{"score":1,"flag":true}`, steps).is(workflow.Active, "odd")
	given(t, `{"score":1,"flag":1}`, steps).is(workflow.Failed).tells("step-failed route: decision_not_boolean")
	given(t, `{"score":1}`, steps).is(workflow.Failed).tells("step-failed route: expression_failed")
	s := given(t, `{"score":1,"flag":false}`, steps).is(workflow.Failed).tells("step-failed route: decision_no_branch_matched")
	assert.Contains(t, s.state.Failure.Message, "DecisionNoBranchMatched")
	assert.Equal(t, "route", s.state.Failure.StepID)
}

func TestTasksMayDecideToo(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"a","type":"SERVICE_TASK","nextStep":"no","conditionalNextSteps":{"ok == true":"yes","1 == 2":"no"}},
		{"id":"yes","type":"SERVICE_TASK"},{"id":"no","type":"END"}`
	given(t, `{}`, steps).gives("a", `{"ok":true}`).is(workflow.Active, "yes")
	given(t, `{}`, steps).gives("a", `{"ok":false}`).is(workflow.Failed).
		tells("job-completed a", "step-failed a: decision_no_branch_matched", "instance-failed a: decision_no_branch_matched")
}

func TestTransformations(t *testing.T) {
	t.Parallel()
	s := given(t, `{"amount":100,"big":9007199254740993}`, `
		{"id":"set","type":"TRANSFORMATION","transformations":{"fee":50.0,"total":"${amount + 1}","twice":"${total * 2}","copy":"${big}","at":"${now()}","text":"a < b"},"nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.is(workflow.Completed).
		has(`{"amount":100,"big":9007199254740993,"fee":50.0,"total":101,"twice":202,"copy":9007199254740993,"at":"2026-11-21T12:00:00Z","text":"a < b"}`)
	history := workflow.History(s.journal)
	require.Len(t, history, 2)
	assert.Equal(t, workflow.StepIsCompleted, history[0].Status)
	assert.Equal(t, history[0].BeganAt, history[0].EndedAt)
	assert.Contains(t, string(history[0].Output), `"twice":202`)

	givenWithin(t, workflow.Limits{Variables: 40}, `{"a":"0123456789"}`, `
		{"id":"set","type":"TRANSFORMATION","transformations":{"b":"${a + a + a}"},"nextStep":"end"},{"id":"end","type":"END"}`).
		is(workflow.Failed).tells("step-failed set: variables_too_large")
}

func TestALoopWithoutAnEndFails(t *testing.T) {
	t.Parallel()
	loop := `
		{"id":"a","type":"TRANSFORMATION","transformations":{"x":1},"nextStep":"b"},
		{"id":"b","type":"DECISION","conditionalNextSteps":{"x == 1":"a","x == 2":"end"}},{"id":"end","type":"END"}`
	given(t, `{}`, loop).is(workflow.Failed).tells("instance-failed a: step_limit")
	slow := `{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"true":"a","false":"end"}},{"id":"end","type":"END"}`
	s := givenWithin(t, workflow.Limits{Steps: 3}, `{}`, slow)
	s.completes("a", "a").is(workflow.Active, "a")
	assert.Equal(t, 3, s.state.Open[0].Attempt)
	s.completes("a").is(workflow.Failed).tells("instance-failed a: step_limit")
	assert.Contains(t, s.state.Failure.Message, "3 steps")
}

func TestADeadEndEndsItsTokenAndTheLastOneTheInstance(t *testing.T) {
	t.Parallel()
	given(t, `{}`, `
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"false":"end","true":"b"}},
		{"id":"b","type":"SERVICE_TASK"},
		{"id":"end","type":"END"}`).completes("a", "b").is(workflow.Completed).tellsNothingOf("end")
}

func TestAnEndEndsEverything(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","b","c"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"true":"end","false":"join"}},
		{"id":"b","type":"USER_TASK","nextStep":"join","boundaryEvents":[{"type":"TIMER","duration":"PT1H","targetStepId":"end"}]},
		{"id":"c","type":"SERVICE_TASK","nextStep":"join"},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.is(workflow.Waiting, "a", "b", "c").completes("a").is(workflow.Completed).
		tells("step-completed a", "step-completed end", "user-task-cancelled b", "step-skipped b", "job-cancelled c", "step-skipped c", "instance-completed")
	assert.Equal(t, []int{2, 3}, s.last.Void)
}

func TestWhatBeginsAndIsVoidAtOnceNeverBegan(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, `
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","route"],"joinStep":"join"},
		{"id":"a","type":"SERVICE_TASK","timeout":"PT1H","nextStep":"join","compensation":{"jobType":"undo-a"}},
		{"id":"route","type":"DECISION","conditionalNextSteps":{"true":"end","false":"join"}},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.is(workflow.Completed).tellsNothingOf("job-")
	assert.Empty(t, s.last.Begin)
	assert.Empty(t, s.last.Void)
	assert.Empty(t, s.last.Set)
	assert.Empty(t, s.state.Undo)
}

func TestUserTasks(t *testing.T) {
	t.Parallel()
	s := given(t, `{"owner":"bob"}`, `
		{"id":"ask","type":"USER_TASK","jobType":"form","assignee":"${owner}","candidateGroups":["risk"],"due":"PT8H","nextStep":"end"},
		{"id":"end","type":"END"}`)
	s.is(workflow.Waiting, "ask").tells("user-task-created ask", "instance-waiting")
	a := s.activity("ask")
	assert.Equal(t, "bob", a.Assignee)
	assert.Equal(t, []string{"risk"}, a.Groups)
	assert.Equal(t, s.now.Add(8*time.Hour), a.DueAt)
	assert.Equal(t, "form", a.JobType)
	s.refuses(workflow.ErrBadInput, workflow.Input{Kind: workflow.UserTaskCompleted, Name: "end"})
	done := s.completion("ask", `{"approved":true}`)
	s.does(done).is(workflow.Completed).has(`{"owner":"bob","approved":true}`).refuses(workflow.ErrStale, done)
}

func TestTheNextWorkflowStartsAtTheEnd(t *testing.T) {
	t.Parallel()
	s := given(t, `{}`, twoTasks, `"autoStartNextWorkflow":true,"nextWorkflowId":"more"`)
	s.completes("a", "b").is(workflow.Completed)
	assert.Equal(t, []string{"more"}, s.next)
	failed := given(t, `{}`, twoTasks, `"autoStartNextWorkflow":true,"nextWorkflowId":"more"`).breaks("a", "bad")
	assert.Empty(t, failed.next)
}

func TestAContextThatHasEndedSaysNothingAboutTheWorkflow(t *testing.T) {
	t.Parallel()
	p := define(t, `{"id":"a","type":"DECISION","conditionalNextSteps":{"x > 1":"b"}},{"id":"b","type":"END"}`)
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := p.Advance(ctx, workflow.State{Variables: json.RawMessage(`{"x":2}`)}, workflow.Input{Kind: workflow.Start}, workflow.Limits{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestASubworkflow(t *testing.T) {
	t.Parallel()
	steps := `
		{"id":"sub","type":"SUBWORKFLOW","workflowId":"child","workflowVersion":2,"input":{"x":"${y}"},"outputVariable":"result","nextStep":"end"},
		{"id":"end","type":"END"}`
	s := given(t, `{"y":1}`, steps).is(workflow.Active, "sub")
	a := s.activity("sub")
	assert.Equal(t, workflow.ChildActivity, a.Kind)
	assert.Equal(t, "child", a.WorkflowID)
	assert.Equal(t, 2, a.WorkflowVersion)
	assert.JSONEq(t, `{"x":1}`, string(a.Input))
	s.gives("sub", `{"z":3}`).is(workflow.Completed).has(`{"y":1,"result":{"z":3}}`)
	given(t, `{"y":1}`, steps).breaks("sub", "child_failed").is(workflow.Failed)
	given(t, `{"y":1}`, steps).does(cancel(false)).is(workflow.Cancelled)

	large := givenWithin(t, workflow.Limits{Variables: 40}, `{"y":1}`, steps)
	large.gives("sub", `"`+strings.Repeat("x", 40)+`"`).is(workflow.Failed).tells("job-failed sub: variables_too_large")
}
