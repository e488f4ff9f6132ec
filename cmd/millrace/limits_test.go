package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	teamLimit = `{"name":"team","per":"key","key":"labels.team","when":"priority < 5","rate":"5/m","burst":10,"concurrency":2,"action":"reject",
		"since":"2026-03-01T11:00:00Z","previous":"per key (labels.team), rate 5/m burst 5, queue","declared_by":"coordinator-1","keys_in_use":10000}`
	userLimit = `{"name":"user","per":"user","concurrency":1,"action":"queue","since":"2026-03-01T11:59:00Z","previous":"per user, concurrency 5","declared_by":"coordinator-1","keys_in_use":0}`
	blueKey   = `{"key":"blue","tokens":0,"next_token_at":"2026-03-01T12:00:07Z","in_use":2,"updated_at":"2026-03-01T11:59:58Z"}`
	redKey    = `{"key":"red","tokens":10,"in_use":1,"updated_at":"2026-03-01T11:58:00Z"}`
)

func TestLimitsOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/limits", 200, `{"limits":[`+teamLimit+`,`+userLimit+`]}`)
	c.api.answers("GET /v1/limits/{name}", 200, teamLimit)
	c.api.answers("GET /v1/limits/{name}/keys", 200, `{"keys":[`+blueKey+`,`+redKey+`]}`)
	c.api.answers("POST /v1/limits/{name}/reset", 200, redKey)
	for name, line := range map[string]string{
		"limits_list_table": "limits list", "limits_list_wide": "limits ls -o wide", "limits_list_json": "limits list -o json",
		"limits_list_name": "limits list -o name", "limits_get_table": "limits get team", "limits_get_json": "limits get team -o json",
		"limits_get_name": "limits get team -o name", "limits_reset_table": "limits reset team red --reason over", "limits_reset_json": "limits reset team red -o json",
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
	}
}

func TestLimitsAskForWhatTheyWereAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/limits", 200, `{"limits":[`+teamLimit+`],"next_page_token":"t"}`)
	c.api.answers("GET /v1/limits/{name}", 200, userLimit)
	c.api.answers("GET /v1/limits/{name}/keys", 200, `{"keys":[`+blueKey+`],"next_page_token":"t"}`)
	c.api.answers("POST /v1/limits/{name}/reset", 200, blueKey)
	for line, want := range map[string][2]string{
		"limits list --limit 1":                           {"GET /v1/limits?page_size=1", ""},
		"limits list --limit 2":                           {"GET /v1/limits?page_size=2&page_token=t", ""},
		"limits get user --key acme/ada --limit 1":        {"GET /v1/limits/user/keys?key=acme%2Fada&page_size=1", ""},
		"limits reset user acme/ada --reason import-over": {"POST /v1/limits/user/reset", `{"key":"acme/ada","reason":"import-over"}`},
		"limits reset user acme/ada":                      {"POST /v1/limits/user/reset", `{"key":"acme/ada"}`},
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), line+": "+c.err.String())
		request, body, _ := c.api.last()
		assert.Equal(t, want[0], request)
		assert.Equal(t, want[1], body, line)
	}
}

func TestLimitsWrongUse(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/limits/{name}", 200, userLimit)
	c.api.answers("GET /v1/limits/{name}/keys", 200, `{"keys":[]}`)
	for _, line := range []string{"limits list --limit -1", "limits list x", "limits get", "limits get a --limit -1", "limits reset a", "limits lst"} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(line)...), line)
	}
	assert.Equal(t, exitNotFound, c.run("limits", "get", "user", "--key", "nobody"))
	assert.Contains(t, c.err.String(), `limit user has no key "nobody"`)
	require.Equal(t, exitOK, c.run("limits", "get", "user"))
	assert.Contains(t, c.out.String(), "Concurrency:  1\n")
}
