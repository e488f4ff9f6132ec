package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	waitingLoan = `{"id":"` + id1 + `","definitionId":"LOS::loan","definitionVersion":2,"status":"WAITING","currentStepIds":["manual-review-task"],
		"variables":{"loanAmount":9007199254740993},"startedAt":"2026-03-01T11:58:00Z","businessKey":"APP-1","kind":"workflow","version":4,"priority":3}`
	doneLoan = `{"id":"` + id1 + `","definitionId":"LOS::loan","definitionVersion":2,"status":"COMPLETED","currentStepIds":[],
		"variables":{"ok":true},"startedAt":"2026-03-01T11:58:00Z","completedAt":"2026-03-01T11:58:02Z","nextInstanceId":"n","version":9}`
	failedLoan = `{"id":"` + id1 + `","definitionId":"LOS::loan","definitionVersion":2,"status":"FAILED","currentStepIds":[],
		"startedAt":"2026-03-01T11:58:00Z","completedAt":"2026-03-01T11:58:02Z","failureReason":"the bureau does not answer","version":9}`
)

func TestInstancesAreStarted(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/instances", 201, waitingLoan)
	c.api.answers("GET /v1/instances/"+id1, 200, doneLoan)
	file := filepath.Join(t.TempDir(), "v.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"big": 9007199254740993}`), 0o600))

	require.Equal(t, exitOK, c.run("instances", "start", "LOS::loan", "--variables", "@"+file, "--business-key", "APP-1", "--priority", "1", "-o", "name"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"definitionId":"LOS::loan","variables":{"big":9007199254740993},"businessKey":"APP-1","priority":1}`, body)
	assert.Contains(t, body, "9007199254740993", "numbers stay as they were written")
	assert.Equal(t, id1+"\n", c.out.String())

	require.Equal(t, exitOK, c.run("instances", "start", "LOS::loan", "--var", "amount=1.50", "--var", "name=Alice", "--var", `list=[1,2]`, "-o", "json"))
	_, body, _ = c.api.last()
	assert.Contains(t, body, `"variables":{"amount":1.50,"list":[1,2],"name":"Alice"}`)

	require.Equal(t, exitOK, c.run("instances", "start", "LOS::loan", "--wait"))
	c.golden("instances_wait")
}

func TestWaitingForAnInstanceTellsHowItEnded(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/instances", 201, waitingLoan)
	c.api.answers("GET /v1/instances/"+id1, 200, failedLoan)
	assert.Equal(t, exitFailure, c.run("instances", "start", "LOS::loan", "--wait"))
	assert.Contains(t, c.out.String(), "the bureau does not answer")

	c = newConsole(t)
	c.api.answers("POST /v1/instances", 201, waitingLoan)
	c.api.answers("GET /v1/instances/"+id1, 200, waitingLoan)
	assert.Equal(t, exitTimeout, c.run("instances", "start", "LOS::loan", "--wait", "--timeout", "1ms"))
	assert.Contains(t, c.err.String(), "has not ended within 1ms and goes on")
}

func TestInstancesAreShown(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/instances", 200, `{"items":[`+waitingLoan+`,`+failedLoan+`],"total":0}`)
	c.api.answers("GET /v1/instances/"+id1, 200, waitingLoan)
	c.api.answers("GET /v1/instances/"+id1+"/history", 200, `{"items":[
		{"id":"x.1","instanceId":"x","stepId":"validate","stepType":"SERVICE_TASK","attemptNumber":1,"status":"COMPLETED","startedAt":"2026-03-01T11:58:00Z","endedAt":"2026-03-01T11:58:01Z","output":{"ok":true}},
		{"id":"x.2","instanceId":"x","stepId":"manual-review-task","stepType":"USER_TASK","attemptNumber":1,"status":"RUNNING","startedAt":"2026-03-01T11:58:01Z"},
		{"id":"x.3","instanceId":"x","stepId":"validate","stepType":"SERVICE_TASK","attemptNumber":1,"status":"COMPLETED","startedAt":"2026-03-01T11:58:02Z","endedAt":"2026-03-01T11:58:03Z","compensatesStep":"validate"}]}`)
	c.api.answers("GET /v1/instances/"+id1+"/audit", 200, `{"items":[
		{"at":"2026-03-01T11:58:00.123Z","actor":"worker-1","kind":"job-failed","instanceId":"x","version":2,"detail":{"step_id":"validate","failure":{"code":"down","message":"no answer"}}},
		{"at":"2026-03-01T11:58:01Z","actor":"","kind":"step-completed","instanceId":"x","version":3,"detail":{"step_id":"validate","output":{"ok":true}}},
		{"at":"2026-03-01T11:58:02Z","actor":"","kind":"step-entered","instanceId":"x","version":4,"detail":{"step":3,"step_id":"validate","compensates":1}}]}`)
	for name, line := range map[string]string{
		"instances": "instances list", "instances_wide": "instances list -o wide", "instance": "instances get " + id1,
		"instance_history": "instances history " + id1, "instance_audit": "instances audit " + id1,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line)
		c.golden(name)
	}
	require.Equal(t, exitOK, c.run("instances", "list", "--definition", "a", "--status", "waiting,FAILED", "--business-key", "k", "--limit", "5", "-o", "name"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/instances?businessKey=k&definitionId=a&pageSize=5&status=WAITING&status=FAILED&total=false", request)
	assert.Equal(t, exitUsage, c.run("instances", "list", "--status", "asleep"))
	assert.Equal(t, exitUsage, c.run("instances", "start", "a", "--variables", "[1]"))
	assert.Equal(t, exitUsage, c.run("instances", "start", "a", "--var", "x"))
}

func TestAWatchEndsWithItsInstance(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	looks := 0
	c.api.mux.HandleFunc("GET /v1/instances/"+id1, func(w http.ResponseWriter, _ *http.Request) {
		if looks++; looks == 1 {
			_, _ = w.Write([]byte(strings.Replace(waitingLoan, `"version":4`, `"version":2`, 1)))
			return
		}
		_, _ = w.Write([]byte(failedLoan))
	})
	c.api.answers("GET /v1/instances/"+id1+"/audit", 200, `{"items":[
		{"at":"2026-03-01T11:58:00Z","kind":"instance-started","version":1,"detail":{}},
		{"at":"2026-03-01T11:58:00Z","kind":"step-entered","version":2,"detail":{"step_id":"pay"}},
		{"at":"2026-03-01T11:58:02Z","kind":"instance-failed","version":9,"detail":{"failure":{"code":"failed","message":"no"}}}]}`)
	assert.Equal(t, exitFailure, c.run("instances", "watch", id1))
	assert.Equal(t, `11:58:00.000  instance-started         
11:58:00.000  step-entered             pay
11:58:02.000  instance-failed            failed: no
`, c.out.String(), "each line once")
}

func TestInstancesAreLedOn(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for verb, want := range map[string]string{
		"cancel --reason why --compensate": `{"reason":"why","compensate":true}`, "suspend --reason why": `{"reason":"why"}`, "resume": `{}`,
		"retry --step pay --var x=1": `{"stepId":"pay","variables":{"x":1}}`, "compensate": `{}`,
	} {
		fields := strings.Fields(verb)
		c.api.answers("POST /v1/instances/"+id1+"/"+fields[0], 200, waitingLoan)
		require.Equal(t, exitOK, c.run(append([]string{"instances", fields[0], id1, "-o", "name"}, fields[1:]...)...), c.err.String())
		_, body, _ := c.api.last()
		assert.JSONEq(t, want, body)
	}
	c.api.mux.HandleFunc("POST /v1/instances/other/cancel", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 409, "workflow_conflict", "The state of the instance does not allow this")
	})
	assert.Equal(t, exitFailure, c.run("instances", "cancel", "other", id1, "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String(), "one that is refused does not keep the others from it")

	c.api.answers("POST /v1/instances/"+id1+"/signals/paid", 204, "")
	require.Equal(t, exitOK, c.run("instances", "signal", id1, "paid", "--var", "amount=5"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"amount":5}`, body, "the body is the variables")
	c.api.answers("POST /v1/signals", 200, `{"id":"s","instanceIds":["`+id1+`"],"kept":false}`)
	require.Equal(t, exitOK, c.run("signals", "send", "paid", "ORDER-1", "--ttl", "0"))
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"signal":"paid","correlationKey":"ORDER-1","ttlSeconds":0}`, body)
	assert.Equal(t, "taken by 1 instances\n", c.out.String())
}

func TestUserTasksOnTheCommandLine(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const task = `{"id":"` + id1 + `.review","instanceId":"` + id1 + `","stepId":"review","name":"Manual review","definitionId":"LOS::loan","status":"CLAIMED",
		"assignee":"alice","candidateGroups":["underwriters"],"dueAt":"2026-03-01T11:00:00Z","createdAt":"2026-03-01T10:00:00Z"}`
	c.api.answers("GET /v1/user-tasks", 200, `{"items":[`+task+`]}`)
	c.api.answers("POST /v1/instances/"+id1+"/user-tasks/review/claim", 200, task)
	c.api.answers("POST /v1/instances/"+id1+"/user-tasks/review/unclaim", 200, task)
	c.api.answers("POST /v1/instances/"+id1+"/user-tasks/review/complete", 204, "")
	require.Equal(t, exitOK, c.run("tasks", "list"))
	c.golden("tasks")
	require.Equal(t, exitOK, c.run("tasks", "list", "--group", "g", "--overdue", "--status", "open", "-o", "name"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/user-tasks?group=g&overdue=true&pageSize=50&status=OPEN", request)
	assert.Equal(t, id1+".review\n", c.out.String())
	for _, verb := range []string{"claim", "unclaim"} {
		require.Equal(t, exitOK, c.run("tasks", verb, id1+".review", "--user", "alice", "-o", "name"))
		request, body, _ := c.api.last()
		assert.Equal(t, "POST /v1/instances/"+id1+"/user-tasks/review/"+verb, request)
		assert.JSONEq(t, `{"user":"alice"}`, body)
	}
	require.Equal(t, exitOK, c.run("tasks", "complete", id1, "review", "--by", "alice", "--var", "decision=APPROVED"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"completedBy":"alice","variables":{"decision":"APPROVED"}}`, body)
	assert.Equal(t, exitUsage, c.run("tasks", "complete", "nonsense"))
}

func TestJobsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const held = `{"id":"j1","jobType":"credit-score","instanceId":"` + id1 + `","stepId":"check","stepExecutionId":"x.3","status":"LOCKED","workerId":"worker-1",
		"lockedAt":"2026-03-01T11:59:50Z","lockExpiresAt":"2026-03-01T12:00:20Z","retriesRemaining":2,"variables":{"a":1},"createdAt":"2026-03-01T11:59:40Z","attempt":2,"token":3,"priority":3}`
	const waits = `{"id":"j2","jobType":"fraud","instanceId":"` + id1 + `","stepId":"fraud","stepExecutionId":"x.4","status":"UNLOCKED","retriesRemaining":0,
		"createdAt":"2026-03-01T11:59:40Z","runAt":"2026-03-01T12:00:05Z","attempt":1,"token":0,"onHold":true}`
	c.api.answers("GET /v1/jobs", 200, `{"items":[`+held+`,`+waits+`]}`)
	c.api.answers("GET /v1/jobs/j1", 200, held)
	require.Equal(t, exitOK, c.run("jobs", "list"))
	c.golden("jobs")
	require.Equal(t, exitOK, c.run("jobs", "get", "j1"))
	c.golden("job")
	require.Equal(t, exitOK, c.run("jobs", "list", "--status", "locked", "--type", "a", "--worker", "w", "--instance", "i", "-o", "name"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/jobs?instanceId=i&jobType=a&pageSize=50&status=LOCKED&workerId=w", request)
}
