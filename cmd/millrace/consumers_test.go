package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	stalledConsumer = `{"name":"audit","group":"millrace-audit","topic":"execution_events","kind":"On","state":"stalled","lag":12,
	"paused":{"at":"2026-03-01T11:00:00Z","by":"ada","reason":"its target is being moved"},"partitions":[
	{"partition":0,"state":"idle","owner":{"instance":"host-1","seen_at":"2026-03-01T11:59:58Z"},"committed":7,"end":7,"lag":0,
	 "notice":"the group had no offset in kafka although it has read up to 7: it was deleted or has expired"},
	{"partition":1,"state":"stalled","owner":{"instance":"host-2","seen_at":"2026-03-01T11:59:59Z"},"epoch":4,"position":3,"committed":3,
	 "end":15,"lag":12,"cause":{"class":"infrastructure","error":"connect: connection refused"},"blocked":{"offset":3,"key":"o-1"},
	 "stalled_since":"2026-03-01T11:58:00Z","tries":6,"next_try_at":"2026-03-01T12:00:32Z"},
	{"partition":2,"state":"unowned","owner":{"instance":"host-3","seen_at":"2026-03-01T11:00:00Z","stale":true},
	 "cause":{"class":"handler","code":"breaker_open","error":"too many faults"},"blocked":{"offset":9,"key_bytes":"//4="}}]}`
	wellConsumer = `{"name":"recorder","group":"millrace-recorder","topic":"execution_events","kind":"OnBatchTx","state":"running","partitions":[]}`
)

func TestConsumersOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/consumers", 200, `{"consumers":[`+stalledConsumer+`,`+wellConsumer+`]}`)
	c.api.answers("GET /v1/consumers/audit", 200, stalledConsumer)
	c.api.answers("POST /v1/consumers/audit/pause", 200, `{"id":1,"action":"pause","consumer":"audit","outcome":"DONE"}`)
	c.api.answers("POST /v1/consumers/audit/partitions/1/retry", 200,
		`{"id":2,"action":"retry","consumer":"audit","topic":"execution_events","partition":1,"outcome":"DONE"}`)
	c.api.answers("POST /v1/consumers/audit/partitions/1/dead-letter", 202,
		`{"id":3,"action":"dead_letter","consumer":"audit","topic":"execution_events","partition":1,"offset":3,"outcome":"PENDING"}`)
	for name, line := range map[string]string{
		"consumers_list_table": "consumers list", "consumers_list_wide": "consumers list -o wide", "consumers_list_name": "consumers ls -o name",
		"consumers_list_json": "consumers list -o json", "consumers_get_table": "consumers get audit", "consumers_get_wide": "consumers get audit -o wide",
		"consumers_get_yaml": "consumers get audit -o yaml", "consumers_get_name": "consumers get audit -o name",
		"consumers_pause_table": "consumers pause audit", "consumers_retry_table": "consumers retry audit --all",
		"consumers_dead_letter_json": "consumers dead-letter audit --partition 1 --offset 3 --reason known -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
	}
}

func TestConsumersAskForWhatTheyWereAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/consumers/{name}/{action}", 200, `{"consumer":"audit","moves":[],"action":"pause","outcome":"DONE"}`)
	c.api.answers("POST /v1/consumers/{name}/partitions/{partition}/{action}", 200, `{"consumer":"audit","action":"retry","outcome":"DONE"}`)
	for line, want := range map[string][2]string{
		"consumers pause audit --reason moved":                                           {"POST /v1/consumers/audit/pause", `{"reason":"moved"}`},
		"consumers resume audit":                                                         {"POST /v1/consumers/audit/resume", `{}`},
		"consumers retry audit --partition 0":                                            {"POST /v1/consumers/audit/partitions/0/retry", `{}`},
		"consumers dead-letter audit --partition 2 --offset 0 --reason known":            {"POST /v1/consumers/audit/partitions/2/dead-letter", `{"offset":0,"reason":"known"}`},
		"consumers seek audit --all-partitions --to beginning --dry-run":                 {"POST /v1/consumers/audit/seek", `{"all_partitions":true,"to":"beginning","dry_run":true}`},
		"consumers seek audit --partition 0 --to 12 --reason known":                      {"POST /v1/consumers/audit/seek", `{"partition":0,"offset":12,"reason":"known"}`},
		"consumers seek audit --all-partitions --to 2026-03-01T12:00:00Z --reason known": {"POST /v1/consumers/audit/seek", `{"all_partitions":true,"time":"2026-03-01T12:00:00Z","reason":"known"}`},
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line+": "+c.err.String())
		request, body, _ := c.api.last()
		assert.Equal(t, want[0], request)
		assert.Equal(t, want[1], body, line)
	}
}

func TestConsumersWrongUse(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, line := range []string{
		"consumers get", "consumers retry audit", "consumers retry audit --partition 1 --all", "consumers dead-letter audit --reason x",
		"consumers dead-letter audit --partition 1 --offset 2", "consumers seek audit --to end --reason x",
		"consumers seek audit --partition 1 --to nowhere --reason x", "consumers seek audit --partition 1 --to 3",
		"consumers seek audit --all-partitions --to 3 --reason x", "consumers seek audit --partition 1 --to -3 --reason x",
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
}

// A seek says what it means, and fails when a partition did not move.
func TestConsumersSeekReportsEach(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/consumers/audit/seek", 200, `{"consumer":"audit","topic":"execution_events","repeats":4,
		"warnings":["up to 4 records are handled again, with all their effects"],"moves":[
		{"partition":0,"from":4,"to":0,"outcome":"DONE"},{"partition":1,"to":0,"outcome":"REFUSED","detail":"the group has members that do not report"}]}`)
	assert.Equal(t, exitFailure, c.run(strings.Fields("consumers seek audit --all-partitions --to beginning --reason known")...))
	c.golden("consumers_seek_table")
	assert.Contains(t, c.err.String(), "warning: up to 4 records are handled again")
	assert.Contains(t, c.err.String(), "partition 1 did not move: the group has members that do not report")
}
