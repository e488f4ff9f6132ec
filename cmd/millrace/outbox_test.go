package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const blockedEvents = `{"seq":4711,"event_id":"` + id1 + `","state":"FAILED","aggregate_type":"execution","aggregate_id":"` + id2 + `",
	"event_type":"millrace.execution.completed.v1","topic":"execution_events","attempts":5,"behind":3,
	"last_error":"MESSAGE_TOO_LARGE: the request included a message larger\nthan the broker takes","created_at":"2026-03-01T11:58:00Z"},
	{"seq":4800,"event_id":"` + id2 + `","state":"WAITING","aggregate_type":"order","aggregate_id":"o-1","event_type":"t.v1","topic":"orders",
	"attempts":1,"behind":0,"created_at":"2026-03-01T11:59:00Z","next_attempt_at":"2026-03-01T12:00:02Z"}`

func TestOutboxOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/outbox/events", 200, `{"events":[`+blockedEvents+`]}`)
	c.api.answers("GET /v1/outbox/backlog", 200, `{"pending":5,"waiting":1,"failed":1,"oldest_age":"2m0s","topics":[
		{"topic":"execution_events","pending":4,"waiting":0,"failed":1,"oldest_age":"2m0s"},
		{"topic":"orders","pending":1,"waiting":1,"failed":0,"oldest_age":"1m0s"}]}`)
	c.api.answers("POST /v1/outbox/events/{seq}/skip", 200, `{"events":1}`)
	for name, line := range map[string]string{
		"outbox_list_table": "outbox list", "outbox_list_wide": "outbox list -o wide", "outbox_list_name": "outbox ls -o name",
		"outbox_backlog_table": "outbox backlog", "outbox_backlog_json": "outbox backlog -o json",
		"outbox_skip_table": "outbox skip 4711 4712 --reason known", "outbox_skip_json": "outbox skip 4711 --reason known -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
	}
}

func TestOutboxAsksForWhatItWasAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/outbox/events", 200, `{"events":[`+blockedEvents+`],"next_page_token":"4800"}`)
	c.api.answers("POST /v1/outbox/events/{seq}/{action}", 200, `{"events":1}`)
	c.api.answers("POST /v1/outbox/retry", 200, `{"events":7}`)
	c.api.answers("POST /v1/outbox/republish", 200, `{"events":10,"aggregates":2,"dry_run":true}`)
	for line, want := range map[string][2]string{
		"outbox list --state failed --topic orders --aggregate o-1 --limit 2": {"GET /v1/outbox/events?aggregate_id=o-1&page_size=2&state=FAILED&topic=orders", ""},
		"outbox retry 4711":                                        {"POST /v1/outbox/events/4711/retry", `{}`},
		"outbox retry 4711 --reason raised":                        {"POST /v1/outbox/events/4711/retry", `{"reason":"raised"}`},
		"outbox retry --all":                                       {"POST /v1/outbox/retry", `{}`},
		"outbox retry --topic orders":                              {"POST /v1/outbox/retry", `{"topic":"orders"}`},
		"outbox skip 4711 --reason known":                          {"POST /v1/outbox/events/4711/skip", `{"reason":"known"}`},
		"outbox republish --aggregate o-1":                         {"POST /v1/outbox/republish", `{"aggregate_id":"o-1"}`},
		"outbox republish --before 2026-03-01T12:00:00Z --dry-run": {"POST /v1/outbox/republish", `{"created_before":"2026-03-01T12:00:00Z","dry_run":true}`},
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line+": "+c.err.String())
		request, body, _ := c.api.last()
		assert.Equal(t, want[0], request)
		assert.Equal(t, want[1], body, line)
	}
}

func TestOutboxWrongUse(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, line := range []string{
		"outbox list --state SAD", "outbox list --limit -1", "outbox retry", "outbox retry 1 --all", "outbox retry abc", "outbox skip 0 --reason x",
		"outbox skip 4711", "outbox skip --reason x", "outbox republish", "outbox republish --topic orders", "outbox republish --from yesterday",
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
}

// One that cannot be skipped does not keep the others from it, and is reported.
func TestOutboxSkipReportsEach(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/outbox/events/1/skip", 200, `{"events":1}`)
	c.api.answers("POST /v1/outbox/events/2/skip", 409, `{"status":409,"code":"outbox_event_not_blocked","title":"The outbox event is not in the way","detail":"it is PUBLISHED"}`)
	c.api.answers("POST /v1/outbox/events/3/skip", 200, `{"events":1}`)
	assert.Equal(t, exitFailure, c.run("outbox", "skip", "1", "2", "3", "--reason", "known", "-o", "name"))
	assert.Equal(t, "1\n3\n", c.out.String())
	assert.Contains(t, c.err.String(), "event 2")
	assert.Contains(t, c.err.String(), "it is PUBLISHED")
}
