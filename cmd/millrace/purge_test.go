package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

const (
	purgeRunning = `{"id":"` + id1 + `","state":"RUNNING","user_hash":"5be2","actor":"ada","reason":"request 4711","step":"outbox","rounds":1,
		"erased":{"executions":2,"events":24},"created_at":"2026-03-01T11:59:00Z","updated_at":"2026-03-01T11:59:30Z"}`
	purgeWaiting = `{"id":"` + id1 + `","state":"WAITING","tenant":"acme","user_hash":"5be2","actor":"ada","rounds":1,
		"erased":{"executions":2,"events":24},"waiting":{"executions_not_ended":1},"created_at":"2026-03-01T11:59:00Z"}`
	purgeDone = `{"id":"` + id1 + `","state":"DONE","user_hash":"5be2","actor":"ada","reason":"request 4711","rounds":2,
		"erased":{"executions":2,"events":24},"created_at":"2026-03-01T11:59:00Z","finished_at":"2026-03-01T12:00:00Z"}`
	purgeDry = `{"dry_run":true,"erased":{"executions":2,"events":24},"waiting":{"executions_not_ended":1}}`
)

func TestPurgeOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/purges", 200, `{"purges":[`+purgeDone+`,`+purgeWaiting+`]}`)
	c.api.answers("GET /v1/purges/{id}", 200, purgeRunning)
	c.api.answers("POST /v1/purges/{id}/cancel", 200, strings.Replace(purgeRunning, "RUNNING", "CANCELLED", 1))
	for name, line := range map[string]string{
		"purge_list_table": "purge list", "purge_list_wide": "purge ls -o wide", "purge_list_json": "purge list -o json",
		"purge_get_table": "purge get " + id1, "purge_cancel_name": "purge cancel -o name " + id1,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
	}
}

func TestPurgeAsksFirst(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	require.Equal(t, exitUsage, c.run("purge"))
	assert.Contains(t, c.err.String(), "--subject")

	c.api.answers("POST /v1/purges", 200, purgeDry)
	require.Equal(t, exitOK, c.run("purge", "--subject", "eve", "--dry-run", "-o", "json"), c.err.String())
	assert.Contains(t, c.out.String(), `"dry_run": true`)
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"user":"eve","dry_run":true}`, body)

	require.Equal(t, exitFailure, c.run("purge", "--subject", "eve"), "nobody answers")
	assert.Contains(t, c.err.String(), "24 events, 2 executions")
	assert.Contains(t, c.err.String(), "It has to wait for: 1 executions not ended")
	assert.Contains(t, c.err.String(), "nothing was erased")
	_, body, _ = c.api.last()
	assert.Contains(t, body, `"dry_run":true`, "and nothing else was asked for")

}

func TestPurgeIsStartedAsAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/purges", 202, purgeRunning)
	c.errTerminal = true
	require.Equal(t, exitOK, c.run("purge", "--subject", "eve", "--tenant", "acme", "--cancel", "--reason", "request 4711", "--yes"), c.err.String())
	assert.Contains(t, c.err.String(), "millrace purge get "+id1+" --watch")
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"user":"eve","tenant":"acme","cancel":true,"reason":"request 4711"}`, body)
}

func TestPurgeIsFollowed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/purges", 202, purgeRunning)
	c.api.answers("GET /v1/purges/{id}", 200, purgeDone)
	require.Equal(t, exitOK, c.run("purge", "--subject", "eve", "--yes", "--wait"), c.err.String())
	assert.Contains(t, c.out.String(), "DONE")
}

// What is cancelled ends soon.
func TestPurgeIsFollowedWhileItCancels(t *testing.T) {
	t.Parallel()
	assert.True(t, ending(client.Purge{State: "WAITING", Cancel: true, Waiting: map[string]int64{"executions_not_ended": 1}}))
	assert.False(t, ending(client.Purge{State: "WAITING", Waiting: map[string]int64{"executions_not_ended": 1}}))
	assert.False(t, ending(client.Purge{State: "WAITING", Cancel: true, Waiting: map[string]int64{"executions_not_ended": 1, "events_not_published": 1}}))
}

func TestAPurgeThatWaitsIsNotDone(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/purges", 202, purgeRunning)
	c.api.answers("GET /v1/purges/{id}", 200, purgeWaiting)
	require.Equal(t, exitFailure, c.run("purge", "--subject", "eve", "--yes", "--wait"), "it is not done")
	assert.Contains(t, c.err.String(), "waits for: 1 executions not ended")
}
