package graphql

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/server/auth"
)

func get(w *world, query string, header map[string]string) sent {
	r := httptest.NewRequest(http.MethodGet, "/graphql"+query, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return w.do(r)
}

func TestGet(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	ask := func(pairs ...string) string {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Add(pairs[i], pairs[i+1])
		}
		return "?" + q.Encode()
	}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for name, c := range map[string]struct {
		query  string
		header map[string]string
		status int
		text   string
	}{
		"a query":                {ask("query", "{ __typename }"), nil, 200, `"data":{"__typename":"Query"}`},
		"with variables":         {ask("query", "query A($n: Int) { pods(first: $n) { __typename } }", "variables", `{"n": 0}`, "operationName", "A"), nil, 200, `"PodConnection"`},
		"by a browser":           {ask("query", "{ __typename }"), map[string]string{"Accept": browser}, 200, `"data":{"__typename":"Query"}`},
		"from another site":      {ask("query", "{ __typename }"), map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "cross_origin"},
		"from the page":          {ask("query", "{ __typename }"), map[string]string{"Sec-Fetch-Site": "same-origin"}, 200, "Query"},
		"a mutation":             {ask("query", "mutation { a }"), nil, 200, codeValidation},
		"unknown parameter":      {ask("query", "{ __typename }", "x", "y"), nil, 400, codeBadRequest},
		"twice":                  {ask("query", "{ __typename }", "query", "{ a }"), nil, 400, codeBadRequest},
		"broken variables":       {ask("query", "{ __typename }", "variables", "{"), nil, 400, codeBadRequest},
		"nothing":                {"", nil, 200, codeBadRequest},
		"nothing, for a program": {"", map[string]string{"Accept": mediaResponse}, 400, codeBadRequest},
		"the page":               {"", map[string]string{"Accept": browser}, 200, "<title>Millrace GraphQL</title>"},
		"another host":           {"", map[string]string{"Accept": browser, "Host": "evil.example"}, 421, "host_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/graphql"+c.query, nil)
			for name, value := range c.header {
				r.Header.Set(name, value)
			}
			if host := c.header["Host"]; host != "" {
				r.Host = host
			}
			answer := w.do(r)
			assert.Equal(t, c.status, answer.Code, answer.Text)
			assert.Contains(t, answer.Text, c.text)
		})
	}
	t.Run("a post from another site", func(t *testing.T) {
		t.Parallel()
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(`{"query": "{ __typename }"}`))
		r.Header.Set("Content-Type", mediaJSON)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		assert.Equal(t, 403, w.do(r).Code)
	})
	t.Run("another method", func(t *testing.T) {
		t.Parallel()
		answer := w.do(httptest.NewRequest(http.MethodPut, "/graphql", nil))
		assert.Equal(t, 405, answer.Code)
		assert.Equal(t, "GET, HEAD, POST", answer.Header.Get("Allow"))
	})
}

// TestPage holds that the page brings everything along and lets nothing else run.
func TestPage(t *testing.T) {
	t.Parallel()
	answer := get(idle(t, Config{}), "", map[string]string{"Accept": "text/html"})
	policy := answer.Header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "frame-ancestors 'none'")
	assert.NotContains(t, policy, "unsafe")
	assert.Contains(t, policy, "script-src "+hashOf(between(answer.Text, "<script>", "</script>")))
	for _, forbidden := range []string{"http://", "https://", "innerHTML", "<link", "src=", "style=\"", " onclick=\"", "eval("} {
		assert.NotContains(t, answer.Text, forbidden)
	}
	assert.Equal(t, 1, strings.Count(answer.Text, "<script"))
	assert.Equal(t, 1, strings.Count(answer.Text, "<style"))
}

// TestPageExamples runs the examples that the page offers.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.instances(2)
	examples := between(pageText, "const examples = [", "\n];")
	var n int
	for i, part := range strings.Split(examples, "`") {
		if i%2 == 1 && strings.Contains(part, "{\n") {
			n++
			variables := map[string]any{}
			if strings.Contains(part, "$id") {
				variables["id"] = "wf-0"
			}
			if strings.Contains(part, "$text") {
				variables["text"] = "billing"
			}
			w.ask(part, variables)
		}
	}
	assert.Equal(t, 7, n)
	w.ask(between(pageText, "const introspection = `", "`;"), nil)
}

// tokens are of two principals with different rights.
func tokens() auth.Guard {
	return auth.Guard{Tokens: auth.Static{
		{Hash: auth.HashToken("admin"), Principal: auth.Principal{Name: "admin", Scopes: []auth.Scope{auth.Admin}}},
		{Hash: auth.HashToken("reader"), Principal: auth.Principal{Name: "reader", Scopes: []auth.Scope{auth.Read}}},
		{Hash: auth.HashToken("acme"), Principal: auth.Principal{Name: "acme", Tenant: "acme", Scopes: []auth.Scope{auth.Read}}},
		{Hash: auth.HashToken("writer"), Principal: auth.Principal{Name: "writer", Scopes: []auth.Scope{auth.Write}}},
	}}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	plain := newWorld(t, Config{})
	w := newServer(t, plain.db, tokens(), Config{})
	for _, tenant := range []string{"acme", "other"} {
		plain.insert("execution_views", map[string]any{
			"id": "x-" + tenant, "tenant": tenant, "requested_at": at(0), "version": 1, "attempt": 1, "state_version": 1, "queued_version": 1,
			"scheduled_version": 1, "started_version": 1, "worker_version": 1, "result_version": 1, "cancel_requested_version": 1,
		})
		plain.insert("pod_views", map[string]any{"id": "p-" + tenant, "execution_id": "x-" + tenant})
	}
	plain.insert("saga_views", map[string]any{"id": "s"})
	plain.instances(1)

	ask := func(token, query string) sent {
		header := map[string]string{"Accept": mediaJSON}
		if token != "" {
			header["Authorization"] = "Bearer " + token
		}
		return get(w, "?query="+url.QueryEscape(query), header)
	}
	post := func(token, query string) sent {
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(`{"query": "`+query+`"}`))
		r.Header.Set("Content-Type", mediaJSON)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return w.do(r)
	}
	for _, send := range []func(string, string) sent{ask, post} {
		for token, status := range map[string]int{"": 401, "nobody": 401, "writer": 403, "reader": 200, "admin": 200, "acme": 200} {
			assert.Equal(t, status, send(token, "{ __schema { queryType { name } } }").Code, token)
		}
		for token, want := range map[string]string{"reader": `[{"id":"p-acme"},{"id":"p-other"}]`, "acme": `[{"id":"p-acme"}]`} {
			assert.Contains(t, send(token, "{ pods(orderBy: {id: ASC}) { nodes { id } } }").Text, want)
		}
		// Another tenant's rows do not exist, by whatever way.
		assert.Contains(t, send("acme", "{ execution(id: \\\"x-other\\\") { id } }").Text+ask("acme", `{ execution(id: "x-other") { id } }`).Text, `{"execution":null}`)
		assert.Contains(t, send("acme", "{ executions { totalCount } executionStatistics { groups { count } } }").Text,
			`{"executions":{"totalCount":1},"executionStatistics":{"groups":[{"count":1}]}}`)
		// What belongs to no tenant is not for those who are bound to one.
		for _, query := range []string{"{ getWorkflowInstances { id } }", "{ sagas { nodes { id } } }", "{ taskInstances { totalCount } }", "{ workflowInstanceStatistics { truncated } }"} {
			assert.Equal(t, []string{codeForbidden}, send("acme", query).codes(), query)
			assert.Empty(t, send("reader", query).codes(), query)
		}
	}
	// The page is for everybody: it holds nothing but itself.
	assert.Equal(t, 200, get(w, "", map[string]string{"Accept": "text/html"}).Code)
}

// failing is a database that fails.
type failing struct{ err error }

func (f failing) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults {
	return failedResults{err: f.err}
}

type failedResults struct {
	pgx.BatchResults
	err error
}

func (f failedResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedResults) Close() error                     { return f.err }

// TestInternalsStayInside: what went wrong is in the log, not in the answer.
func TestInternalsStayInside(t *testing.T) {
	t.Parallel()
	w := newServer(t, failing{errors.New("dial tcp 10.0.0.1: secret detail")}, auth.Guard{}, Config{})
	answer := w.post(`{ getWorkflowInstances { id } saga(id: "s") { id } }`, nil)
	assert.Equal(t, 200, answer.Code)
	assert.Equal(t, []string{codeInternal, codeInternal}, answer.codes())
	assert.NotContains(t, answer.Text, "secret")
	assert.Contains(t, w.log.String(), "secret detail")
	assert.InDelta(t, 1, testutil.ToFloat64(w.server.metrics.requests.WithLabelValues("failed")), 0)

	w = newServer(t, panicking{}, auth.Guard{}, Config{})
	answer = w.post(`{ getWorkflowInstances { id } }`, nil)
	assert.Equal(t, []string{codeInternal}, answer.codes())
	assert.NotContains(t, answer.Text, "secret")
	assert.Contains(t, w.log.String(), "secret panic")
	// The gate is open again, however often that happens.
	for range 10 {
		assert.Equal(t, []string{codeInternal}, w.post(`{ getWorkflowInstances { id } }`, nil).codes())
	}
}

type panicking struct{}

func (panicking) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { panic("secret panic") }

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	w.ask(`{ __typename }`, nil)
	w.post(nested(9), nil)
	w.post(`{`, nil)
	for outcome, n := range map[string]float64{"ok": 1, "refused": 1, "invalid": 1, "failed": 0} {
		assert.InDelta(t, n, testutil.ToFloat64(w.server.metrics.requests.WithLabelValues(outcome)), 0, outcome)
	}
	assert.InDelta(t, 1, testutil.ToFloat64(w.server.metrics.refused.WithLabelValues(limitDepth)), 0)
}
