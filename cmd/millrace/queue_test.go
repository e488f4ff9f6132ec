package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const heldGPU = `{"scope":"class","resource_class":"gpu","by":"ann","reason":"driver update","since":"2026-03-01T11:58:00Z"}`

func TestHoldAndResume(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/queue/holds", 201, heldGPU)
	c.api.answers("DELETE /v1/queue/holds", 200, `{"resumed":true,"hold":`+heldGPU+`}`)
	c.api.answers("GET /v1/queue/holds", 200, `{"holds":[`+heldGPU+`,{"scope":"user","tenant":"acme","user":"ada","since":"2026-03-01T11:59:00Z"}]}`)

	require.Equal(t, exitOK, c.run("queue", "hold", "--class", "gpu", "--reason", "driver update"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"scope":"class","resource_class":"gpu","reason":"driver update"}`, body)
	require.Equal(t, exitOK, c.run("queue", "hold", "--user", "ada", "--tenant", "acme", "-o", "json"))
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"scope":"user","user":"ada","tenant":"acme"}`, body)
	assert.JSONEq(t, heldGPU, c.out.String())

	require.Equal(t, exitOK, c.run("queue", "resume", "--class", "gpu", "--reason", "done"))
	request, _, _ := c.api.last()
	assert.Equal(t, "DELETE /v1/queue/holds?reason=done&resource_class=gpu&scope=class", request)

	require.Equal(t, exitOK, c.run("queue", "holds"))
	assert.Equal(t, `HOLD            SINCE   BY    REASON
class gpu       2m      ann   driver update
user acme/ada   1m      -     -
`, c.out.String())
}

func TestResumingWhatIsNotOnHold(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("DELETE /v1/queue/holds", 200, `{"resumed":false}`)
	assert.Equal(t, exitOK, c.run("queue", "resume", "--all"))
	assert.Empty(t, c.out.String())
}

func TestAHoldSaysWhatItIsOf(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, line := range []string{"hold", "resume", "hold --all --class gpu", "hold --tenant acme --all", "resume --class gpu --user ada", "hold gpu"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"queue"}, strings.Fields(line)...)...), line)
	}
}

func TestPrioritize(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("PATCH /v1/executions/"+id1, 200, `{"id":"`+id1+`","state":"QUEUED","priority":5,"executor":"process","requested_at":"2026-03-01T11:58:00Z"}`)
	c.api.mux.HandleFunc("PATCH /v1/executions/{id}", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 409, "execution_admitted", "The execution has been admitted")
	})
	require.Equal(t, exitOK, c.run("executions", "prioritize", id1, "--priority", "5", "--reason", "urgent", "-o", "json"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"priority":5,"reason":"urgent"}`, body)
	assert.Contains(t, c.out.String(), `"priority": 5`)

	assert.Equal(t, exitFailure, c.run("executions", "prioritize", "other", id1, "--priority", "5", "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String(), "one that comes too late does not keep the others from it")
	assert.Contains(t, c.err.String(), "The execution has been admitted")

	for _, line := range []string{"prioritize", "prioritize x", "prioritize x --priority 6", "prioritize x 5"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"executions"}, strings.Fields(line)...)...), line)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/queue", 200, `{"classes":[
		{"resource_class":"default","queued":120012,"queued_by_priority":[{"priority":5,"queued":2},{"priority":4,"queued":0},{"priority":3,"queued":10000}],
		 "scheduled":1,"running":15,"workers":2,"oldest_ready_at":"2026-03-01T11:58:30Z",
		 "capacity":{"total":{"slots":16,"memory_bytes":68719476736},"used":{"slots":16,"cpu_millis":2500,"memory_bytes":1610612736},"free":{"slots":0}}},
		{"resource_class":"gpu","queued":3,"queued_by_priority":[{"priority":3,"queued":3}],"scheduled":0,"running":0,"workers":1,"held":true,"queued_held":3,
		 "capacity":{"total":{"slots":4,"gpus":2},"used":{"slots":0},"free":{"slots":4,"gpus":2}}},
		{"resource_class":"old","queued":1,"queued_by_priority":[],"scheduled":0,"running":0,"workers":0,
		 "capacity":{"total":{"slots":0},"used":{"slots":0},"free":{"slots":0}}}],
		"users":[{"resource_class":"default","tenant":"acme","user":"ada","queued":120000,"running":12,"used":{"slots":12,"cpu_millis":2500},"weight":2.5},
		 {"resource_class":"default","tenant":"acme","user":"bob","queued":12,"running":4,"used":{"slots":4},"weight":1,"held":true}],
		"holds":[`+heldGPU+`]}`)
	for name, line := range map[string]string{
		"queue": "queue", "queue_wide": "queue -o wide", "queue_users": "queue --users", "queue_json": "queue -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line)
		c.golden(name)
	}
	require.Equal(t, exitOK, c.run("queue", "--class", "gpu", "--user", "ada", "--tenant", "acme", "-o", "name"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/queue?resource_class=gpu&tenant=acme&user=ada", request)
	assert.Equal(t, "acme/ada\nacme/bob\n", c.out.String())
	assert.Equal(t, exitUsage, c.run("queue", "holt"))
	assert.Contains(t, c.err.String(), "did you mean hold?")
}

func TestWorkersList(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workers", 200, `{"workers":[
		{"id":"host-1","alive":true,"resource_classes":["default","gpu"],"executors":["function","process"],"running":3,
		 "capacity":{"total":{"slots":8,"gpus":1},"used":{"slots":4},"free":{"slots":4}},"since":"2026-03-01T10:00:00Z","announced_at":"2026-03-01T11:59:58Z"},
		{"id":"host-2","alive":false,"resource_classes":["default"],"executors":["process"],"running":0,
		 "capacity":{"total":{"slots":8},"used":{"slots":0},"free":{"slots":8}},"since":"2026-03-01T10:00:00Z","announced_at":"2026-03-01T11:30:00Z",
		 "pools":[{"executor":"kubernetes","name":"prod","resource_class":"default","known":true,"total":{"slots":40}},
		  {"executor":"kubernetes","name":"prod","resource_class":"gpu","known":false},
		  {"executor":"kubernetes","name":"dev","resource_class":"gpu","known":true,"unbounded":true,"total":{"slots":0}}]}]}`)
	require.Equal(t, exitOK, c.run("workers", "list", "--class", "default"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/workers?resource_class=default", request)
	c.golden("workers")
	require.Equal(t, exitOK, c.run("workers", "list", "-o", "wide"))
	c.golden("workers_wide")
}
