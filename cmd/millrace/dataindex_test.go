package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlaceholdersAreListed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/data-index/placeholders", 200, `{"placeholders":[
		{"instance_id":"01KSGKY66DMS0KPPMFMMR3BJZX","since":"2026-03-01T09:00:00Z","history_from":"2026-03-01T08:59:00Z","tasks":3}],"older_than":"1h0m0s"}`)
	require.Equal(t, exitOK, c.run("data-index", "placeholders"), c.err.String())
	assert.Regexp(t, `(?m)^INSTANCE +SINCE +FIRST EVENT +TASKS$`, c.out.String())
	assert.Regexp(t, `(?m)^01KSGKY66DMS0KPPMFMMR3BJZX +3h +3h1m +3$`, c.out.String())
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/data-index/placeholders?page_size=50", request, "how long is the server's to say")

	require.Equal(t, exitOK, c.run("data-index", "placeholders", "--older-than", "0s", "--limit", "7", "-o", "name"), c.err.String())
	assert.Equal(t, "01KSGKY66DMS0KPPMFMMR3BJZX\n", c.out.String())
	request, _, _ = c.api.last()
	assert.Equal(t, "GET /v1/data-index/placeholders?older_than=0s&page_size=7", request)

	require.Equal(t, exitOK, c.run("data-index", "placeholders", "-o", "json"))
	assert.Contains(t, c.out.String(), `"tasks": 3`)
	for line, want := range map[string]string{"--limit -1": "--limit", "--older-than -1s": "--older-than"} {
		assert.Equal(t, exitUsage, c.run(append([]string{"data-index", "placeholders"}, strings.Fields(line)...)...))
		assert.Contains(t, c.err.String(), want)
	}
}
