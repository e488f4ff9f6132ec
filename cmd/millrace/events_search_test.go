package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEventsSearch(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/events", 200, `{"events":[{"topic":"execution_events","partition":3,"offset":42,"appended_at":"2026-03-01T11:58:00Z",
		"recorded_at":"2026-03-01T11:58:01Z","event":{"specversion":"1.0","id":"ev-1","source":"/millrace","type":"millrace.execution.failed.v1",
		"subject":"`+id1+`","time":"2026-03-01T11:57:59.5Z","data":{"n":1}}}]}`)
	for name, line := range map[string]string{
		"events_search_table": "events search", "events_search_wide": "events search -o wide", "events_search_json": "events search -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
	}
	require.Equal(t, exitOK, c.run("events", "search", "--type", "failed", "--type", "io.*", "--subject", "s", "--from", "2h", "--to", "2026-03-01T11:00:00Z", "--limit", "7"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/events?from=2026-03-01T10%3A00%3A00Z&page_size=7&subject=s&to=2026-03-01T11%3A00%3A00Z&type=millrace.execution.failed.v1&type=io.%2A", request)
	assert.Equal(t, exitUsage, c.run("events", "search", "--from", "yesterday"))
}
