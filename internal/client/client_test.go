package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/secret"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		assert.Equal(t, "POST /v1/executions", r.Method+" "+r.URL.Path)
		assert.Equal(t, "Bearer "+token, r.Header.Get("Authorization"))
		assert.Equal(t, "k1", r.Header.Get("Idempotency-Key"))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.JSONEq(t, `{"executor":"process","spec":{"command":["echo","hi"]},"limits":{"run":"5s"}}`, string(body))
		answer(w, http.StatusAccepted, map[string]any{"id": "e1", "state": "REQUESTED", "a_field_of_tomorrow": 1})
	})
	e, err := c.Submit(t.Context(), Request{
		Executor: "process", Spec: json.RawMessage(`{"command":["echo","hi"]}`), Limits: &Limits{Run: "5s"}, IdempotencyKey: "k1",
	})
	require.NoError(t, err)
	assert.Equal(t, "e1", e.ID)
	assert.Equal(t, Requested, e.State)
}

func TestSubmitBatchKeepsOutcomesApart(t *testing.T) {
	t.Parallel()
	short := false
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "POST /v1/executions:batch", r.Method+" "+r.URL.Path)
		results := []any{
			map[string]any{"status": 202, "execution": map[string]any{"id": "e1"}},
			map[string]any{"status": 422, "problem": map[string]any{"code": "validation_failed", "title": "no"}},
		}
		if short {
			results = results[:1]
		}
		answer(w, http.StatusOK, map[string]any{"results": results})
	})
	outcomes, err := c.SubmitBatch(t.Context(), make([]Request, 2))
	require.NoError(t, err)
	assert.Equal(t, "e1", outcomes[0].Execution.ID)
	assert.Equal(t, "validation_failed", outcomes[1].Problem.Code)

	short = true
	_, err = c.SubmitBatch(t.Context(), make([]Request, 2))
	assert.ErrorContains(t, err, "1 outcomes for 2 requests")
}

func TestListFollowsThePages(t *testing.T) {
	t.Parallel()
	var calls []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.URL.RawQuery)
		switch r.URL.Query().Get("page_token") {
		case "":
			answer(w, 200, map[string]any{"executions": []any{map[string]any{"id": "1"}, map[string]any{"id": "2"}}, "next_page_token": "t+2"})
		case "t+2":
			answer(w, 200, map[string]any{"executions": []any{map[string]any{"id": "3"}}})
		}
	})
	var ids []string
	filter := Filter{States: []string{Running, Queued}, User: "u", Labels: map[string]string{"b": "2", "a": "1"}, PageSize: 2}
	for e, err := range c.List(t.Context(), filter) {
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
	assert.Equal(t, []string{"1", "2", "3"}, ids)
	const query = "label=a%3D1&label=b%3D2&page_size=2&state=RUNNING&state=QUEUED&user=u"
	assert.Equal(t, []string{query, "label=a%3D1&label=b%3D2&page_size=2&page_token=t%2B2&state=RUNNING&state=QUEUED&user=u"}, calls)

	for range c.List(t.Context(), filter) {
		break // asks for no second page
	}
	assert.Len(t, calls, 3)
}

func TestListNoticesAServerThatRunsInCircles(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"executions": []any{}, "next_page_token": "same"})
	})
	var last error
	for _, err := range c.List(t.Context(), Filter{}) {
		last = err
	}
	assert.ErrorContains(t, last, "same page")
}

func TestOutputIsBinarySafe(t *testing.T) {
	t.Parallel()
	raw := []byte{0, 0xff, 0xfe, '\n', 0xc3}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "attempt=2&stream=stderr", r.URL.RawQuery)
		_, _ = w.Write(raw)
	})
	var out bytes.Buffer
	n, err := c.Output(t.Context(), "e1", "stderr", 2, &out)
	require.NoError(t, err)
	assert.EqualValues(t, len(raw), n)
	assert.Equal(t, raw, out.Bytes())
}

func TestIDsStayWithinTheirSegment(t *testing.T) {
	t.Parallel()
	var path string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		answer(w, 200, map[string]any{})
	})
	for id, want := range map[string]string{"a/b": "a%2Fb", "..": "%2E%2E", "a?b": "a%3Fb", "ä": "%C3%A4"} {
		_, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "/v1/executions/"+want, path)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"type":"urn:millrace:problem:validation_failed","title":"The request is not valid","status":422,
			"code":"validation_failed","errors":[{"pointer":"/limits/run","code":"out_of_range","message":"is too long"},{"parameter":"page_size","code":"x","message":"is odd"}]}`)
	})
	_, err := c.Get(t.Context(), "x")
	var p *Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, 422, p.Status)
	assert.Equal(t, 7*time.Second, p.RetryAfter)
	assert.Equal(t, []Fault{{Pointer: "/limits/run", Code: "out_of_range", Message: "is too long"}, {Parameter: "page_size", Code: "x", Message: "is odd"}}, p.Errors)
	assert.Equal(t, "The request is not valid\n  /limits/run: is too long\n  page_size: is odd", err.Error())
	assert.Equal(t, "validation_failed", p.Code)
}

func TestAnswersThatAreNotFromTheAPI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"proxy":     {502, "<html>bad gateway</html>", "The server answered 502 Bad Gateway"},
		"redirect":  {302, "", "The server answered 302 Found"},
		"no json":   {200, "<html>", "is this the API of Millrace?"},
		"nothing":   {200, "", "is this the API of Millrace?"},
		"wrong":     {200, `{"id": 7}`, "is this the API of Millrace?"},
		"json code": {404, `{"code": 7}`, "The server answered 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://192.0.2.1/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, err := client.Get(t.Context(), "x")
			assert.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), token)
		})
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())

	c, err := New(Options{URL: address, Token: secret.New(token)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Get(t.Context(), "x")
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable)
	assert.Equal(t, "http://"+address, unreachable.URL)
	assert.NotContains(t, err.Error(), token)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "http://127.0.0.1:8080",
		"host:1":                 "http://host:1",
		"https://host/":          "https://host",
		"https://host/base/v1":   "https://host/base",
		"http://[::1]:8080/?q#f": "http://[::1]:8080",
	} {
		c, err := New(Options{URL: text})
		require.NoError(t, err, text)
		assert.Equal(t, want, c.URL())
	}
	for _, text := range []string{"ftp://host", "http://", "http://user:" + token + "@host", "http://ho st"} {
		_, err := New(Options{URL: text})
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), token)
	}
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := func(string) string { return "" }
	found, err := Discover("", secret.Secret{}, dir, none)
	require.NoError(t, err)
	assert.Equal(t, Found{URL: URLDefault}, found)

	require.NoError(t, configs.WriteEndpoints(dir, configs.Endpoints{URL: "http://127.0.0.1:18080"}))
	require.NoError(t, os.WriteFile(configs.TokenFile(dir), []byte("local\n"), 0o600))
	environ := func(name string) string {
		return map[string]string{"MILLRACE_API_URL": "http://env:1", "MILLRACE_TOKEN": "env"}[name]
	}
	for name, c := range map[string]struct {
		url, token string
		getenv     func(string) string
		want       Found
	}{
		"files":                    {"", "", none, Found{"http://127.0.0.1:18080", secret.New("local")}},
		"same server by name":      {"http://localhost:18080", "", none, Found{"http://localhost:18080", secret.New("local")}},
		"another server":           {"http://evil:18080", "", none, Found{URL: "http://evil:18080"}},
		"another port":             {"http://127.0.0.1:18081", "", none, Found{URL: "http://127.0.0.1:18081"}},
		"environment":              {"", "", environ, Found{"http://env:1", secret.New("env")}},
		"flags before environment": {"http://flag:1", "flag", environ, Found{"http://flag:1", secret.New("flag")}},
	} {
		found, err := Discover(c.url, secret.New(c.token), dir, c.getenv)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, found, name)
	}
}

func TestRedirectsDoNotCarryTheTokenElsewhere(t *testing.T) {
	t.Parallel()
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(other.Close)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	_, err := c.Get(t.Context(), "x")
	var p *Problem
	require.ErrorAs(t, err, &p)
	assert.False(t, reached)
}

func TestEventsKeepWhatTheyWereMadeFrom(t *testing.T) {
	t.Parallel()
	const text = `{"specversion":"1.0","id":"1","type":"t","sequence":"7","traceparent":"00-x","data":{"b":1,"a":1e3}}`
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page_token") == "" {
			_, _ = io.WriteString(w, `{"events":[`+text+`],"next_page_token":"n"}`)
			return
		}
		_, _ = io.WriteString(w, `{"events":[{"id":"2","sequence":8}]}`)
	})
	events, err := c.Events(t.Context(), "e1")
	require.NoError(t, err)
	require.Len(t, events, 2)
	assert.EqualValues(t, 7, events[0].Sequence)
	assert.EqualValues(t, 8, events[1].Sequence)
	again, err := json.Marshal(events[0])
	require.NoError(t, err)
	assert.Equal(t, text, string(again))

	made, err := json.Marshal(Event{ID: "3", Type: "t", Sequence: 9})
	require.NoError(t, err)
	assert.JSONEq(t, `{"specversion":"1.0","id":"3","source":"","type":"t","sequence":"9"}`, string(made))
}
