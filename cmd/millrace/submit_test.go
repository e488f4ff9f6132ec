package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const accepted = `{"id":"` + id1 + `","state":"REQUESTED","executor":"process","requested_at":"2026-03-01T12:00:00Z"}`

func TestSubmitSendsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions", 202, accepted)
	file := filepath.Join(t.TempDir(), "request.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"executor":"process","spec":{"command":["a"]},"priority":2,"labels":{"x":"1","y":"2"},"limits":{"queue":"1m"},"retry":{"max_attempts":2,"backoff":"3s"}}`), 0o600))
	script, blob := filepath.Join(t.TempDir(), "main.py"), filepath.Join(t.TempDir(), "blob")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o600))
	require.NoError(t, os.WriteFile(blob, []byte("\xff\x00"), 0o600))
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		want  string
	}{
		"plain":          {[]string{"--", "echo", "--flag", "hi"}, "", `{"executor":"process","spec":{"command":["echo","--flag","hi"]}}`},
		"without dashes": {[]string{"echo", "hi"}, "", `{"executor":"process","spec":{"command":["echo","hi"]}}`},
		"everything": {
			strings.Fields("--stdin - --env A=1 --env B=x=y --label team=data --priority 5 --queue-limit 1m --run-limit 90s --total-limit 1h --max-attempts 3 --resource-class gpu --concurrency-key k --user ada --not-before 10m -- sh"), "input\n",
			`{"executor":"process","spec":{"command":["sh"],"env":{"A":"1","B":"x=y"},"stdin":"input\n"},"labels":{"team":"data"},"priority":5,
			  "limits":{"queue":"1m0s","run":"1m30s","total":"1h0m0s"},"retry":{"max_attempts":3},"resource_class":"gpu","concurrency_key":"k","user":"ada","not_before":"2026-03-01T12:10:00Z"}`,
		},
		"policy of retries": {
			strings.Fields("--max-attempts 5 --backoff 2s --retry-max-age 1h --retry-on exit_code:75,run_limit --never-retry-on lease_expired --start-limit 5m -- sh"), "",
			`{"executor":"process","spec":{"command":["sh"]},"limits":{"start":"5m0s"},
			  "retry":{"max_attempts":5,"backoff":"2s","max_age":"1h0m0s","retry_on":["exit_code:75","run_limit"],"never_on":["lease_expired"]}}`,
		},
		"binary input":               {[]string{"--stdin", "-", "--", "wc"}, "\xff\x00", `{"executor":"process","spec":{"command":["wc"],"stdin_base64":"/wA="}}`},
		"function":                   {[]string{"--executor", "function", "--", "sleep", `{"duration":"1s"}`}, "", `{"executor":"function","spec":{"name":"sleep","args":{"duration":"1s"}}}`},
		"function without arguments": {[]string{"--executor", "function", "--", "tick"}, "", `{"executor":"function","spec":{"name":"tick"}}`},
		"file":                       {[]string{"--file", file}, "", `{"executor":"process","spec":{"command":["a"]},"priority":2,"labels":{"x":"1","y":"2"},"limits":{"queue":"1m"},"retry":{"max_attempts":2,"backoff":"3s"}}`},
		"file and flags": {
			[]string{"--file", file, "--priority", "4", "--label", "y=3", "--run-limit", "5s", "--max-attempts", "9", "--", "b"}, "",
			`{"executor":"process","spec":{"command":["b"]},"priority":4,"labels":{"x":"1","y":"3"},"limits":{"queue":"1m","run":"5s"},"retry":{"max_attempts":9,"backoff":"3s"}}`,
		},
		"script":        {[]string{"--executor", "kubernetes", "--image", "python:3", "--script", script, "--include", script, "--include", "lib/blob=" + blob, "--env", "A=b"}, "", `{"executor":"kubernetes","spec":{"image":"python:3","script":"print(1)\n","files":{"main.py":"print(1)\n","lib/blob":{"base64":"/wA="}},"env":{"A":"b"}}}`},
		"own image":     {[]string{"--executor", "kubernetes", "--image", "hello-world"}, "", `{"executor":"kubernetes","spec":{"image":"hello-world"}}`},
		"from input":    {[]string{"--script", "-", "--", "sh", "-e"}, "echo", `{"executor":"process","spec":{"command":["sh","-e"],"script":"echo"}}`},
		"input as file": {[]string{"--file", "-"}, `{"executor":"function","spec":{"name":"f"}}`, `{"executor":"function","spec":{"name":"f"}}`},
	} {
		c.in = strings.NewReader(tc.stdin)
		require.Equal(t, exitOK, c.run(append([]string{"submit", "-o", "name"}, tc.args...)...), name+c.err.String())
		_, body, _ := c.api.last()
		assert.JSONEq(t, tc.want, body, name)
		assert.Equal(t, id1+"\n", c.out.String())
	}
	require.Equal(t, exitOK, c.run("submit", "--idempotency-key", "k1", "--", "echo"))
	_, body, header := c.api.last()
	assert.Equal(t, "k1", header.Get("Idempotency-Key"))
	assert.NotContains(t, body, "k1")
	c.golden("submit_table")
}

func TestSubmitRefusesFlagsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for line, want := range map[string]string{
		"--image busybox -- true":                 "--image is for --executor kubernetes",
		"--script - --stdin -":                    "cannot both read",
		"--script - --file -":                     "cannot both read",
		"--include submit_test.go":                "nothing to run",
		"--script x --executor function -- sleep": "are for programs",
		"--script submit_test.go --include a=doctor.go --include a=submit_test.go": "two files for the name a",
	} {
		assert.Equal(t, exitUsage, c.run(append([]string{"submit"}, strings.Fields(line)...)...), line)
		assert.Contains(t, c.err.String(), want)
	}
	assert.Equal(t, exitFailure, c.run("submit", "--script", "/does/not/exist"))
	assert.Equal(t, exitFailure, c.run("submit", "--include", "/does/not/exist", "--", "true"))
}

func TestSubmitRefusesOddFiles(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for text, want := range map[string]string{
		`{"executor":"process","comand":[]}`: `unknown field "comand"`,
		`{`:                                  "unexpected EOF",
		`{} {}`:                              "more behind",
		`{"priority":"high"}`:                "priority",
	} {
		c.in = strings.NewReader(text)
		assert.Equal(t, exitUsage, c.run("submit", "--file", "-"), text)
		assert.Contains(t, c.err.String(), want)
	}
	assert.Equal(t, exitFailure, c.run("submit", "--file", "/does/not/exist"))
	assert.Equal(t, exitFailure, c.run("submit", "--stdin", "/does/not/exist", "--", "wc"))
}

func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions:batch", 200, `{"results":[{"index":0,"status":202,"execution":`+accepted+`},
		{"index":1,"status":422,"problem":{"code":"validation_failed","title":"The request is not valid","errors":[{"pointer":"/executions/1/priority","code":"out_of_range","message":"must be 1 to 5"}]}}]}`)
	c.in = strings.NewReader(`[{"executor":"process","spec":{"command":["a"]}},{"priority":9}]`)
	assert.Equal(t, exitFailure, c.run("submit", "--file", "-", "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String())
	assert.Contains(t, c.err.String(), "request 2: The request is not valid\n  /executions/1/priority: must be 1 to 5")
	assert.Contains(t, c.err.String(), "1 of 2 requests were refused")

	c.in = strings.NewReader(`[]`)
	assert.Equal(t, exitUsage, c.run("submit", "--file", "-", "--priority", "3"))
}

func piece(cursor, stream string, attempt, offset int, data string) string {
	return sse(cursor, "output", fmt.Sprintf(`{"attempt":%d,"stream":%q,"offset":%d,"size":%d,"data":%q}`,
		attempt, stream, offset, len(data), base64.StdEncoding.EncodeToString([]byte(data))))
}

// ended is an execution that has ended, with so many bytes of output.
func ended(state string, attempt, stdout, stderr int, more string) string {
	return fmt.Sprintf(`{"id":%q,"state":%q,"attempt":%d,"executor":"process","requested_at":"2026-03-01T11:59:00Z","finished_at":"2026-03-01T12:00:00Z",
		"result":{%s"stdout":{"bytes":%d,"kept_bytes":%d},"stderr":{"bytes":%d,"kept_bytes":%d}}}`, id1, state, attempt, more, stdout, stdout, stderr, stderr)
}

// waiting prepares an API on which a submit can be waited for.
func waiting(t *testing.T, stream, final string) *console {
	c := newConsole(t)
	c.api.answers("POST /v1/executions", 202, accepted)
	c.api.answers("GET /v1/executions/{id}", 200, final)
	c.api.mux.HandleFunc("GET /v1/executions/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		if stream == "" {
			problem(w, 503, "events_unavailable", "Live events are not available at the moment")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(stream))
	})
	c.api.mux.HandleFunc("GET /v1/executions/{id}/output", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("kept " + r.URL.Query().Get("stream")))
	})
	return c
}

func TestWaitPassesOnTheOutputOnce(t *testing.T) {
	t.Parallel()
	lost := len("kept stdout")
	for name, tc := range map[string]struct {
		stream, final, out, err string
		exit                    int
	}{
		"completed": {
			piece("1", "stdout", 1, 0, "a\xff") + piece("2", "stderr", 1, 0, "e") + piece("3", "stdout", 1, 2, "b\n") + sse("4", "completed", "{}"),
			ended("COMPLETED", 1, 4, 1, ""), "a\xffb\n", "e", exitOK,
		},
		"repeated pieces": {
			piece("1", "stdout", 1, 0, "ab") + piece("2", "stdout", 1, 0, "abc") + piece("3", "stdout", 1, 1, "bc") + sse("4", "completed", "{}"),
			ended("COMPLETED", 1, 3, 0, ""), "abc", "", exitOK,
		},
		"second attempt": {
			piece("1", "stdout", 1, 0, "one") + piece("2", "stdout", 2, 0, "two") + sse("4", "completed", "{}"),
			ended("COMPLETED", 2, 3, 0, ""), "onetwo", "", exitOK,
		},
		"a gap in the events": {
			piece("1", "stdout", 1, 0, "kept") + piece("2", "stdout", 1, 9, "ut") + sse("4", "completed", "{}"),
			ended("COMPLETED", 1, lost, 0, ""), "kept stdout", "", exitOK,
		},
		"no events at all": {"", ended("COMPLETED", 1, lost, lost, ""), "kept stdout", "kept stderr", exitOK},
		"failed": {
			sse("1", "failed", "{}"), ended("FAILED", 1, 0, 0, `"exit_code":3,"reason":"exit_code",`), "",
			"millrace: execution " + id1 + " FAILED: exit code 3\n", exitFailure,
		},
		"rejected": {
			sse("1", "rejected", "{}"), ended("REJECTED", 0, 0, 0, `"reason":"rate_limited","message":"more than 5 executions per minute","retry_after":"12.5s",`), "",
			"millrace: execution " + id1 + " REJECTED (rate_limited): more than 5 executions per minute; try again in 13s\n", exitFailure,
		},
		"rejected for good": {
			sse("1", "rejected", "{}"), ended("REJECTED", 0, 0, 0, `"reason":"exceeds_capacity","message":"needs 5 slots",`), "",
			"millrace: execution " + id1 + " REJECTED (exceeds_capacity): needs 5 slots\n", exitFailure,
		},
		"timed out": {
			sse("1", "timed_out", "{}"), ended("TIMED_OUT", 1, 0, 0, `"message":"ran longer than 5s",`), "",
			"millrace: execution " + id1 + " TIMED_OUT: ran longer than 5s\n", exitTimeout,
		},
		"cancelled": {sse("1", "cancelled", "{}"), ended("CANCELLED", 0, 0, 0, ""), "", "millrace: execution " + id1 + " CANCELLED\n", exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := waiting(t, tc.stream, tc.final)
			assert.Equal(t, tc.exit, c.run("submit", "--wait", "--", "x"))
			assert.Equal(t, tc.out, c.out.String())
			assert.Equal(t, tc.err, c.err.String())
		})
	}
}

func TestWaitWithJSONPrintsTheResultOnly(t *testing.T) {
	t.Parallel()
	c := waiting(t, piece("1", "stdout", 1, 0, "noise")+sse("4", "failed", "{}"), ended("FAILED", 1, 5, 0, `"exit_code":3,`))
	assert.Equal(t, exitFailure, c.run("submit", "--wait", "-o", "json", "--", "x"))
	assert.Contains(t, c.out.String(), `"exit_code": 3`)
	assert.NotContains(t, c.out.String(), "noise")
}

func TestWaitGivesUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args      []string
		interrupt bool
		exit      int
		want      string
	}{
		"timeout":     {[]string{"--timeout", "30ms"}, false, exitTimeout, "has not ended within 30ms and goes on"},
		"interrupted": {nil, true, exitInterrupted, "goes on: `millrace executions cancel " + id1 + "` stops it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.ctx = ctx
			c.api.answers("POST /v1/executions", 202, accepted)
			c.api.mux.HandleFunc("GET /v1/executions/{id}/events", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
				if tc.interrupt {
					cancel()
				}
				<-r.Context().Done()
			})
			assert.Equal(t, tc.exit, c.run(append(append([]string{"submit", "--wait"}, tc.args...), "--", "x")...))
			assert.Contains(t, c.err.String(), tc.want)
		})
	}
}
