package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const someInstances = `{"workflow_instances":[
	{"id":"w1","namespace":"acme","name":"order","version":"1.0","status":"FAULTED","start":"2026-03-01T11:00:00Z","end":"2026-03-01T11:00:05Z",
	 "input":{"id":7},"error":{"title":"Card refused","status":402}},
	{"id":"w2","placeholder":true}]}`

func TestInstancesAreListed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workflow-instances", 200, someInstances)
	require.Equal(t, exitOK, c.run("data-index", "list", "--status", "FAULTED,RUNNING", "--name-prefix", "or", "--since", "1h", "--search", "card",
		"--filter", `{"version":"1.0"}`, "--order", "-end", "--limit", "7", "-o", "wide"), c.err.String())
	assert.Regexp(t, `(?m)^ID +STATUS +NAME +VERSION +STARTED +TOOK +NAMESPACE +ERROR$`, c.out.String())
	assert.Regexp(t, `(?m)^w1 +FAULTED +order +1.0 +1h ago +5s +acme +Card refused$`, c.out.String())
	assert.Regexp(t, `(?m)^w2 +- +- +- +- +- +- +-$`, c.out.String())
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/workflow-instances?filter=%7B%22version%22%3A%221.0%22%7D&name_prefix=or&order=-end&page_size=7&search=card"+
		"&started_after=2026-03-01T11%3A00%3A00Z&status=FAULTED%2CRUNNING", request)

	require.Equal(t, exitOK, c.run("data-index", "list", "-o", "json"))
	assert.Contains(t, c.out.String(), `"title": "Card refused"`)
	for line, want := range map[string]string{"--limit -1": "--limit", "--since -1s": "--since", "--filter {": "--filter: is not JSON"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"data-index", "list"}, strings.Fields(line)...)...))
		assert.Contains(t, c.err.String(), want)
	}
}

func TestListsGoOnToFurtherPages(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workflow-instances", 200, `{"workflow_instances":[{"id":"w1"}],"next_page_token":"t"}`)
	assert.NotEqual(t, exitOK, c.run("data-index", "list", "--limit", "0"), "a server that answers with the same page for ever")
	assert.Contains(t, c.err.String(), "the same page again")
	require.Equal(t, exitOK, c.run("data-index", "list", "--limit", "2", "-o", "name"))
	assert.Equal(t, "w1\nw1\n", c.out.String())
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/workflow-instances?page_size=2&page_token=t", request)
}

func TestOneInstanceIsDescribed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workflow-instances/w1", 200, `{"id":"w1","namespace":"acme","name":"order","status":"FAULTED","start":"2026-03-01T11:00:00Z",
		"end":"2026-03-01T11:00:05Z","input":{"id":7},"error":{"title":"Card refused","detail":"no cover","type":"t","status":402,"instance":"do/1"},"events_future":true}`)
	require.Equal(t, exitOK, c.run("data-index", "get", "w1"), c.err.String())
	for _, line := range []string{`Status: +FAULTED`, `Workflow: +acme/order`, `Took: +5s`, `Error: +Card refused`, `Detail: +no cover`, `Code: +402`, `At: +do/1`, `Note: .*future`, `Input: +\{"id":7\}`} {
		assert.Regexp(t, `(?m)^`+line+`$`, c.out.String())
	}
	require.Equal(t, exitOK, c.run("data-index", "get", "w1", "-o", "json"))
	assert.True(t, strings.HasPrefix(c.out.String(), "{"), "one instance is no list")
	c.api.answers("GET /v1/workflow-instances/w9", 404, `{"code":"instance_not_found","title":"There is no such instance","status":404}`)
	assert.Equal(t, exitNotFound, c.run("data-index", "get", "w9"))
}

func TestTasksOfAnInstanceAreListed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workflow-instances/w1/tasks", 200, `{"task_instances":[
		{"id":"w1:do%2F0:0:0","instance_id":"w1","task_position":"do/0","task_name":"greet","status":"COMPLETED","start":"2026-03-01T11:00:00Z","end":"2026-03-01T11:00:00.5Z"}]}`)
	require.Equal(t, exitOK, c.run("data-index", "tasks", "w1"), c.err.String())
	assert.Regexp(t, `(?m)^do/0 +greet +COMPLETED +0 +0 +1h ago +500ms$`, c.out.String())
}

func TestStatisticsAreShown(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/workflow-instances/statistics", 200, `{"groups":[
		{"keys":{"status":"COMPLETED","name":"order"},"count":12,"durations":{"count":12,"min_millis":1,"avg_millis":1500,"p50_millis":1000,"p95_millis":61000,"max_millis":3600000}},
		{"keys":{"status":null,"name":"ship"},"count":1}],"truncated":true}`)
	require.Equal(t, exitOK, c.run("data-index", "stats", "--by", "name,status", "--durations"), c.err.String())
	assert.Regexp(t, `(?m)^NAME +STATUS +COUNT +MIN +AVG +P50 +P95 +MAX$`, c.out.String())
	assert.Regexp(t, `(?m)^order +COMPLETED +12 +1ms +1.5s +1s +1m1s +1h$`, c.out.String())
	assert.Regexp(t, `(?m)^ship +- +1 +- +- +- +- +-$`, c.out.String())
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/workflow-instances/statistics?duration=duration&group_by=name%2Cstatus&limit=100", request)

	c.api.answers("GET /v1/executions/statistics", 200, `{"groups":[{"bucket":"2026-03-01T11:00:00Z","count":3}]}`)
	require.Equal(t, exitOK, c.run("data-index", "stats", "--of", "executions", "--by", "none", "--bucket", "1h"), c.err.String())
	assert.Regexp(t, `(?m)^FROM +COUNT$`, c.out.String())
	assert.Regexp(t, `(?m)^2026-03-01T11:00:00Z +3$`, c.out.String())
	for line, want := range map[string]string{"--of pods": "--of", "--limit 0": "--limit", "--bucket -1s": "--bucket", "--filter x": "--filter"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"data-index", "stats"}, strings.Fields(line)...)...))
		assert.Contains(t, c.err.String(), want)
	}
	assert.Equal(t, exitUsage, c.run("data-index", "search", "enable", "everything"))
	assert.Contains(t, c.err.String(), "neither text nor json")
}
