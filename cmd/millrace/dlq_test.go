package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const deadLetter = `{"id":"` + id1 + `","status":"OPEN","consumer":"billing","consumer_group":"millrace-billing","topic":"execution_events","partition":3,"offset":42,
	"key":{"text":"k\u001b[31m"},"event_type":"millrace.execution.completed.v1","event_id":"ev-1","class":"handler",
	"reason":"no price for item 7 of the order that came in last night","error":"no price","error_type":"*errors.errorString","fingerprint":"5be2c3d1a09f7e64","attempts":5,
	"first_failed_at":"2026-03-01T11:57:00Z","last_failed_at":"2026-03-01T11:58:00Z","replay_count":1,"redrive_of":"` + id2 + `",
	"lane":` + lane + `,"value":{"text":"{\"n\":1}"},"value_json":{"n":1},"headers":[{"name":"ce_id","value":{"text":"ev-1"}},{"name":"bin","value":{"base64":"/wA="}},{"name":"null"}],
	"actions":[{"at":"2026-03-01T11:59:00Z","actor":"ada","action":"redrive","reason":"prices are back","forced":true}]}`

const lane = `{"id":7,"state":"BLOCKED","consumer":"billing","topic":"execution_events","partition":3,"key":{"text":"k\u001b[31m"},
	"dead_letter_id":"` + id1 + `","parked":3,"oldest_parked_at":"2026-03-01T11:58:30Z","opened_at":"2026-03-01T11:58:00Z"}`

func TestDeadLetterOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/dead-letters", 200, `{"dead_letters":[`+deadLetter+`]}`)
	c.api.answers("GET /v1/dead-letters/{id}", 200, deadLetter)
	c.api.answers("GET /v1/dead-letters/groups", 200, `{"groups":[{"fingerprint":"5be2c3d1a09f7e64","consumer":"billing","class":"handler",
		"reason":"no price for item 7","count":12,"first_seen":"2026-02-28T12:00:00Z","last_seen":"2026-03-01T11:58:00Z"}]}`)
	c.api.answers("GET /v1/dead-letters/lanes", 200, `{"lanes":[`+lane+`,{"id":8,"state":"STALLED","consumer":"b","topic":"t","key":{"base64":"/wA="},"parked":0,
		"opened_at":"2026-03-01T11:58:00Z","tries":2,"error":"no database"}]}`)
	c.api.answers("POST /v1/dead-letters/{id}/discard", 200, strings.Replace(deadLetter, "OPEN", "DISCARDED", 1))
	c.api.answers("POST /v1/dead-letters:redrive", 200, `{"matched":1,"redriven":1,"refused":0,"results":[{"id":"`+id1+`","redriven":true}]}`)
	for name, line := range map[string]string{
		"dlq_list_table": "dlq list", "dlq_list_wide": "dlq list -o wide", "dlq_list_json": "dlq list -o json", "dlq_list_name": "dlq ls -o name",
		"dlq_groups_table": "dlq groups", "dlq_groups_yaml": "dlq groups -o yaml", "dlq_show_table": "dlq show " + id1, "dlq_show_json": "dlq show -o json " + id1,
		"dlq_redrive_table": "dlq redrive " + id1, "dlq_redrive_json": "dlq redrive -o json " + id1,
		"dlq_lanes_table": "dlq lanes", "dlq_lanes_wide": "dlq lanes -o wide", "dlq_lanes_json": "dlq lanes -o json", "dlq_lanes_name": "dlq lanes -o name",
		"dlq_discard_table": "dlq discard --reason test " + id1,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}
}

func TestDeadLettersAreSelectedAsAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/dead-letters", 200, `{"dead_letters":[]}`)
	c.api.answers("POST /v1/dead-letters:redrive", 200, `{"dry_run":true,"matched":3,"redriven":3,"refused":0,"results":[]}`)
	for line, want := range map[string]string{
		"dlq list --parking":                             "page_size=50&parking=true&status=OPEN",
		"dlq list --limit 7":                             "page_size=7&status=OPEN",
		"dlq list --status any --after 2h":               "failed_after=2026-03-01T10%3A00%3A00Z&page_size=50",
		"dlq list --status open,redriven --consumer b":   "consumer=b&page_size=50&status=OPEN&status=REDRIVEN",
		"dlq list --before 2026-01-01T00:00:00Z --key k": "failed_before=2026-01-01T00%3A00%3A00Z&key=k&page_size=50&status=OPEN",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		request, _, _ := c.api.last()
		assert.Equal(t, "GET /v1/dead-letters?"+want, request, line)
	}
	for line, want := range map[string]string{
		"dlq redrive --all --dry-run":                            `{"filter":{},"dry_run":true}`,
		"dlq redrive --consumer b --class handler --max 5":       `{"filter":{"consumer":"b","class":"handler"},"max":5}`,
		"dlq redrive --after 1h --reason r --force":              `{"filter":{"failed_after":"2026-03-01T11:00:00Z"},"reason":"r","force":true}`,
		"dlq redrive " + id1 + " " + id2 + " --force --reason x": `{"ids":["` + id1 + `","` + id2 + `"],"force":true,"reason":"x"}`,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		_, body, _ := c.api.last()
		assert.JSONEq(t, want, body, line)
		assert.Equal(t, "3 of 3 would be redriven, 0 refused\n", c.out.String())
	}
}

func TestWrongUseOfDeadLetters(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for line, want := range map[string]string{
		"dlq redrive":                         "say --all",
		"dlq redrive --all " + id1:            "not both",
		"dlq redrive --all --max -1":          "--max",
		"dlq redrive --after yesterday":       "--after",
		"dlq discard " + id1:                  "--reason",
		"dlq discard --reason x":              "requires at least 1 arg",
		"dlq list --status opened":            "none of OPEN",
		"dlq list --limit -1":                 "--limit",
		"dlq lanes --limit -1":                "--limit",
		"dlq show":                            "accepts 1 arg",
		"dlq redirve":                         "did you mean redrive?",
		"dlq groups --before 2026-13-01":      "--before",
		"dlq list --consumer a b c":           "unknown command",
		"dlq redrive --status OPEN --all":     "unknown flag",
		"dlq list --fingerprnt 5be2c3d1a09f7": "did you mean --fingerprint?",
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
		assert.Contains(t, c.err.String(), want, line)
	}
}

func TestRefusedRedrivesHaveAnExitCode(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	refusal := `{"matched":2,"redriven":1,"refused":1,"results":[{"id":"` + id1 + `","redriven":true},{"id":"` + id2 + `","redriven":false,
		"problem":{"status":409,"code":"redrive_limit","title":"The dead letter was redriven too often"}}]}`
	c.api.answers("POST /v1/dead-letters:redrive", 200, refusal)
	assert.Equal(t, exitFailure, c.run("dlq", "redrive", "--all"))
	assert.Equal(t, id2+": The dead letter was redriven too often\n1 of 2 redriven, 1 refused\n", c.out.String())
	assert.Equal(t, exitFailure, c.run("dlq", "redrive", "--all", "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String())

	c = newConsole(t)
	c.api.answers("POST /v1/dead-letters:redrive", 200, `{"matched":1,"redriven":0,"refused":1,"results":[{"id":"`+id1+`","redriven":false,
		"problem":{"status":404,"code":"dead_letter_not_found","title":"The dead letter does not exist"}}]}`)
	assert.Equal(t, exitNotFound, c.run("dlq", "redrive", id1))
	c.api.mux.HandleFunc("GET /v1/dead-letters/{id}", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 404, "dead_letter_not_found", "The dead letter does not exist")
	})
	assert.Equal(t, exitNotFound, c.run("dlq", "show", id1))
}

func TestDiscardGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/dead-letters/"+id2+"/discard", 200, deadLetter)
	c.api.mux.HandleFunc("POST /v1/dead-letters/"+id1+"/discard", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 409, "dead_letter_not_open", "The dead letter is not open")
	})
	assert.Equal(t, exitFailure, c.run("dlq", "discard", id1, id2, "--reason", "why", "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String(), "the answer's id")
	assert.Contains(t, c.err.String(), "not open")
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"reason":"why"}`, body)
}

func TestAllPagesOfDeadLetters(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/dead-letters", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"dead_letters":[` + deadLetter + `],"next_page_token":"2"}`))
	})
	assert.Equal(t, exitOK, c.run("dlq", "list", "-o", "name", "--limit", "2"))
	assert.Equal(t, id1+"\n"+id1+"\n", c.out.String())
	assert.Equal(t, exitFailure, c.run("dlq", "list", "--limit", "0"))
	assert.Contains(t, c.err.String(), "same page again")
}
