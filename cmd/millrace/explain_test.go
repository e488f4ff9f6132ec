package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplainReadsLikeAPersonWroteIt(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions/"+id1+"/explain", 200, `{"execution_id":"`+id1+`","state":"QUEUED","since":"2026-03-01T11:58:00Z",
		"summary":"It has been QUEUED for 2m: 16 of the 16 slots are in use.","ahead":1,"position":2,"starts_at":"2026-03-01T12:00:30Z","outlook":"At the rate of the last minutes it starts in about 30s.","waits":[
		{"code":"capacity","message":"16 of the 16 slots are in use","release":"the end of what runs there"},
		{"code":"behind","message":"1 execution is ahead of it","release":"its admission"}]}`)
	require.Equal(t, exitOK, c.run("explain", id1))
	assert.Equal(t, `It has been QUEUED for 2m: 16 of the 16 slots are in use.
  What would release it: the end of what runs there.
Also, 1 execution is ahead of it.
  What would release it: its admission.
At the rate of the last minutes it starts in about 30s.
`, c.out.String())
	require.Equal(t, exitOK, c.run("explain", id1, "-o", "json"))
	assert.Contains(t, c.out.String(), `"code": "capacity"`)
	require.Equal(t, exitOK, c.run("explain", id1, "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String())
	assert.Equal(t, exitUsage, c.run("explain"))
}

func TestGetTellsOfThePlaceInTheQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ explanation, want string }{
		"soon": {`"position":15,"starts_at":"2026-03-01T12:00:30Z",`, "about 15, starts at about 2026-03-01T12:00:30Z (in 30s)"},
		"next": {`"position":1,`, "first"},
		"far":  {`"position":10001,`, "behind 10000 or more"},
		"held": {``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t)
			c.api.answers("GET /v1/executions/"+id1, 200, `{"id":"`+id1+`","state":"QUEUED","origin":{"kind":"rest"}}`)
			c.api.answers("GET /v1/executions/"+id1+"/explain", 200, `{"execution_id":"`+id1+`","state":"QUEUED",`+tc.explanation+`
				"waits":[{"code":"capacity","message":"all 16 slots are in use","release":"the end"}]}`)
			require.Equal(t, exitOK, c.run("executions", "get", id1))
			assert.Regexp(t, `Waits because: +all 16 slots are in use\n`, c.out.String())
			if tc.want == "" {
				assert.NotContains(t, c.out.String(), "Place in queue")
			} else {
				assert.Regexp(t, `Place in queue: +`+regexp.QuoteMeta(tc.want)+`\n`, c.out.String())
			}
		})
	}
	c := newConsole(t)
	c.api.answers("GET /v1/executions/"+id1, 200, `{"id":"`+id1+`","state":"QUEUED","origin":{"kind":"rest"}}`)
	require.Equal(t, exitOK, c.run("executions", "get", id1), "an older server explains nothing")
	assert.NotContains(t, c.out.String(), "Waits because")
}
