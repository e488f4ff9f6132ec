package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const oneReplay = `{"id":"` + id1 + `","state":"RUNNING","source":"kafka","filter":{"topics":["execution_events"],"types":["millrace.execution.*"],
	"offsets":[{"topic":"execution_events","partition":3,"from":5,"to":9},{"topic":"execution_events","partition":4,"from":0}]},
	"target":{"topic":"execution_events","consumer":"audit\u001b[31m"},"rate":50,"max":100,"actor":"ada","reason":"its table was lost","progress":0.42,"total":200,
	"total_at_most":true,"published":40,"skipped":44,"refused":1,"speed":49.6,"left_s":75,"note":"",
	"created_at":"2026-03-01T11:57:00Z","updated_at":"2026-03-01T11:58:00Z","started_at":"2026-03-01T11:57:01Z",
	"consumers":[{"name":"audit","acts":true},{"name":"coordinator","acts":false,"why":"is not the target"}],
	"refusals":[{"topic":"execution_events","partition":3,"offset":7,"problem":"the record is too large"}],
	"partitions":[{"topic":"execution_events","partition":3,"from":5,"next":7,"to":9}],
	"actions":[{"at":"2026-03-01T11:57:00Z","actor":"ada","action":"create","reason":"its table was lost"},
	{"at":"2026-03-01T11:57:30Z","actor":"bob","action":"rate","detail":"from 10 per second to 50 per second"}]}`

const onePlan = `{"dry_run":true,"target":{"topic":"execution_tasks"},"filter":{"topics":["execution_tasks"]},"matched":7,"matched_at_most":true,
	"sample":[{"topic":"execution_tasks","partition":1,"offset":5,"time":"2026-03-01T11:57:00Z","key":{"text":"k"},"type":"millrace.execution.task.v1","event_id":"ev-1","bytes":321}],
	"consumers":[{"name":"worker","acts":false,"why":"does not opt in to replays"}],"notices":["nobody acts"],
	"refused":[{"code":"work_topic","message":"topic execution_tasks carries work","forcible":true},{"code":"x","message":"and that"}]}`

func TestReplayOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/replays", 200, `{"replays":[`+oneReplay+`]}`)
	c.api.answers("GET /v1/replays/{id}", 200, oneReplay)
	c.api.answers("POST /v1/replays", 202, oneReplay)
	c.api.answers("POST /v1/replays/{id}/pause", 200, strings.Replace(oneReplay, "RUNNING", "PAUSED", 1))
	c.api.answers("PATCH /v1/replays/{id}", 200, oneReplay)
	for name, line := range map[string]string{
		"replay_list_table": "replay list", "replay_list_wide": "replay list -o wide", "replay_list_json": "replay ls -o json", "replay_list_name": "replay list -o name",
		"replay_status_table": "replay status " + id1, "replay_status_wide": "replay status -o wide " + id1, "replay_status_json": "replay status -o json " + id1,
		"replay_create_table": "replay create --consumer audit", "replay_pause_table": "replay pause " + id1, "replay_rate_table": "replay rate " + id1 + " 50",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}

	c = newConsole(t)
	c.api.answers("POST /v1/replays", 200, onePlan)
	for name, line := range map[string]string{
		"replay_plan_table": "replay create --to execution_tasks --dry-run", "replay_plan_json": "replay create --to execution_tasks --dry-run -o json",
		"replay_plan_name": "replay create --to execution_tasks --dry-run -o name",
	} {
		assert.Equal(t, exitFailure, c.run(strings.Fields(line)...), "it would be refused")
		c.golden(name)
	}
}

func TestReplaysAreAskedForAsSaid(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/replays", 202, oneReplay)
	for line, want := range map[string]string{
		"replay create --consumer a": `{"filter":{},"target":{"consumer":"a"}}`,
		"replay create --to t --topic e,f --type x.* --source /s --subject u --key k --after 2h --before 1h --rate 5 --max 9 --yes --reason r": `{"filter":{"topics":["e","f"],
			"types":["x.*"],"sources":["/s"],"subjects":["u"],"keys":["k"],"after":"2026-03-01T10:00:00Z","before":"2026-03-01T11:00:00Z"},
			"target":{"topic":"t"},"rate":5,"max":9,"confirm":true,"reason":"r"}`,
		"replay create --to t --force --reason r": `{"filter":{},"target":{"topic":"t"},"force":true,"reason":"r"}`,
		"replay create --to t --from-kafka --offsets a.b-c/3=5..9,e/0=7..": `{"source":"kafka","filter":{"offsets":[
			{"topic":"a.b-c","partition":3,"from":5,"to":9},{"topic":"e","partition":0,"from":7}]},"target":{"topic":"t"}}`,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		_, body, _ := c.api.last()
		assert.JSONEq(t, want, body, line)
	}
	require.Equal(t, exitOK, c.run("replay", "create", "--to", "t", "--idempotency-key", "k"))
	_, _, header := c.api.last()
	assert.Equal(t, "k", header.Get("Idempotency-Key"))

	c.api.answers("GET /v1/replays", 200, `{"replays":[]}`)
	require.Equal(t, exitOK, c.run("replay", "list", "--state", "running,stopped", "--limit", "7"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/replays?page_size=7&state=RUNNING&state=STOPPED", request)
	for _, verb := range []string{"pause", "resume", "cancel"} {
		c.api.answers("POST /v1/replays/{id}/"+verb, 200, oneReplay)
		require.Equal(t, exitOK, c.run("replay", verb, id1, "--reason", "r"))
		request, body, _ := c.api.last()
		assert.Equal(t, "POST /v1/replays/"+id1+"/"+verb, request)
		assert.JSONEq(t, `{"reason":"r"}`, body)
	}
	c.api.answers("PATCH /v1/replays/{id}", 200, oneReplay)
	require.Equal(t, exitOK, c.run("replay", "rate", id1, "0"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"rate":0}`, body)
}

func TestFollowedReplaysHaveAnExitCode(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]int{"DONE": exitFailure /* one was refused */, "STOPPED": exitFailure, "CANCELLED": exitFailure} {
		c := newConsole(t)
		c.api.answers("POST /v1/replays", 202, oneReplay)
		c.api.answers("GET /v1/replays/{id}", 200, strings.Replace(oneReplay, "RUNNING", state, 1))
		assert.Equal(t, want, c.run("replay", "create", "--to", "t", "--wait"), state)
	}
	c := newConsole(t)
	c.api.answers("POST /v1/replays", 202, oneReplay)
	c.api.answers("GET /v1/replays/{id}", 200, strings.NewReplacer("RUNNING", "DONE", `"refused":1,`, "").Replace(oneReplay))
	assert.Equal(t, exitOK, c.run("replay", "create", "--to", "t", "--wait"))
}

func TestWrongUseOfReplays(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for line, want := range map[string]string{
		"replay create":                                         "--consumer or --to",
		"replay create --consumer a --to b":                     "--consumer or --to",
		"replay create --to b --rate -1":                        "--rate",
		"replay create --to b --max -1":                         "--max",
		"replay create --to b --force":                          "needs --reason",
		"replay create --to b --offsets t/0=1..2":               "needs --from-kafka",
		"replay create --to b --from-kafka --offsets t=1..2":    "--offsets",
		"replay create --to b --from-kafka --offsets t/0=1":     "--offsets",
		"replay create --to b --from-kafka --offsets t/0=-1..2": "--offsets",
		"replay create --to b --after tomorrow":                 "--after",
		"replay create --to b --before 2026-13-01":              "--before",
		"replay create b":                                       "unknown command",
		"replay list --state sad":                               "none of PENDING",
		"replay list --limit -1":                                "--limit",
		"replay status":                                         "accepts 1 arg",
		"replay rate " + id1:                                    "accepts 2 arg",
		"replay rate " + id1 + " fast":                          "events per second",
		"replay rate " + id1 + " NaN":                           "events per second",
		"replay paus " + id1:                                    "did you mean pause?",
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
		assert.Contains(t, c.err.String(), want, line)
	}
}
