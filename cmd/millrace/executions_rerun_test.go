package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRerunNamed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions/"+id1+"/rerun", 202, strings.ReplaceAll(completed, id1, id2))
	c.api.answers("POST /v1/executions/missing/rerun", 404, `{"status":404,"code":"execution_not_found","title":"There is no such execution"}`)
	require.Equal(t, exitOK, c.run("executions", "rerun", id1, "--reason", "once more", "-o", "name"), c.err.String())
	assert.Equal(t, id2+"\n", c.out.String())
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"reason":"once more"}`, body)

	require.Equal(t, exitNotFound, c.run("executions", "rerun", "missing", id1, "-o", "name"))
	assert.Equal(t, id2+"\n", c.out.String(), "one that is missing does not hold up the others")
}

func TestRerunSelected(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions:rerun", 200, `{"matched":3,"accepted":2,"refused":1,"results":[
		{"rerun_of":"a","status":202,"id":"x"},{"rerun_of":"b","status":200,"id":"y","replayed":true},
		{"rerun_of":"c","status":404,"problem":{"status":404,"code":"execution_not_found","title":"There is no such execution"}}]}`)
	require.Equal(t, exitFailure, c.run("executions", "rerun", "--state", "failed", "--label", "team=data", "--after", "2h", "--max", "3"))
	assert.Equal(t, "a is rerun as x\nc: There is no such execution\n3 matched, 1 rerun, 1 were rerun before, 1 refused\n", c.out.String())
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"filter":{"states":["FAILED"],"labels":{"team":"data"},"requested_after":"2026-03-01T10:00:00Z"},"max":3}`, body)

	require.Equal(t, exitFailure, c.run("executions", "rerun", "--all", "-o", "name"))
	assert.Equal(t, "x\ny\n", c.out.String())

	for _, line := range []string{"", "--max 3", "--all --max -1", id1 + " --all", "--after -2h", "--state gone"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"executions", "rerun"}, strings.Fields(line)...)...), line)
	}
}

func TestRerunDryRun(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions:rerun", 200, `{"dry_run":true,"matched":7,"accepted":0,"refused":0,"results":[]}`)
	require.Equal(t, exitOK, c.run("executions", "rerun", "--all", "--dry-run"))
	assert.Equal(t, "7 would be rerun\n", c.out.String())
}
