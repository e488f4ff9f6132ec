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
