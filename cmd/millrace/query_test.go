package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQueryPrintsTheData(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /graphql", 200, `{"data":{"getWorkflowInstance":{"id":"wf-1","amount":1.50}}}`)
	require.Equal(t, exitOK, c.run("query", "query($id: String, $n: Int) { a }", "-v", "id=wf-1", "-v", "$n=3", "-v", `t="3"`), c.err.String())
	assert.Equal(t, "{\n  \"getWorkflowInstance\": {\n    \"id\": \"wf-1\",\n    \"amount\": 1.50\n  }\n}\n", c.out.String())
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"query": "query($id: String, $n: Int) { a }", "variables": {"id": "wf-1", "n": 3, "t": "3"}}`, body)

	require.Equal(t, exitOK, c.run("query", "{ a }", "-o", "yaml"))
	assert.Contains(t, c.out.String(), "getWorkflowInstance:\n")

	file := filepath.Join(t.TempDir(), "q.graphql")
	require.NoError(t, os.WriteFile(file, []byte("query A { a } query B { b }"), 0o600))
	require.Equal(t, exitOK, c.run("query", "-f", file, "--operation", "B"))
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"query": "query A { a } query B { b }", "operationName": "B"}`, body)
}

func TestQueryTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /graphql", 200, `{"data":{"a":1,"b":null},"errors":[{"message":"no answer","path":["b"],"extensions":{"code":"timeout"}}]}`)
	assert.Equal(t, exitFailure, c.run("query", "{ a b }"))
	assert.Contains(t, c.out.String(), `"a": 1`)
	assert.Equal(t, "millrace: b: no answer\n", c.err.String())

	c = newConsole(t)
	c.api.answers("POST /graphql", 200, `{"errors":[{"message":"Cannot query field","extensions":{"code":"validation_failed"}}]}`)
	assert.Equal(t, exitFailure, c.run("query", "{ nothing }"))
	assert.Empty(t, c.out.String())
	assert.Contains(t, c.err.String(), "Cannot query field")
	assert.Contains(t, c.err.String(), c.api.url+"/graphql")

	for line, want := range map[string]string{
		"query":                     "there is no query",
		"query -v a {a}":            "want name=value",
		"query {a} -v a=1 -v a=2":   "more than once",
		"query {a} --file x":        "not both",
		"query {a} {b}":             "accepts at most 1 arg",
		"query --file /nowhere/q.x": "no such file",
	} {
		assert.NotEqual(t, exitOK, c.run(strings.Fields(line)...), line)
		assert.Contains(t, c.err.String(), want, line)
	}
}
