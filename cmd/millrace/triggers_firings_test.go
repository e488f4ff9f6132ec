package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	startedFiring = `{"scheduled_at":"2026-03-01T12:00:00Z","due_at":"2026-03-01T12:00:17Z","fired_at":"2026-03-01T12:00:17.004Z","status":"started",
		"kind":"execution","target_id":"01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34","attempts":1,"settled_at":"2026-03-01T12:00:17.02Z"}`
	dueFiring = `{"scheduled_at":"2026-03-01T11:00:00Z","due_at":"2026-03-01T11:00:17Z","fired_at":"2026-03-01T11:00:18Z","status":"due","by":"ada","attempts":4,
		"cause":{"code":"limit_reached","message":"10 targets of trigger nightly are unfinished","hint":"wait"},"since":"2026-03-01T11:00:18Z","next_try":"2026-03-01T12:00:08Z"}`
	missedFiring = `{"scheduled_at":"2026-03-01T10:00:00Z","due_at":"2026-03-01T10:00:17Z","fired_at":"2026-03-01T10:30:17Z","status":"missed","late":true,
		"first_at":"2026-03-01T08:00:00Z","count":3}`
	nextTwo = `{"times":[{"scheduled_at":"2026-03-29T00:30:00Z","due_at":"2026-03-29T00:30:17Z"},{"scheduled_at":"2026-03-29T01:00:00Z","due_at":"2026-03-29T01:00:17Z"}],
		"time_zone":"Europe/Berlin"}`
)

func TestTriggersByTimeOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/triggers/{id}/firings", 200, `{"firings":[`+startedFiring+`,`+dueFiring+`,`+missedFiring+`]}`)
	c.api.answers("GET /v1/triggers/{id}/next", 200, nextTwo)
	c.api.answers("POST /v1/triggers/{id}/fire", 202, dueFiring)
	for name, line := range map[string]string{
		"triggers_firings_table": "triggers firings nightly", "triggers_firings_wide": "triggers firings nightly -o wide",
		"triggers_firings_json": "triggers firings nightly -o json", "triggers_next_table": "triggers next nightly",
		"triggers_next_wide": "triggers next nightly -o wide", "triggers_next_json": "triggers next nightly -o json",
		"triggers_fire_json": "triggers fire nightly -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
	}
	for line, want := range map[string]string{
		"triggers firings nightly --status skipped --limit 1":          "GET /v1/triggers/nightly/firings?page_size=1&status=skipped",
		"triggers next nightly --count 3 --after 2026-12-24T00:00:00Z": "GET /v1/triggers/nightly/next?after=2026-12-24T00%3A00%3A00Z&count=3",
		"triggers fire nightly":                                        "POST /v1/triggers/nightly/fire",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line+": "+c.err.String())
		request, _, _ := c.api.last()
		assert.Equal(t, want, request)
	}
}

func TestTimesOfAFileNeedNoServer(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	file := filepath.Join(t.TempDir(), "triggers.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`id: nightly
schedule: {cron: "30 2 * * *", time_zone: Europe/Berlin}
target: {execution: {executor: function, spec: {name: echo}}}
---
id: new-year
schedule: {at: ["2027-01-01T00:00:00Z"]}
target: {execution: {executor: function, spec: {name: echo}}}
---
id: hook
webhook: {auth: {none: true}}
target: {execution: {executor: function, spec: {name: echo}}}
`), 0o600))
	require.Equal(t, exitOK, c.run("triggers", "next", "-f", file, "--count", "2", "--after", "2026-03-28T12:00:00Z"), c.err.String())
	assert.Contains(t, c.out.String(), "nightly    2026-03-29T01:00:00Z   Sun 2026-03-29 03:00:00 CEST", "the hour that is left out")
	assert.Contains(t, c.out.String(), "new-year   2027-01-01T00:00:00Z")
	require.Equal(t, exitOK, c.run("triggers", "next", "nightly", "-f", file, "--count", "1", "-o", "name", "--after", "2026-03-28T12:00:00Z"))
	assert.Equal(t, "2026-03-29T01:00:00Z\n", c.out.String())
	assert.Equal(t, exitNotFound, c.run("triggers", "next", "hook", "-f", file))
	require.NoError(t, os.WriteFile(file, []byte(`{"id": "x", "schedule": {"cron": "61 * * * *"}, "target": {"execution": {"executor": "function", "spec": {"name": "echo"}}}}`), 0o600))
	assert.Equal(t, exitFailure, c.run("triggers", "next", "-f", file))
	assert.Contains(t, c.err.String(), `minute "61"`)
	for _, line := range []string{"triggers next", "triggers next a b", "triggers next a --count 0", "triggers next a --after soon", "triggers fire", "triggers firings"} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
}
