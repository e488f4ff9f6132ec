package workflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPlanHasTheDefaults(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(`{
	  "id": "loans::check", "name": "Check a loan", "timeout": "P1D",
	  "steps": [
	    {"id": "score", "name": "Score", "type": "SERVICE_TASK", "retryCount": 3, "nextStep": "reserve"},
	    {"id": "reserve", "name": "Reserve", "type": "SERVICE_TASK", "jobType": "reserve-funds", "nextStep": "route",
	     "retry": {"count": 2, "initial": "PT1S", "jitter": 0.5, "on": ["busy"]}, "compensation": {"jobType": "release-funds"}},
	    {"id": "route", "name": "Route", "type": "DECISION", "conditionalNextSteps": {"#z >= 700": "ask", "#a < 700": "end"}},
	    {"id": "ask", "name": "Ask", "type": "USER_TASK", "assignee": "${owner}", "due": "PT8H", "nextStep": "set",
	     "boundaryEvents": [{"type": "TIMER", "duration": "PT24H", "interrupting": false, "targetStepId": "end"}, {"type": "ERROR", "targetStepId": "end"}]},
	    {"id": "set", "name": "Set", "type": "TRANSFORMATION", "transformations": {"fee": 50.0, "total": "${amount + 50}", "text": "as it is"}, "nextStep": "each", "conditionalNextSteps": {"true": "end"}},
	    {"id": "each", "name": "Each", "type": "FOREACH", "items": "${items}", "nextStep": "wait"},
	    {"id": "wait", "name": "Wait", "type": "WAIT", "nextStep": "end"},
	    {"id": "end", "name": "End", "type": "END"}
	  ]}`))
	require.NoError(t, err)
	plan, err := Compile(d)
	require.NoError(t, err)
	assert.Same(t, d, plan.Definition())
	assert.Equal(t, 24*time.Hour, plan.timeout)
	assert.Nil(t, plan.step("nothing"))
	first := plan.first()
	assert.Equal(t, "score", first.JobType)
	assert.Equal(t, retryPolicy{count: 3, max: time.Hour, multiplier: 2}, first.retry)

	reserve := plan.step("reserve")
	assert.Equal(t, 1, reserve.index)
	assert.Equal(t, retryPolicy{count: 2, initial: time.Second, max: time.Hour, multiplier: 2, jitter: 0.5, on: []string{"busy"}}, reserve.retry)
	assert.Equal(t, retryPolicy{count: 5, initial: time.Second, max: time.Hour, multiplier: 2}, reserve.compensation.retry)
	assert.Equal(t, 5*time.Minute, reserve.compensation.timeout)

	route := plan.step("route")
	require.Len(t, route.conditions, 2)
	assert.Equal(t, "#z >= 700", route.conditions[0].String(), "the order is that of the text")
	assert.Equal(t, "end", route.conditions[1].target)

	ask := plan.step("ask")
	assert.Equal(t, "${owner}", ask.assignee.String())
	assert.Equal(t, 8*time.Hour, ask.due)
	assert.Equal(t, 24*time.Hour, ask.boundaries[0].after)
	assert.Equal(t, "error", ask.boundaries[1].ErrorVariable)

	assert.Empty(t, plan.step("set").conditions, "which mean nothing there")
	set := plan.step("set").transformations
	require.Len(t, set, 3)
	assert.Nil(t, set[0].Expression)
	assert.Equal(t, "50.0", string(set[0].literal))
	assert.NotNil(t, set[1].Expression)
	assert.Nil(t, set[2].Expression)

	each := plan.step("each")
	assert.Equal(t, []string{"each", "item", "index"}, []string{each.JobType, each.Item, each.Index})
	assert.NotNil(t, each.items)
	assert.Equal(t, "wait", plan.step("wait").Signal)
}
