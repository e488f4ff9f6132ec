package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	sagaNow  = `{"id":"` + id1 + `","name":"order","version":2,"status":"COMPENSATING","current_steps":["pay"],"message":"no room","started_time":"2026-03-01T11:58:00Z"}`
	sagaRead = `{"id":"` + id1 + `","name":"order","business_key":"o-1","status":"NEEDS_ATTENTION","step":"pay","message":"the line is dead","started_time":"2026-03-01T11:58:00Z","finished_time":"2026-03-01T11:59:00Z"}`
)

func TestSagasAreListedAndShown(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/sagas", 200, `{"sagas":[`+sagaRead+`]}`)
	c.api.answers("GET /v1/sagas/"+id1, 200, sagaRead)
	require.Equal(t, exitOK, c.run("sagas", "list", "--status", "NEEDS_ATTENTION", "--name", "order"))
	request, _, _ := c.api.last()
	assert.Contains(t, request, "name=order")
	assert.Contains(t, request, "status=NEEDS_ATTENTION")
	for _, says := range []string{"NEEDS_ATTENTION", "o-1", "the line is dead"} {
		assert.Contains(t, c.out.String(), says)
	}
	require.Equal(t, exitOK, c.run("sagas", "get", id1, "-o", "json"))
	assert.JSONEq(t, sagaRead, c.out.String())
}

func TestASagaThatUndoesSaysWhat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ status, step, says string }{
		{"COMPENSATING", "pay", "compensation of pay"}, {"NEEDS_ATTENTION", "pay", "compensation of pay"},
		{"COMPENSATING", "ship", "ship"}, // which failed, before anything is undone
		{"RUNNING", "pay", "pay"},        // again, after a person had it go on from there
	} {
		c := newConsole(t)
		c.api.answers("GET /v1/sagas/"+id1, 200, `{"id":"`+id1+`","name":"order","status":"`+test.status+`","step":"`+test.step+`","steps":{"`+test.step+`":{},"compensate:pay":{}}}`)
		require.Equal(t, exitOK, c.run("sagas", "get", id1))
		assert.Regexp(t, test.status+`\s+`+test.says+`\s`, c.out.String())
	}
}

func TestTheTimelineOfASagaIsReadable(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/sagas/"+id1+"/timeline", 200, `{"saga":`+sagaNow+`,"events":[
		{"at":"2026-03-01T11:58:00Z","event":"started","actor":"ada"},
		{"at":"2026-03-01T11:58:01Z","event":"step_started","step":"pay","attempt":2},
		{"at":"2026-03-01T11:58:02Z","event":"step_failed","step":"pay","attempt":2,"reason":"timeout","message":"too slow\u001b[31m","in_doubt":true},
		{"at":"2026-03-01T11:58:03Z","event":"step_completed","step":"pay","compensation":true,"attempt":1}]}`)
	require.Equal(t, exitOK, c.run("sagas", "timeline", id1))
	for _, says := range []string{"order (version 2)", "COMPENSATING", "pay: attempt 2", "pay: failed", "timeout: too slow?[31m (in doubt)", "compensation of pay: done", "by ada"} {
		assert.Contains(t, c.out.String(), says)
	}
}

func TestASagaIsStartedFromTheConsole(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/sagas", 201, sagaNow)
	require.Equal(t, exitOK, c.run("sagas", "start", "order", "--state", `{"count":3}`, "--business-key", "o-1", "-o", "name"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"name":"order","state":{"count":3},"business_key":"o-1"}`, body)
	assert.Equal(t, id1+"\n", c.out.String())
	assert.Equal(t, exitUsage, c.run("sagas", "start", "order", "--state", `{count`))
}

func TestDecisionsAboutSagasNeedAReason(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, verb := range []string{"resolve", "skip", "retry", "compensate"} {
		c.api.answers("POST /v1/sagas/"+id1+"/"+verb, 200, sagaNow)
		assert.Equal(t, exitUsage, c.run("sagas", verb, id1), verb)
		require.Equal(t, exitOK, c.run("sagas", verb, id1, "--reason", "seen to"), verb)
		_, body, _ := c.api.last()
		assert.JSONEq(t, `{"reason":"seen to"}`, body)
	}
	require.Equal(t, exitOK, c.run("sagas", "retry", id1, "--reason", "r", "--step", "pay", "--state", `{"a":1}`))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"reason":"r","step":"pay","state":{"a":1}}`, body)
}
