package main

import (
	"net/http"
	"os"
	"path/filepath"
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
	c.api.answers("POST /v1/dead-letters:redrive", 200, `{"matched":1,"redriven":1,"refused":0,"results":[{"id":"`+id1+`","done":true}]}`)
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
		"dlq redrive --all --dry-run":                                `{"filter":{},"dry_run":true}`,
		"dlq redrive --consumer b --class handler --max 5 --dry-run": `{"filter":{"consumer":"b","class":"handler"},"max":5,"dry_run":true}`,
		"dlq redrive --after 1h --reason r --force --dry-run":        `{"filter":{"failed_after":"2026-03-01T11:00:00Z"},"reason":"r","force":true,"dry_run":true}`,
		"dlq redrive " + id1 + " " + id2 + " --force --reason x":     `{"ids":["` + id1 + `","` + id2 + `"],"force":true,"reason":"x"}`,
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
		"dlq redrive":                                         "say --all",
		"dlq redrive --all " + id1:                            "not both",
		"dlq redrive --all --max -1":                          "--max",
		"dlq redrive --after yesterday":                       "--after",
		"dlq redrive --all --rate -1":                         "--rate",
		"dlq redrive --all --stop-on-errors 0.1":              "needs --rate",
		"dlq redrive --all --rate 1 --stop-on-errors 1":       "want a share",
		"dlq redrive --all --new-id":                          "needs --force",
		"dlq redrive --rate 1 " + id1:                         "flags select",
		"dlq edit --value x " + id1:                           "--reason",
		"dlq edit --reason x " + id1:                          "say what to change",
		"dlq edit --reason x --value 1 --value-file - " + id1: "either",
		"dlq archive " + id1:                                  "--reason",
		"dlq archive --reason x":                              "say --all",
		"dlq restore --all " + id1:                            "not both",
		"dlq delete " + id1:                                   "--reason",
		"dlq redrives list --state stuck":                     "none of RUNNING",
		"dlq redrives get":                                    "accepts 1 arg",
		"dlq discard " + id1:                                  "--reason",
		"dlq discard --reason x":                              "requires at least 1 arg",
		"dlq list --status opened":                            "none of OPEN",
		"dlq list --limit -1":                                 "--limit",
		"dlq lanes --limit -1":                                "--limit",
		"dlq show":                                            "accepts 1 arg",
		"dlq redirve":                                         "did you mean redrive?",
		"dlq groups --before 2026-13-01":                      "--before",
		"dlq list --consumer a b c":                           "unknown command",
		"dlq redrive --status OPEN --all":                     "unknown flag",
		"dlq list --fingerprnt 5be2c3d1a09f7":                 "did you mean --fingerprint?",
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
		assert.Contains(t, c.err.String(), want, line)
	}
}

func TestRefusedRedrivesHaveAnExitCode(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	refusal := `{"matched":2,"redriven":1,"refused":1,"results":[{"id":"` + id1 + `","done":true},{"id":"` + id2 + `","done":false,
		"problem":{"status":409,"code":"redrive_limit","title":"The dead letter was redriven too often"}}]}`
	c.api.answers("POST /v1/dead-letters:redrive", 200, refusal)
	assert.Equal(t, exitFailure, c.run("dlq", "redrive", "--all", "--dry-run"))
	assert.Equal(t, id2+": The dead letter was redriven too often\n1 of 2 redriven, 1 refused\n", c.out.String())
	assert.Equal(t, exitFailure, c.run("dlq", "redrive", id1, id2, "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String())

	c = newConsole(t)
	c.api.answers("POST /v1/dead-letters:redrive", 200, `{"matched":1,"redriven":0,"refused":1,"results":[{"id":"`+id1+`","done":false,
		"problem":{"status":404,"code":"dead_letter_not_found","title":"The dead letter does not exist"}}]}`)
	assert.Equal(t, exitNotFound, c.run("dlq", "redrive", id1))
	c.api.mux.HandleFunc("GET /v1/dead-letters/{id}", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 404, "dead_letter_not_found", "The dead letter does not exist")
	})
	assert.Equal(t, exitNotFound, c.run("dlq", "show", id1))
}

const redriveJob = `{"id":"` + id1 + `","state":"STOPPED","filter":{"consumer":"billing"},"rate":50,"stop_on_errors":0.1,"actor":"ada","reason":"prices are back",
	"matched":40,"redriven":30,"refused":1,"failed_again":4,"note":"5 of the last 31 letters were refused or failed again",
	"created_at":"2026-03-01T11:57:00Z","updated_at":"2026-03-01T11:58:00Z",
	"actions":[{"at":"2026-03-01T11:57:00Z","actor":"ada","action":"start","reason":"prices are back"}]}`

func TestRedrivesOfMany(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	running := strings.Replace(redriveJob, "STOPPED", "RUNNING", 1)
	c.api.answers("POST /v1/dead-letters:redrive", 202, running)
	c.api.answers("GET /v1/dead-letter-redrives", 200, `{"redrives":[`+redriveJob+`]}`)
	c.api.answers("GET /v1/dead-letter-redrives/{id}", 200, redriveJob)
	c.api.answers("GET /v1/dead-letter-redrives/{id}/letters", 200, `{"letters":[{"id":"`+id1+`","at":"2026-03-01T11:58:00Z","redriven":true,"failed_again":true,
		"failed_as":"`+id2+`"},{"id":"`+id2+`","at":"2026-03-01T11:58:00Z","redriven":false,"problem":"the topic is gone"}]}`)
	for name, line := range map[string]string{
		"dlq_redrive_many_table": "dlq redrive --all", "dlq_redrives_list_table": "dlq redrives list", "dlq_redrives_list_wide": "dlq redrives ls -o wide",
		"dlq_redrives_get_table": "dlq redrives get " + id1, "dlq_redrives_get_json": "dlq redrives get -o json " + id1,
		"dlq_redrives_letters_table": "dlq redrives letters --bad " + id1,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
	}
	require.Equal(t, exitOK, c.run("dlq", "redrives", "list", "--state", "running,Stopped", "--limit", "3"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/dead-letter-redrives?page_size=3&state=RUNNING&state=STOPPED", request)

	require.Equal(t, exitOK, c.run("dlq", "redrive", "--consumer", "b", "--rate", "2.5", "--stop-on-errors", "0.1", "--force", "--new-id"))
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"filter":{"consumer":"b"},"rate":2.5,"stop_on_errors":0.1,"force":true,"new_id":true}`, body)
	assert.Equal(t, exitFailure, c.run("dlq", "redrive", "--all", "--wait"), "it stopped")
	assert.Contains(t, c.out.String(), "STOPPED")

	for _, verb := range []string{"pause", "resume", "cancel"} {
		c.api.answers("POST /v1/dead-letter-redrives/{id}/"+verb, 200, redriveJob)
		require.Equal(t, exitOK, c.run("dlq", "redrives", verb, id1, "--reason", "r"))
		request, body, _ := c.api.last()
		assert.Equal(t, "POST /v1/dead-letter-redrives/"+id1+"/"+verb, request)
		assert.JSONEq(t, `{"reason":"r"}`, body)
	}
}

func TestEditOfADeadLetter(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	edited := strings.Replace(deadLetter, `"actions"`, `"edits":1,"edited":{"value":{"text":"{\"n\":2}"},"value_json":{"n":2},"headers":[{"name":"ce_id","value":{"text":"ev-1"}}]},
		"edit_log":[{"at":"2026-03-01T11:59:00Z","actor":"ada","reason":"wrong number","forced":true,"changes":[{"where":"value/n","old":{"text":"1"},"new":{"text":"2"}}]}],"actions"`, 1)
	c.api.answers("GET /v1/dead-letters/{id}", 200, edited)
	c.api.answers("POST /v1/dead-letters/{id}/edit", 200, edited)
	require.Equal(t, exitOK, c.run("dlq", "show", id1))
	c.golden("dlq_show_edited_table")
	panicked := strings.Replace(deadLetter, `"actions"`, `"next_retry":{"policy":"transient","at":"2026-03-01T12:05:00Z","held":true},"origin":"kafka-connect",
		"archived_at":"2026-03-01T11:59:30Z","stack":"goroutine 7 [running]:\n\tmain.go:12 +0x1d\n","history":[
		{"attempt":1,"at":"2026-03-01T11:57:00Z","records":8,"error":"no price"},{"attempt":1,"at":"2026-03-01T11:57:01.5Z","records":1,"error":"handler panicked: x"}],"actions"`, 1)
	d := newConsole(t)
	d.api.answers("GET /v1/dead-letters/{id}", 200, panicked)
	require.Equal(t, exitOK, d.run("dlq", "show", id1))
	d.golden("dlq_show_panic_table")
	file := filepath.Join(t.TempDir(), "value")
	for _, content := range []string{"{\"n\":3}\n", "\xff\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.Equal(t, exitOK, c.run("dlq", "edit", id1, "--value-file", file, "--reason", "r"), c.err.String())
		want := `{"value":{"text":"{\"n\":3}"},"after_edits":1,"reason":"r"}`
		if content[0] != '{' {
			want = `{"value":{"base64":"/wo="},"after_edits":1,"reason":"r"}`
		}
		_, body, _ := c.api.last()
		assert.JSONEq(t, want, body)
	}
	require.Equal(t, exitOK, c.run("dlq", "edit", id1, "--value", "", "--key", "k", "--set-header", "a=b=c", "--set-header", "ce_id=x",
		"--unset-header", "bin", "--force-schema", "--reason", "r"), c.err.String())
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"value":{"text":""},"key":{"text":"k"},"headers":[{"name":"ce_id","value":{"text":"x"}},{"name":"a","value":{"text":"b=c"}}],
		"after_edits":1,"force_schema":true,"reason":"r"}`, body)
	require.Equal(t, exitOK, c.run("dlq", "edit", id1, "--unset-header", "ce_id", "--reason", "r"), c.err.String())
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"headers":[],"after_edits":1,"reason":"r"}`, body)
	assert.Equal(t, exitUsage, c.run("dlq", "edit", id1, "--set-header", "x", "--reason", "r"))
	assert.Equal(t, exitFailure, c.run("dlq", "edit", id1, "--value-file", file+"x", "--reason", "r"))
}

func TestArchivingOfDeadLetters(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	answer := `{"changed":1,"results":[{"id":"` + id1 + `","done":true},{"id":"` + id2 + `","done":false,
		"problem":{"status":409,"code":"dead_letter_archived","title":"The dead letter is archived"}}]}`
	c.api.answers("POST /v1/dead-letters:archive", 200, answer)
	assert.Equal(t, exitFailure, c.run("dlq", "archive", id1, id2, "--reason", "r"))
	assert.Equal(t, id2+": The dead letter is archived\n1 archived\n", c.out.String())
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"ids":["`+id1+`","`+id2+`"],"reason":"r"}`, body)
	c.api.answers("POST /v1/dead-letters:restore", 200, `{"changed":12,"results":[]}`)
	require.Equal(t, exitOK, c.run("dlq", "restore", "--status", "open", "--consumer", "b"), c.err.String())
	assert.Equal(t, "12 restored\n", c.out.String())
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"filter":{"consumer":"b"},"statuses":["OPEN"]}`, body)
	require.Equal(t, exitOK, c.run("dlq", "restore", "--all"), c.err.String())
	_, body, _ = c.api.last()
	assert.JSONEq(t, `{"filter":{}}`, body)
	c.api.answers("POST /v1/dead-letters:delete", 200, `{"changed":0,"results":[{"id":"`+id1+`","done":false,
		"problem":{"status":404,"code":"dead_letter_not_found","title":"The dead letter does not exist"}}]}`)
	assert.Equal(t, exitNotFound, c.run("dlq", "delete", id1, "--reason", "r"))
	c.api.answers("GET /v1/dead-letters", 200, `{"dead_letters":[]}`)
	require.Equal(t, exitOK, c.run("dlq", "list", "--archived", "--status", "any"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/dead-letters?archived=only&page_size=50", request)
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
