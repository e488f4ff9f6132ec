package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv/transcript"
	"github.com/millrace/millrace/internal/trigger"
)

const (
	ordersYAML = `id: orders
kafka:
  topics: [orders]
target:
  execution:
    executor: function
    spec: {name: invoice, args: {order: "${body}"}}
    concurrency_key: ${key}
`
	nightlyYAML = `id: nightly
schedule:
  cron: "0 2 * * *"
  time_zone: Europe/Berlin
target:
  workflow: {id: report}
`
	badYAML = `id: Bad
kafka:
  topics: orders
---
id: worse
schedule:
  cron: "* * *"
target: {}
`
	ordersTrigger = `{"id":"orders","uid":"0197f000-0000-7000-8000-000000000001","type":"kafka","enabled":true,"tenant":"acme","revision":3,
		"created_at":"2026-02-01T11:00:00Z","created_by":"ada","updated_at":"2026-03-01T11:00:00Z","updated_by":"bob","state":"error","since":"2026-03-01T11:50:00Z",
		"cause":{"code":"limit_reached","message":"5 of 5 executions\u001b[31m are open","hint":"wait"},
		"definition":{"id":"orders","type":"kafka","enabled":true,"user":"ada","kafka":{"topics":["orders","12:30"]},"target":{"execution":{"executor":"function","spec":{"name":"invoice","args":{"n":9007199254740993,"f":1.50}}}}}}`
	nightlyTrigger = `{"id":"nightly","uid":"0197f000-0000-7000-8000-000000000002","type":"schedule","enabled":false,"revision":1,
		"created_at":"2026-02-01T11:00:00Z","updated_at":"2026-02-01T11:00:00Z","state":"disabled",
		"definition":{"id":"nightly","type":"schedule","enabled":false,"schedule":{"cron":"0 2 * * *"},"target":{"workflow":{"id":"report"}}}}`
	ordersStatus = `{"id":"orders","uid":"0197f000-0000-7000-8000-000000000001","type":"kafka","revision":3,"state":"error","since":"2026-03-01T11:50:00Z","next_try":"2026-03-01T12:00:30Z","lag":12,
		"cause":{"code":"limit_reached","message":"5 of 5 executions are open","hint":"it goes on when one has ended"},
		"notes":[{"code":"offsets_expire","message":"its offsets expire on 2026-03-05","hint":"enable it before"}],
		"members":[{"member":0,"owner":"host-1","state":"running","since":"2026-03-01T10:00:00Z","revision":3,"reported_at":"2026-03-01T11:59:59Z"}],
		"partitions":[
			{"topic":"orders","partition":0,"member":0,"state":"running","offset":5,"committed":5,"end":5,"lag":0,"since":"2026-03-01T10:00:00Z"},
			{"topic":"orders","partition":1,"member":0,"state":"error","cause":{"code":"limit_reached","message":"5 of 5 executions are open"},"offset":7,"key":"Yy0x","committed":7,"end":19,"lag":12,
			"since":"2026-03-01T11:50:00Z","attempts":9,"next_try":"2026-03-01T12:00:30Z"},
			{"topic":"orders","partition":2,"member":0,"state":"starting","offset":0,"key":"/w==","committed":-1,"end":-1}],
		"settings":[{"name":"kafka.brokers","value":["kafka:9092"],"source":"installation"},{"name":"kafka.prefetch_count","value":10,"source":"default"},{"name":"alert_after","value":"2h0m0s","source":"definition"}]}`
)

// triggerAPI answers as a server that knows two triggers, and refuses those of the
// executor "nobody".
func triggerAPI(t *testing.T) *console {
	t.Helper()
	c := newConsole(t)
	c.api.answers("GET /v1/triggers", 200, `{"triggers":[`+nightlyTrigger+`,`+ordersTrigger+`]}`)
	c.api.answers("GET /v1/triggers/orders", 200, ordersTrigger)
	c.api.answers("GET /v1/triggers/orders/status", 200, ordersStatus)
	c.api.answers("POST /v1/triggers/orders/enable", 200, ordersTrigger)
	c.api.answers("POST /v1/triggers/nightly/disable", 200, nightlyTrigger)
	c.api.answers("DELETE /v1/triggers/{id}", 200, ordersTrigger)
	c.api.mux.HandleFunc("GET /v1/triggers/nobody", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 404, "trigger_not_found", "There is no such trigger")
	})
	c.api.mux.HandleFunc("PUT /v1/triggers/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, body, _ := c.api.last()
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(body, `"nobody"`) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"type":"x","title":"The trigger is not valid","status":422,"code":"trigger_invalid","detail":"it has 1 fault",
				"errors":[{"pointer":"/kafka/group","code":"immutable","message":"is \"x\" for ever","hint":"leave it"}]}`))
			return
		}
		answer := map[string]any{}
		assert.NoError(t, json.Unmarshal([]byte(ordersTrigger), &answer))
		answer["id"], answer["status"] = r.PathValue("id"), "updated"
		if r.PathValue("id") == "nightly" {
			answer["type"], answer["status"] = "schedule", "unchanged"
		} else {
			answer["warnings"] = []map[string]any{{"pointer": "/kafka/topics/0", "code": "own_topic", "message": "is a topic of Millrace itself", "hint": "do not", "warning": true}}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	})
	return c
}

func TestTriggersOutputs(t *testing.T) {
	t.Parallel()
	c := triggerAPI(t)
	for name, line := range map[string]string{
		"triggers_list_table": "triggers list", "triggers_list_wide": "trigger ls -o wide", "triggers_list_json": "triggers list -o json", "triggers_list_name": "triggers list -o name",
		"triggers_get": "triggers get orders", "triggers_get_json": "triggers get orders -o json", "triggers_status": "triggers status orders", "triggers_status_wide": "triggers status orders -o wide",
		"triggers_status_json": "triggers status orders -o json", "triggers_export": "triggers export", "triggers_export_json": "triggers export orders -o json",
		"triggers_enable": "triggers enable orders", "triggers_disable_json": "triggers disable nightly -o json", "triggers_delete": "triggers delete orders nightly --dry-run",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), "%s: %s", line, c.err)
		c.golden(name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}
	request, _, _ := c.api.last()
	assert.NotEmpty(t, request)
}

// TestTriggersExportIsReadAgain holds that what is printed is what is applied.
func TestTriggersExportIsReadAgain(t *testing.T) {
	t.Parallel()
	c := triggerAPI(t)
	for _, output := range []string{"table", "yaml", "json"} {
		require.Equal(t, exitOK, c.run("triggers", "export", "-o", output), c.err)
		documents, faults := trigger.ReadDocuments([]byte(c.out.String()))
		require.Empty(t, faults, output)
		require.Len(t, documents, 2)
		for i, text := range []string{nightlyTrigger, ordersTrigger} {
			var want struct {
				Definition json.RawMessage `json:"definition"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &want))
			assert.JSONEq(t, string(want.Definition), string(documents[i].JSON), output)
		}
		assert.Contains(t, string(documents[1].JSON), "9007199254740993", "no digit is lost")
	}
}

func TestTriggersLint(t *testing.T) { // not parallel: it changes the folder
	c := newConsole(t)
	wd, err := os.Getwd()
	require.NoError(t, err)
	c.write(map[string]string{
		"orders.yaml": ordersYAML, "bad.yaml": badYAML, "all/nightly.yml": nightlyYAML, "all/deep/orders.json": `{"triggers": [{"id": "orders"}]}`,
		"all/.git/x.yaml": "{", "all/.hidden.yaml": "{", "all/read.me": "{", "twins/a.yaml": ordersYAML, "twins/b.yaml": ordersYAML, "empty/x.txt": "",
		"secret.yaml": strings.Replace(nightlyYAML, "schedule:\n  cron: \"0 2 * * *\"\n  time_zone: Europe/Berlin", "webhook:\n  auth:\n    bearer: {env: ANY_NAME}", 1),
	})
	c.errTerminal = true
	outputs := map[string]string{}
	for name, test := range map[string]struct {
		line string
		code int
	}{
		"triggers_lint_good": {"orders.yaml secret.yaml", exitOK}, "triggers_lint_bad": {"orders.yaml bad.yaml", exitFailure}, "triggers_lint_folder": {"all", exitFailure},
		"triggers_lint_json": {"bad.yaml orders.yaml -o json", exitFailure}, "triggers_lint_twins": {"twins", exitFailure}, "triggers_lint_stdin": {"- --strict", exitFailure},
	} {
		c.in = strings.NewReader(strings.Replace(ordersYAML, "    concurrency_key: ${key}\n", "", 1))
		require.Equal(t, test.code, c.run(append([]string{"triggers", "lint"}, strings.Fields(test.line)...)...), "%s: %s", test.line, c.err)
		outputs[name] = c.out.String()
	}
	for line, code := range map[string]int{"missing.yaml": exitNotFound, "empty": exitNotFound, "": exitUsage} {
		assert.Equal(t, code, c.run(append([]string{"triggers", "lint"}, strings.Fields(line)...)...), line)
	}
	t.Chdir(wd)
	for name, text := range outputs {
		c.out = &transcript.Text{}
		_, _ = c.out.Write([]byte(text))
		c.golden(name)
	}
}

func TestTriggersApply(t *testing.T) { // not parallel: it changes the folder
	c := triggerAPI(t)
	c.write(map[string]string{"defs/orders.yaml": ordersYAML, "defs/nightly.yaml": nightlyYAML, "bad.yaml": badYAML,
		"refused.yaml": strings.Replace(ordersYAML, "[orders]", "[orders]\n  group: nobody", 1)})
	require.Equal(t, exitOK, c.run("triggers", "apply", "defs"), c.err)
	assert.Equal(t, "ID        TYPE       REVISION   STATUS      FILE\n"+
		"nightly   schedule   3          unchanged   defs/nightly.yaml\n"+
		"orders    kafka      3          updated     defs/orders.yaml\n", c.out.String())
	assert.Equal(t, "defs/orders.yaml:3:12: warning: /kafka/topics/0 is a topic of Millrace itself [own_topic]\n    do not\n", c.err.String(), "once, and where it is")
	request, body, _ := c.api.last()
	assert.Equal(t, "PUT /v1/triggers/orders", request)
	assert.JSONEq(t, `{"id":"orders","kafka":{"topics":["orders"]},"target":{"execution":{"executor":"function","spec":{"name":"invoice","args":{"order":"${body}"}},"concurrency_key":"${key}"}}}`, body)
	assert.Len(t, c.api.requests, 4, "all are checked before one is applied")

	before := len(c.api.requests)
	require.Equal(t, exitFailure, c.run("triggers", "apply", "defs", "bad.yaml"))
	assert.Contains(t, c.err.String(), "bad.yaml:3:3: error: /kafka/topics must be an array, not a string [wrong_type]")
	assert.Contains(t, c.err.String(), "nothing was applied: the triggers have")
	assert.Len(t, c.api.requests, before)

	require.Equal(t, exitFailure, c.run("triggers", "apply", "defs/nightly.yaml", "refused.yaml"))
	assert.Contains(t, c.err.String(), "refused.yaml:4:3: error: /kafka/group is \"x\" for ever [immutable]\n    leave it\n")
	assert.Contains(t, c.err.String(), "nothing was applied: the triggers have 1 error")
	assert.Empty(t, c.out.String())
	for _, r := range c.api.requests[before:] {
		assert.Contains(t, r, "dry_run=true")
	}

	require.Equal(t, exitOK, c.run("triggers", "apply", "--dry-run", "--prune", "defs/nightly.yaml"), c.err)
	assert.Contains(t, c.out.String(), "unchanged (dry run)")
	assert.Contains(t, c.out.String(), "deleted (dry run)")
	assert.Equal(t, "DELETE /v1/triggers/orders?dry_run=true", c.api.requests[len(c.api.requests)-1])
	require.Equal(t, exitOK, c.run("triggers", "apply", "--prune", "defs"), c.err)
	assert.NotContains(t, c.out.String(), "deleted")

	c.in = strings.NewReader(nightlyYAML)
	require.Equal(t, exitOK, c.run("triggers", "apply", "-", "-o", "json"), c.err)
	assert.Contains(t, c.out.String(), `"status": "unchanged"`)
}

func TestTriggersWrongUse(t *testing.T) {
	t.Parallel()
	c := triggerAPI(t)
	for _, line := range []string{"triggers lst", "triggers get", "triggers apply", "triggers list x", "triggers enable", "triggers delete", "triggers status", "triggers list --limit -1"} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
	assert.Equal(t, exitNotFound, c.run("triggers", "get", "nobody"))
	assert.Equal(t, exitNotFound, c.run("triggers", "export", "nobody"))
}
