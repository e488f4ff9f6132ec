package rest

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/sse"
)

var update = flag.Bool("update", false, "write the golden files")

func TestEveryRouteDeclaresItsScope(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	open := []string{}
	for _, r := range b.api.routes() {
		switch r.scope {
		case auth.Open:
			open = append(open, r.pattern())
		case auth.Read:
			if r.path != "/graphql" && !strings.HasSuffix(r.path, "/validate") { // none of these changes anything
				assert.Equal(t, http.MethodGet, r.method, "%s changes something", r.pattern())
			}
		case auth.Write, auth.Admin:
		default:
			t.Errorf("route %s declares no scope", r.pattern())
		}
	}
	assert.Equal(t, []string{"POST /hooks/{id}", "GET /livez", "GET /healthz", "GET /readyz", "GET /openapi.json", "GET /docs"}, open,
		"these need no token: think twice before you add one")
	require.ErrorContains(t, b.api.register(route{method: "GET", path: "/v1/secrets"}), "declares no scope")
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	filled := regexp.MustCompile(`\{\w+\}`)
	for _, r := range b.api.routes() {
		allowed := map[string]bool{
			"": false, "viewer": r.scope == auth.Read, "writer": r.scope == auth.Write, "admin": true, "wrong": false,
		}
		for token, may := range allowed {
			if r.scope == auth.Open {
				may = true
			}
			if may && r.path == "/v1/events" {
				continue // a stream does not end by itself
			}
			t.Run(r.pattern()+" as "+token, func(t *testing.T) {
				var headers []string
				if token != "" {
					headers = []string{"Authorization", "Bearer " + token}
				}
				w := b.do(r.method, filled.ReplaceAllString(r.path, "00000000-0000-7000-8000-00000000000f"), "", headers...)
				switch {
				case may:
					assert.NotContains(t, []int{401, 403}, w.Code)
				case token == "" || token == "wrong":
					requireProblem(t, w, 401, "unauthorized")
					assert.Contains(t, w.Header().Get("WWW-Authenticate"), `Bearer realm="millrace"`)
				default:
					requireProblem(t, w, 403, "forbidden")
				}
				if token != "" {
					assert.NotContains(t, w.Body.String()+b.logs.String(), "Bearer "+token, "tokens are not repeated")
				}
			})
		}
	}
}

// TestGraphQLIsMounted: what it answers is tested where it is made.
func TestGraphQLIsMounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	as := []string{"Authorization", "Bearer viewer", "Content-Type", "application/json"}
	assert.JSONEq(t, `{"data": {"__typename": "Query"}}`, b.do("POST", "/graphql", `{"query": "{ __typename }"}`, as...).Body.String())
	assert.JSONEq(t, `{"data": {"__typename": "Query"}}`, b.do("GET", "/graphql?query=%7B__typename%7D", "", as...).Body.String())
	requireProblem(t, b.do("POST", "/graphql", `{"query": "{ __typename }"}`), 401, "unauthorized")
	requireProblem(t, b.do("GET", "/graphql", ""), 401, "unauthorized")
	page := b.do("GET", "/graphql", "", "Accept", "text/html")
	assert.Equal(t, 200, page.Code)
	assert.Contains(t, page.Header().Get("Content-Security-Policy"), "default-src 'none'")
	requireProblem(t, b.do("GET", "/graphql?query=%7B__typename%7D", "", "Accept", "text/html"), 401, "unauthorized")
	requireProblem(t, b.do("DELETE", "/graphql", ""), 405, "method_not_allowed")
}

func TestMalformedAuthorization(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	for _, header := range []string{"viewer", "Basic dmllcjp3ZXI=", "Bearer", "Bearer  ", "Bearer viewer extra"} {
		requireProblem(t, b.do("GET", "/v1/topics", "", "Authorization", header), 401, "unauthorized")
	}
	assert.Equal(t, 200, b.do("GET", "/v1/topics", "", "Authorization", "bearer viewer").Code)
}

func TestATenantsTokenSeesItsTenantOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	mine := decode[Execution](t, b.do("POST", "/v1/executions", echo, as("acme")...))
	assert.Equal(t, "acme", mine.Tenant)
	assert.Equal(t, "amy", mine.User)
	theirs := decode[Execution](t, b.do("POST", "/v1/executions", echo, as("writer")...))
	assert.Equal(t, "default", theirs.Tenant)

	assert.Equal(t, 200, b.do("GET", "/v1/executions/"+mine.ID, "", as("acme")...).Code)
	assert.Equal(t, 200, b.do("GET", "/v1/executions/"+mine.ID, "", as("viewer")...).Code)
	for _, target := range []string{"", "/output", "/result", "/events"} {
		requireProblem(t, b.do("GET", "/v1/executions/"+theirs.ID+target, "", as("acme")...), 404, "execution_not_found")
	}
	requireProblem(t, b.do("POST", "/v1/executions/"+theirs.ID+"/cancel", "", as("acme")...), 404, "execution_not_found")
	requireProblem(t, b.do("GET", "/v1/events?topic=flow-lifecycle-out", "", as("acme")...), 403, "forbidden")
	assert.Equal(t, "acme", b.streamFilter("acme", "").Tenant)
	assert.Equal(t, sse.Filter{}, b.streamFilter("viewer", ""))
	assert.Equal(t, sse.Filter{
		Tenant: "acme", Subjects: []string{mine.ID}, Users: []string{"amy", "bob"}, Types: []string{"a", "b.*", "c"},
	}, b.streamFilter("acme", "execution_id="+mine.ID+"&user=amy,%20bob&type=a&type=b.*,c"))
	requireProblem(t, b.do("GET", "/v1/events?execution_id="+theirs.ID, "", as("acme")...), 404, "execution_not_found")
	requireProblem(t, b.do("GET", "/v1/executions?tenant=other", "", as("acme")...), 400, "invalid_parameter")
}

// streamFilter is what a stream shows to the holder of a token.
func (b *bench) streamFilter(token, query string) (f sse.Filter) {
	b.t.Helper()
	fail := func(_ http.ResponseWriter, _ *http.Request, err error) { require.NoError(b.t, err) }
	r := httptest.NewRequest(http.MethodGet, "/v1/events?"+query, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	b.api.deps.Guard.Require(auth.Read, fail, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		_, f, err = b.api.streamFilter(r.Context(), r.URL.Query())
		require.NoError(b.t, err)
	})).ServeHTTP(httptest.NewRecorder(), r)
	return f
}

type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Parameters  []struct{ Name, In string }
		Security    []map[string][]string
		Responses   map[string]json.RawMessage
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func TestTheOpenAPIDocumentIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	const golden = "testdata/openapi.json"
	got := newBench(t, nil).api.OpenAPI()
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "the API has changed: look at the difference, then run this test with -update")
}

func TestTheOpenAPIDocumentIsValidAndCoversEveryRoute(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	served := b.do("GET", "/openapi.json", "")
	require.Equal(t, b.api.OpenAPI(), served.Body.Bytes())
	var doc document
	require.NoError(t, json.Unmarshal(served.Body.Bytes(), &doc))
	assert.Equal(t, "3.1.0", doc.OpenAPI)

	operations := map[string]bool{}
	inPath := regexp.MustCompile(`\{(\w+)\}`)
	for _, r := range b.api.routes() {
		op, there := doc.Paths[r.path][strings.ToLower(r.method)]
		require.True(t, there, "%s is not in the document", r.pattern())
		require.NotEmpty(t, op.OperationID)
		require.False(t, operations[op.OperationID], "operation id %s is used twice", op.OperationID)
		operations[op.OperationID] = true
		for _, name := range inPath.FindAllStringSubmatch(r.path, -1) {
			assert.Contains(t, op.Parameters, struct{ Name, In string }{name[1], "path"}, r.pattern())
		}
		assert.Equal(t, r.scope != auth.Open, len(op.Security) == 1, "security of %s", r.pattern())
		assert.Contains(t, op.Responses, "default", r.pattern())
		assert.NotContains(t, string(op.Responses["default"]), "ErrorModel", r.pattern())
	}
	count := 0
	for _, methods := range doc.Paths {
		count += len(methods)
	}
	assert.Len(t, b.api.routes(), count, "the document has operations that no route serves")

	for _, ref := range regexp.MustCompile(`"\$ref": "([^"]+)"`).FindAllStringSubmatch(served.Body.String(), -1) {
		name := strings.TrimPrefix(ref[1], "#/components/schemas/")
		assert.Contains(t, doc.Components.Schemas, name, "%s points nowhere", ref[1])
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(served.Body.Bytes()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", root))
	for name := range doc.Components.Schemas {
		_, err := compiler.Compile("openapi.json#/components/schemas/" + name)
		require.NoError(t, err, name)
	}
}

func TestAnswersFitTheDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.api.OpenAPI()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", root))
	check := func(schema string, body []byte) {
		t.Helper()
		compiled, err := compiler.Compile("openapi.json#/components/schemas/" + schema)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, compiled.Validate(value), string(body))
	}
	full := `{"executor":"process","spec":{"command":["echo","hi"]},"priority":5,"resource_class":"gpu",
		"requirements":{"slots":2,"cpu_millis":500,"memory_bytes":1048576,"gpus":1},"concurrency_key":"k",
		"not_before":"2026-11-21T10:00:00Z","limits":{"queue":"10m","start":"30s","run":"1m","total":"1h"},
		"retry":{"max_attempts":3,"backoff":"1s","max_backoff":"1m","jitter":0.2},"labels":{"team":"blue"},"user":"ada"}`
	check("SubmitRequest", []byte(full))
	w := b.do("POST", "/v1/executions", full)
	require.Equal(t, 202, w.Code, w.Body.String())
	check("Execution", w.Body.Bytes())
	e := decode[Execution](t, w)
	w = b.do("POST", "/v1/executions/"+e.ID+"/cancel", `{"reason":"no"}`)
	require.Equal(t, 200, w.Code)
	check("Execution", w.Body.Bytes())
	check("BatchResponse", b.do("POST", "/v1/executions:batch", `{"executions":[`+echo+`,{}]}`).Body.Bytes())
	check("Problem", b.do("GET", "/v1/executions/x", "").Body.Bytes())
	check("ExecutionList", b.do("GET", "/v1/executions", "").Body.Bytes())
	check("EventList", b.do("GET", "/v1/executions/"+e.ID+"/events", "").Body.Bytes())
	check("TopicList", b.do("GET", "/v1/topics", "").Body.Bytes())
	check("Report", b.do("GET", "/readyz?verbose", "").Body.Bytes())
	check("OutputDocument", b.do("GET", "/v1/executions/"+e.ID+"/output", "", "Accept", "application/json").Body.Bytes())
}

func TestTheDocsPageNeedsNothingFromOutside(t *testing.T) {
	t.Parallel()
	w := newBench(t, nil).do("GET", "/docs", "")
	require.Equal(t, 200, w.Code)
	page := w.Body.String()
	assert.NotRegexp(t, `(?i)(src|href)="(https?:)?//|@import|url\(`, page)
	policy := w.Header().Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, hashOf(between(page, "<script>", "</script>")))
	assert.NotContains(t, policy, "unsafe")
}
