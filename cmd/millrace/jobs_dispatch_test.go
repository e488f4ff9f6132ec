package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDispatchOnTheCommandLine(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/dispatch", 200, `{"mode":"kafka_outbox","pending_dispatches":2,"rejected_dispatches":1,"claimable":3,"later":4,"on_hold":5,
		"locked":6,"locked_in_other_mode":7,"waiting_claims":0,"drained":false,"fault":"topics of jobs cannot be created"}`)
	require.Equal(t, exitOK, c.run("jobs", "dispatch"))
	c.golden("jobs_dispatch")
	require.Equal(t, exitOK, c.run("jobs", "dispatch", "-o", "name"))
}

func TestLimitsOfJobTypesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const mail = `{"job_type":"mail","max_running":3,"rate":0.5,"burst":1,"running":2,"updated_at":"2026-03-01T11:59:40Z","updated_by":"ann"}`
	c.api.answers("GET /v1/job-types", 200, `{"job_types":[`+mail+`]}`)
	c.api.answers("PUT /v1/job-types/mail/limits", 200, mail)
	c.api.answers("DELETE /v1/job-types/mail/limits", 204, ``)
	require.Equal(t, exitOK, c.run("jobs", "limits", "list", "-o", "wide"))
	c.golden("jobs_limits")
	require.Equal(t, exitOK, c.run("jobs", "limits", "set", "mail", "--max-running", "3", "--rate", "0.5"))
	request, body, _ := c.api.last()
	assert.Equal(t, "PUT /v1/job-types/mail/limits", request)
	assert.JSONEq(t, `{"max_running":3,"rate":0.5}`, body)
	require.Equal(t, exitOK, c.run("jobs", "limits", "unset", "mail"))
	assert.Equal(t, exitUsage, c.run("jobs", "limits", "set", "mail"))
}
