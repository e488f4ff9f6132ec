package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
)

const (
	id1 = "0198c0de-0000-7000-8000-000000000001"
	id2 = "0198c0de-0000-7000-8000-000000000002"
)

const completed = `{"id":"` + id1 + `","state":"COMPLETED","version":6,"attempt":1,"tenant":"default","user":"ada","executor":"process",
	"spec":{"command":["/usr/bin/wc","-w"]},"priority":3,"resource_class":"default","requirements":{"slots":1},"limits":{"run":"1h0m0s"},
	"retry":{"max_attempts":3,"backoff":"1s"},"labels":{"team":"data","a":"b"},"origin":{"kind":"rest"},"worker":"host-1-abcd",
	"requested_at":"2026-03-01T11:58:00Z","queued_at":"2026-03-01T11:58:00.1Z","scheduled_at":"2026-03-01T11:58:00.2Z",
	"started_at":"2026-03-01T11:58:01Z","finished_at":"2026-03-01T11:58:03.5Z",
	"result":{"exit_code":0,"stdout":{"bytes":6,"kept_bytes":6,"truncated":false},"stderr":{"bytes":9000,"kept_bytes":100,"truncated":true}}}`

const failed = `{"id":"` + id2 + `","state":"FAILED","version":6,"attempt":3,"tenant":"default","user":"","name":"a-rather-long-name-that-does-not-fit-into-a-table","executor":"function",
	"priority":5,"resource_class":"gpu","origin":{"kind":"rest"},"worker":"host\u001b[31m-2",
	"requested_at":"2026-02-27T11:58:00Z","finished_at":"2026-02-27T12:58:03.5Z","result":{"reason":"function_error","message":"boom\nbang"}}`

func TestExecutionOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions", 200, `{"executions":[`+completed+`,`+failed+`]}`)
	c.api.answers("GET /v1/executions/{id}", 200, completed)
	c.api.answers("GET /v1/executions/{id}/events", 200, `{"events":[
		{"specversion":"1.0","id":"ev-1","source":"/millrace","type":"millrace.execution.requested.v1","subject":"`+id1+`","time":"2026-03-01T11:58:00Z","sequence":"1","data":{"execution_id":"`+id1+`"}},
		{"specversion":"1.0","id":"ev-2","source":"/millrace","type":"millrace.execution.requeued.v1","subject":"`+id1+`","time":"2026-03-01T11:58:01Z","sequence":"2","data":{"attempt":2,"worker":"w","cause":"lease_expired"}},
		{"specversion":"1.0","id":"ev-3","source":"/other","type":"com.example.thing","time":"2026-03-01T11:59:59.5Z","data":7}]}`)
	c.api.answers("GET /v1/topics", 200, `{"topics":[{"topic":"execution_events","name":"prod_events","partitions":12,"retention":"2160h0m0s","key":"execution id","purpose":"the log"}]}`)
	c.api.answers("POST /v1/executions/{id}/cancel", 202, strings.Replace(completed, "COMPLETED", "CANCELLED", 1))
	for name, line := range map[string]string{
		"list_table": "executions list", "list_wide": "executions list -o wide", "list_json": "exec ls -o json",
		"list_yaml": "executions list -o yaml", "list_name": "executions list -o name",
		"get_table": "executions get " + id1, "get_json": "executions get -o json " + id1, "get_yaml": "executions get -o yaml " + id1,
		"events_table": "executions events " + id1, "events_json": "executions events -o json " + id1,
		"topics_table": "topics list", "topics_yaml": "topics list -o yaml",
		"cancel_table": "executions cancel " + id1,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.Empty(t, c.err.String(), name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}
}

func TestListAsksForWhatItWasAsked(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions", 200, `{"executions":[`+completed+`,`+failed+`],"next_page_token":"more"}`)
	require.Equal(t, exitOK, c.run("executions", "list", "--state", "failed,timed_out", "--user", "ada", "--executor", "process", "--label", "b=2", "--label", "a=1", "--limit", "2", "-o", "name"))
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/executions?executor=process&label=a%3D1&label=b%3D2&page_size=2&state=FAILED&state=TIMED_OUT&user=ada", request)
	assert.Equal(t, id1+"\n"+id2+"\n", c.out.String(), "and stops at the limit although there is more")
}

func TestAnEmptyListIsAnEmptyList(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions", 200, `{"executions":[]}`)
	require.Equal(t, exitOK, c.run("executions", "list", "-o", "json"))
	assert.Equal(t, "[]\n", c.out.String())
	c.errTerminal = true
	require.Equal(t, exitOK, c.run("executions", "list"))
	assert.Equal(t, "no executions\n", c.err.String())
}

func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions", 200, `{"executions":[`+completed+`]}`)
	c.outTerminal = true
	require.Equal(t, exitOK, c.run("executions", "list"))
	assert.Contains(t, c.out.String(), "\x1b[32mCOMPLETED\x1b[39m")
	c.environ = append(c.environ, "NO_COLOR=1")
	require.Equal(t, exitOK, c.run("executions", "list"))
	assert.NotContains(t, c.out.String(), "\x1b")
}

func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for id, answer := range map[string]struct {
		status int
		code   string
		exit   int
	}{
		"missing":  {404, "execution_not_found", exitNotFound},
		"conflict": {409, "execution_ended", exitFailure},
		"internal": {500, "internal", exitFailure},
		"slow":     {504, "timeout", exitTimeout},
	} {
		c.api.mux.HandleFunc("GET /v1/executions/"+id, func(w http.ResponseWriter, _ *http.Request) {
			problem(w, answer.status, answer.code, "The title of "+answer.code)
		})
		assert.Equal(t, answer.exit, c.run("executions", "get", id), id)
		assert.Equal(t, "millrace: The title of "+answer.code+"\n", c.err.String())
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	assert.Equal(t, exitFailure, c.run("--url", url, "executions", "list"))
	assert.Equal(t, "millrace: no Millrace answers at "+url+": start one with `millrace up` or set --url\n", c.err.String())
}

func TestAWrongTokenIsExplained(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	assert.Equal(t, exitFailure, c.run("--token", "other", "executions", "list"))
	assert.Contains(t, c.err.String(), "`millrace token` prints it")
}

func TestTheDataDirectoryIsEnough(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions", 200, `{"executions":[]}`)
	dir := t.TempDir()
	require.NoError(t, configs.WriteEndpoints(dir, configs.Endpoints{URL: c.api.url}))
	require.NoError(t, os.WriteFile(configs.TokenFile(dir), []byte(canary+"\n"), 0o600))
	c.environ = []string{"HOME=/nowhere"}
	require.Equal(t, exitOK, c.run("--data-dir", dir, "executions", "list"), c.err.String())

	config := dir + "/c.yaml"
	require.NoError(t, os.WriteFile(config, []byte("data_dir: "+dir), 0o600))
	require.Equal(t, exitOK, c.run("--config", config, "executions", "list"), c.err.String())

	require.Equal(t, exitOK, c.run("--data-dir", dir, "token"))
	assert.Equal(t, canary+"\n", c.out.String())
	assert.Equal(t, exitNotFound, c.run("--data-dir", t.TempDir(), "token"))
	assert.Contains(t, c.err.String(), "millrace up")
}

func TestCancelGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/executions/"+id2+"/cancel", 202, completed)
	c.api.mux.HandleFunc("POST /v1/executions/"+id1+"/cancel", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 409, "execution_ended", "The execution has ended")
	})
	assert.Equal(t, exitFailure, c.run("executions", "cancel", id1, id2, "--reason", "why", "-o", "name"))
	assert.Equal(t, id1+"\n", c.out.String())
	assert.Contains(t, c.err.String(), "has ended")
	_, body, _ := c.api.last()
	assert.JSONEq(t, `{"reason":"why"}`, body)
}

func TestOutputsGoWhereTheyBelong(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/executions/{id}/output", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("\x00\xff of " + r.URL.RawQuery))
	})
	c.api.answers("GET /v1/executions/"+id1, 200, completed)
	require.Equal(t, exitOK, c.run("executions", "output", id1, "--attempt", "2"))
	assert.Equal(t, "\x00\xff of attempt=2&stream=stdout", c.out.String())
	assert.Equal(t, "\x00\xff of attempt=2&stream=stderr", c.err.String())
	require.Equal(t, exitOK, c.run("executions", "output", id1, "--stream", "stderr"))
	assert.Equal(t, "\x00\xff of stream=stderr", c.out.String())
	const cut = "\nmillrace: stderr is cut: 8.8 KiB were written, the first 100 B are kept\n"
	assert.Equal(t, cut, c.err.String())
	require.Equal(t, exitOK, c.run("executions", "output", id1))
	assert.Equal(t, "\x00\xff of stream=stderr"+cut, c.err.String())
	require.Equal(t, exitOK, c.run("executions", "output", id1, "--stream", "stdout"))
	assert.Empty(t, c.err.String(), "nothing of stdout is missing")
}

func TestResultIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/executions/{id}/result", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != id1 {
			problem(w, 404, "result_not_found", "There is no such result")
			return
		}
		_, _ = w.Write([]byte(`{"a":  1}`))
	})
	require.Equal(t, exitOK, c.run("executions", "result", id1))
	assert.Equal(t, `{"a":  1}`, c.out.String())
	require.NotEqual(t, exitOK, c.run("executions", "result", id2))
	assert.Contains(t, c.err.String(), "There is no such result")

	file := filepath.Join(t.TempDir(), "result.json")
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o600))
	require.NotEqual(t, exitOK, c.run("executions", "result", id2, "--file", file))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "before", string(got), "a failure leaves the file alone")
	require.Equal(t, exitOK, c.run("executions", "result", id1, "--file", file), c.err.String())
	assert.Empty(t, c.out.String())
	got, err = os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, `{"a":  1}`, string(got))
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no temporary files stay")

	c.api.answers("GET /v1/executions/"+id1, 200, `{"id":"`+id1+`","state":"COMPLETED","result":{"value_ref":{"id":"x","bytes":70000,"sha256":"y"}}}`)
	require.Equal(t, exitOK, c.run("executions", "get", id1))
	assert.Contains(t, c.out.String(), "70000 bytes: millrace executions result "+id1)
}

func TestWatchPrintsEvents(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/executions/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(sse("1", "started", `{"attempt":1,"worker":"w"}`) + "event: reset\ndata: {}\n\n" + sse("2", "completed", `{}`)))
	})
	require.Equal(t, exitOK, c.run("executions", "watch", id1, "-o", "json"))
	assert.Equal(t, 2, strings.Count(c.out.String(), "\n"))
	assert.Contains(t, c.err.String(), "some are missing")
	require.Equal(t, exitOK, c.run("executions", "watch", id1))
	assert.Contains(t, c.out.String(), "started")
	assert.Contains(t, c.out.String(), "attempt 1, on w")
	require.Equal(t, exitOK, c.run("executions", "watch", id1, "--type", "completed", "-o", "name"))
	assert.Equal(t, "ev-2\n", c.out.String())
}

func TestWatchShowsTheProgressOfOneExecution(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	polled := make(chan struct{}, 100)
	c.api.mux.HandleFunc("GET /v1/executions/{id}", func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, id1, r.PathValue("id"), "forms other than text are of events alone")
		n := len(polled)
		polled <- struct{}{}
		at := "2026-03-01T12:00:0" + strconv.Itoa(min(n/2, 2)) + "Z" // each is found twice, the last again and again
		_, _ = fmt.Fprintf(w, `{"id":%q,"state":"RUNNING","attempt":2,"progress":{"attempt":2,"done":%d,"total":4,"message":"files","at":%q}}`, id1, min(n/2, 2), at)
	})
	c.api.mux.HandleFunc("GET /v1/executions/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(sse("1", "started", `{"attempt":2,"worker":"w"}`)))
		_ = http.NewResponseController(w).Flush()
		assert.Eventually(t, func() bool { return len(polled) > 8 }, 30*time.Second, time.Millisecond)
		_, _ = w.Write([]byte(sse("2", "completed", `{}`)))
	})
	require.Equal(t, exitOK, c.run("executions", "watch", id1, "--watch=1ms"), c.err.String())
	for _, text := range []string{"started", "0 of 4 (0%), files", "1 of 4 (25%), files", "2 of 4 (50%), files", "completed"} {
		assert.Equal(t, 1, strings.Count(c.out.String(), text), "%s in %s", text, c.out.String())
	}
	// Of the first one a poll may still be under way.
	require.Equal(t, exitOK, c.run("executions", "watch", id2, "-o", "json", "--watch=1ms"))
}

func TestGetShowsProgressAndCheckpoint(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	var body string
	c.api.mux.HandleFunc("GET /v1/executions/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	for progress, want := range map[string]string{
		`"done":0.5,"total":1`:                    "50% (1h ago)",
		`"done":3,"total":12,"message":"files"`:   "3 of 12 (25%), files (1h ago)",
		`"done":7`:                                "7 (1h ago)",
		`"done":0,"message":"warming up"`:         "warming up (1h ago)",
		`"done":0.5,"total":1,"message":"\u001b"`: "50%,",
	} {
		body = fmt.Sprintf(`{"id":%q,"state":"RUNNING","attempt":2,"requested_at":"2026-03-01T11:00:00Z",
			"progress":{"attempt":2,"at":"2026-03-01T11:00:00Z",%s},"checkpoint":{"attempt":1,"bytes":300,"at":"2026-03-01T11:00:00Z"}}`, id1, progress)
		require.Equal(t, exitOK, c.run("executions", "get", id1))
		assert.Contains(t, c.out.String(), want)
		assert.Contains(t, c.out.String(), "300 bytes, from attempt 1 (1h ago)")
		assert.NotContains(t, c.out.String(), "\x1b")
	}
}

func TestRepeatUntilInterrupted(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.ctx = ctx
	rounds := 0
	c.api.mux.HandleFunc("GET /v1/executions", func(w http.ResponseWriter, _ *http.Request) {
		if rounds++; rounds == 3 {
			cancel()
		}
		_, _ = w.Write([]byte(`{"executions":[` + completed + `]}`))
	})
	assert.Equal(t, exitOK, c.run("executions", "list", "-o", "name", "--watch=1ms"))
	assert.Equal(t, id1+"\n\n"+id1+"\n", c.out.String())
}

// sse is one message of an event stream.
func sse(cursor, kind, data string) string {
	full := "millrace.execution." + kind + ".v1"
	return "id: " + cursor + "\nevent: " + full + "\ndata: {\"specversion\":\"1.0\",\"id\":\"ev-" + cursor + "\",\"source\":\"/m\",\"type\":\"" + full +
		"\",\"subject\":\"" + id1 + "\",\"time\":\"2026-03-01T12:00:00Z\",\"sequence\":\"" + cursor + "\",\"data\":" + data + "}\n\n"
}

func TestGetSaysWhyAndWhenToTryAgain(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("GET /v1/executions/{id}", 200, `{"id":"`+id1+`","state":"REJECTED","executor":"process","origin":{"kind":"rest"},"requested_at":"2026-03-01T11:59:59Z","finished_at":"2026-03-01T11:59:59Z",
		"result":{"reason":"rate_limited","message":"more than 5 executions per minute","retry_after":"12.5s"}}`)
	require.Equal(t, exitOK, c.run("executions", "get", id1))
	assert.Regexp(t, `(?m)^Reason: +rate_limited$`, c.out.String())
	assert.Regexp(t, `(?m)^Result: +more than 5 executions per minute$`, c.out.String())
	assert.Regexp(t, `(?m)^Try again: +2026-03-01T12:00:12Z \(in 12s\)$`, c.out.String())
}

func TestEventsTail(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(sse("1", "started", `{"attempt":1,"worker":"w"}`) + sse("2", "failed", `{}`) + sse("3", "failed", `{}`)))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.Equal(t, exitOK, c.run("events", "tail", "--limit", "3"), c.err.String())
	request, _, _ := c.api.last()
	assert.Equal(t, "GET /v1/events", request)
	assert.Contains(t, c.out.String(), "attempt 1, on w")
	assert.Contains(t, c.err.String(), "go on with --after 3")

	require.Equal(t, exitOK, c.run("events", "tail", "--user", "ada,bob", "--execution", id1, "--type", "failed", "--after", "c0", "--limit", "2", "-o", "json"))
	request, _, header := c.api.last()
	assert.Equal(t, "GET /v1/events?execution_id="+id1+"&type=millrace.execution.failed.v1&user=ada&user=bob", request)
	assert.Equal(t, "c0", header.Get("Last-Event-ID"))
	assert.Equal(t, 2, strings.Count(c.out.String(), "\n"), "each event is one line")

	require.Equal(t, exitOK, c.run("events", "tail", "--instance", "i1", "--topic", "flow-lifecycle-out", "--limit", "1", "-o", "name"))
	request, _, _ = c.api.last()
	assert.Equal(t, "GET /v1/events?instance_id=i1&topic=flow-lifecycle-out", request)
	assert.Equal(t, "ev-1\n", c.out.String())

	assert.Equal(t, exitUsage, c.run("events", "tail", "--limit", "-1"))
	assert.Equal(t, exitUsage, c.run("events", "list"))
}
