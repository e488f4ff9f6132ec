package graphql

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/auth"
)

// idle is a server that must not read anything.
func idle(t testing.TB, config Config) *world {
	t.Helper()
	return newServer(t, noDB{t}, auth.Guard{}, config)
}

// nested puts n fields into each other.
func nested(n int) string {
	return "{ getWorkflowInstances " + strings.Repeat("{ taskExecutions { workflowInstance ", n) + "{ id }" + strings.Repeat("} }", n) + " }"
}

// doubling makes n fragments each of which spreads the next one twice.
func doubling(n int, start, leaf string) string {
	var b strings.Builder
	b.WriteString(start)
	for i := range n {
		next := fmt.Sprintf("{ ...f%d ...f%d }", i+1, i+1)
		if i == n-1 {
			next = leaf
		}
		fmt.Fprintf(&b, " fragment f%d on WorkflowInstance %s", i, next)
	}
	return b.String()
}

// TestHostileQueries: each is refused with the limit that it breaks, before anything
// is read.
func TestHostileQueries(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		query     string
		variables map[string]any
		limit     string
	}{
		"deep":                    {query: nested(5), limit: limitDepth},
		"deep in a fragment":      {query: `{ getWorkflowInstances { ...f } } fragment f on WorkflowInstance ` + nested(5)[len("{ getWorkflowInstances "):len(nested(5))-2], limit: limitDepth},
		"deep in inline ones":     {query: `{ ... on Query ` + nested(5) + ` }`, limit: limitDepth},
		"wide lists":              {query: `{ getWorkflowInstances(limit: 1000) { taskExecutions(limit: 1000) { id taskName } } }`, limit: limitCost},
		"wide by variables":       {query: `query($n: Int) { getWorkflowInstances(limit: $n) { taskExecutions(limit: $n) { id } } }`, variables: map[string]any{"n": 1000}, limit: limitCost},
		"wide by defaults":        {query: `query($n: Int = 1000) { getWorkflowInstances(limit: $n) { taskExecutions(limit: $n) { id } } }`, limit: limitCost},
		"wide connections":        {query: `{ workflowInstances(first: 1000) { edges { node { taskExecutions(limit: 500) { id } } } } }`, limit: limitCost},
		"all totals and numbers":  {query: `{` + many(20, "a%d: workflowInstances(first: 1000) { nodes { id name status version namespace startDate endDate inputData outputData placeholder } totalCount } ") + `}`, limit: limitCost},
		"a page too long":         {query: `{ getWorkflowInstances(limit: 1001) { id } }`, limit: limitPageSize},
		"a connection too long":   {query: `{ workflowInstances(last: 1001) { nodes { id } } }`, limit: limitPageSize},
		"aliased fields":          {query: `{ getWorkflowInstances { ` + many(51, "a%d: id ") + `} }`, limit: limitAliases},
		"aliased roots":           {query: `{` + many(21, "a%d: __typename ") + `}`, limit: limitRootFields},
		"repeated roots":          {query: `{` + strings.Repeat("__typename ", 21) + `}`, limit: limitRootFields},
		"repeated fields":         {query: `{ getWorkflowInstances {` + strings.Repeat("id ", 101) + `} }`, limit: limitRepeated},
		"a long name":             {query: `{ ` + strings.Repeat("x", 500_000) + ` }`, limit: limitName},
		"a long alias":            {query: `{ ` + strings.Repeat("x", 129) + `: __typename }`, limit: limitName},
		"a long argument":         {query: `{ pods(` + strings.Repeat("x", 500_000) + `: 1) { totalCount } }`, limit: limitName},
		"a long enum value":       {query: `{ getWorkflowInstances(filter: {status: {eq: ` + strings.Repeat("X", 500_000) + `}}) { id } }`, limit: limitName},
		"a long input field":      {query: `{ getWorkflowInstances(filter: {` + strings.Repeat("x", 500_000) + `: 1}) { id } }`, limit: limitName},
		"a long directive":        {query: `{ __typename @` + strings.Repeat("x", 500_000) + ` }`, limit: limitName},
		"a long fragment":         {query: `{ ...` + strings.Repeat("x", 500_000) + ` }`, limit: limitName},
		"a long type":             {query: `query($a: ` + strings.Repeat("x", 500_000) + `) { ... on ` + strings.Repeat("y", 500_000) + ` { __typename } }`, limit: limitName},
		"a long variable":         {query: `query($` + strings.Repeat("x", 500_000) + `: Int) { __typename }`, limit: limitName},
		"a long type condition":   {query: `{ ... on ` + strings.Repeat("y", 500_000) + ` { __typename } }`, limit: limitName},
		"roots in fragments":      {query: `{ ...f ...g } fragment f on Query {` + many(11, "a%d: __typename ") + `} fragment g on Query {` + many(11, "b%d: __typename ") + `}`, limit: limitRootFields},
		"directives":              {query: `{ __typename ` + strings.Repeat("@include(if: true) ", 51) + `}`, limit: limitDirectives},
		"unknown directives":      {query: `query ` + strings.Repeat("@a", 51) + `{ __typename }`, limit: limitDirectives},
		"tokens":                  {query: `{` + strings.Repeat("id ", 2600) + `}`, limit: limitTokens},
		"brackets":                {query: `{ getWorkflowInstance(id: ` + strings.Repeat("[", 100_000), limit: limitTokens},
		"braces":                  {query: strings.Repeat("{a", 50_000), limit: limitTokens},
		"comments":                {query: strings.Repeat("#\n", 100_000) + `{ __typename }`, limit: limitTokens},
		"a long list":             {query: `{ getWorkflowInstances(filter: {id: {in: [` + strings.Repeat(`"x" `, 1001) + `]}}) { id } }`, limit: limitListLength},
		"a long list by variable": {query: `query($l: [String!]) { getWorkflowInstances(filter: {id: {in: $l}}) { id } }`, variables: map[string]any{"l": make([]string, 1001)}, limit: limitListLength},
		"a deep filter":           {query: `{ getWorkflowInstances(filter: ` + strings.Repeat("{not: ", 11) + "{}" + strings.Repeat("}", 11) + `) { id } }`, limit: limitDepth},
		"a deep variable":         {query: `query($f: WorkflowInstanceFilterInput) { getWorkflowInstances(filter: $f) { id } }`, variables: deepNot(11), limit: limitDepth},
		"many conditions":         {query: `{ getWorkflowInstances(filter: {or: [` + strings.Repeat(`{name: {eq: "a"}} `, 65) + `]}) { id } }`, limit: "conditions"},
		"catastrophic like":       {query: `{ getWorkflowInstances(filter: {name: {like: "` + strings.Repeat("%a", 20) + `"}}) { id } }`, limit: "wildcards"},
		"a catastrophic star":     {query: `{ getWorkflowInstances(filter: {name: {like: "` + strings.Repeat("*a", 20) + `"}}) { id } }`, limit: "wildcards"},
		"a long pattern":          {query: `{ getWorkflowInstances(filter: {name: {ilike: "` + strings.Repeat("a", 300) + `"}}) { id } }`, limit: "pattern_bytes"},
		"a long search":           {query: `{ search(text: "` + strings.Repeat("a ", 17) + `") { executions { nodes { id } } } }`, limit: "search_words"},
		"a long path":             {query: `{ getWorkflowInstances(filter: {input: {eq: [{key: "` + strings.Repeat("a.", 20) + `a", value: ""}]}}) { id } }`, limit: "path_depth"},
		"a far offset":            {query: `{ getWorkflowInstances(offset: 2000000000) { id } }`, limit: "offset"},
		"a cycle of fragments":    {query: `{ getWorkflowInstances { ...a } } fragment a on WorkflowInstance { ...b } fragment b on WorkflowInstance { id ...a }`, limit: limitFragments},
		"a cycle that is unused":  {query: `{ __typename } fragment a on Query { ...a }`, limit: limitFragments},
		"doubling fragments":      {query: doubling(60, `{ getWorkflowInstances { ...f0 } }`, `{ id }`), limit: limitCost},
		"doubling unused ones":    {query: doubling(60, `{ __typename }`, `{ id }`), limit: limitCost},
		"deep introspection":      {query: `{ __schema { types { fields { type ` + strings.Repeat("{ ofType ", 20) + "{ name }" + strings.Repeat("}", 20) + ` } } } }`, limit: limitDepth},
		"wide introspection":      {query: `{ __schema { types {` + many(40, "a%d: fields { args { type { fields { name type { name } } } } } ") + `} } }`, limit: limitCost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := w.post(c.query, c.variables)
			require.NotEmpty(t, answer.Errors, answer.Text)
			assert.Equal(t, codeLimit, answer.Errors[0].Extensions.Code, answer.Text)
			assert.Equal(t, c.limit, answer.Errors[0].Extensions.Limit, answer.Text)
			if strings.HasPrefix(c.limit, "graphql.") {
				assert.Contains(t, answer.Errors[0].Message, c.limit)
				assert.Positive(t, answer.Errors[0].Extensions.Allowed)
				assert.Greater(t, answer.Errors[0].Extensions.Found, answer.Errors[0].Extensions.Allowed)
			}
			assert.Less(t, len(answer.Text), 5000)
		})
	}
}

// TestLongValues: what is long in a wrong value is not repeated.
func TestLongValues(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	long := strings.Repeat("y", 300_000)
	for name, c := range map[string]struct {
		query     string
		variables map[string]any
	}{
		"a text for an enum":       {`{ getWorkflowInstances(filter: {status: {eq: "` + long + `"}}) { id } }`, nil},
		"a text for a number":      {`{ pods(first: "` + long + `") { totalCount } }`, nil},
		"a long number":            {`{ pods(first: ` + strings.Repeat("9", 300_000) + `) { nodes { id } } }`, nil},
		"a text for a time":        {`{ getWorkflowInstances(filter: {startTime: {gt: "` + long + `"}}) { id } }`, nil},
		"a text for a cursor":      {`{ workflowInstances(after: "` + long + `") { nodes { id } } }`, nil},
		"an enum in a variable":    {`query($s: WorkflowInstanceStatus) { getWorkflowInstances(filter: {status: {eq: $s}}) { id } }`, map[string]any{"s": long}},
		"a number in a variable":   {`query($n: Int) { pods(first: $n) { totalCount } }`, map[string]any{"n": long}},
		"a field in a variable":    {`query($f: PodFilterInput) { pods(filter: $f) { totalCount } }`, map[string]any{"f": map[string]any{long: 1}}},
		"an operation":             {`query a { __typename } query b { __typename }`, nil},
		"a key of JSON":            {`{ getWorkflowInstances(filter: {input: {eq: [{key: "` + long + `", value: ""}]}}) { id } }`, nil},
		"a path of JSON":           {`{ getWorkflowInstances(filter: {input: {path: [{path: "` + long + `"}]}}) { id } }`, nil},
		"a text that is not ended": {`{ search(text: "` + long, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := w.post(c.query, c.variables)
			require.NotEmpty(t, answer.Errors)
			assert.Less(t, len(answer.Text), 3000)
		})
	}
}

func deepNot(n int) map[string]any {
	f := map[string]any{}
	for range n {
		f = map[string]any{"not": f}
	}
	return map[string]any{"f": f}
}

func TestUsualQueriesAreNotRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.instances(1)
	for name, query := range map[string]string{
		"introspection": introspection,
		"a long list with tasks": `{ getWorkflowInstances(limit: 1000) { id name status startDate endDate
			taskExecutions { id taskName status startDate endDate } } }`,
		"everything of a page": `{ workflowInstances(first: 100) { edges { cursor node { id namespace name version status startDate endDate lastUpdate input output
			error { type title detail status instance } taskExecutions { id taskName taskPosition status startDate endDate input output error { title } } } }
			pageInfo { hasNextPage endCursor } totalCount } }`,
	} {
		assert.Empty(t, w.post(query, nil).Errors, name)
	}
}

// introspection is what tools send to learn a schema.
const introspection = `query IntrospectionQuery { __schema {
	queryType { name } mutationType { name } subscriptionType { name } types { ...FullType }
	directives { name description locations args { ...InputValue } } } }
fragment FullType on __Type { kind name description
	fields(includeDeprecated: true) { name description args { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
	inputFields { ...InputValue } interfaces { ...TypeRef }
	enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef } }
fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue }
fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name
	ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } }`

func TestIntrospection(t *testing.T) {
	t.Parallel()
	on := idle(t, Config{})
	data := on.ask(introspection, nil)
	assert.Contains(t, data, `"getWorkflowInstances"`)
	assert.NotContains(t, data, `"defer"`)
	assert.Contains(t, on.post(`{ getWorkflowInstanc { id } }`, nil).Errors[0].Message, "Did you mean")

	off := idle(t, Config{NoIntrospection: true})
	for name, query := range map[string]string{
		"schema": introspection, "type": `{ __type(name: "Query") { name } }`, "in a fragment": `{ ...f } fragment f on Query { __schema { queryType { name } } }`,
		"skipped": `{ ... on Query { __schema @skip(if: true) { queryType { name } } } }`,
	} {
		assert.Equal(t, []string{codeIntrospection}, off.post(query, nil).codes(), name)
	}
	assert.JSONEq(t, `{"__typename": "Query"}`, off.ask(`{ __typename }`, nil))
	for _, query := range []string{
		`{ getWorkflowInstanc { id } }`, `{ getWorkflowInstances(filte: {}) { id } }`, `{ getWorkflowInstances(filter: {nam: {}}) { id } }`,
		`query($f: WorkflowInstanceFilterInpu) { getWorkflowInstances(filter: $f) { id } }`,
	} {
		assert.NotContains(t, off.post(query, nil).Text, "Did you mean", query)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Limits: Limits{Timeout: 1}}) // a nanosecond
	answer := w.post(`{ getWorkflowInstances { id } }`, nil)
	assert.Equal(t, []string{codeTimeout}, answer.codes())
	assert.Equal(t, limitTimeout, answer.Errors[0].Extensions.Limit)
}

// TestBodies holds what may be sent.
func TestBodies(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{Limits: Limits{BodyBytes: 1000}})
	post := func(contentType, accept, body string) sent {
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		return w.do(r)
	}
	const good = `{"query": "{ __typename }"}`
	for name, c := range map[string]struct {
		contentType, accept, body string
		status                    int
		code                      string
	}{
		"good":                       {mediaJSON, mediaJSON, good, 200, ""},
		"good, the newer type":       {mediaJSON + "; charset=utf-8", mediaResponse + ", */*;q=0.1", good, 200, ""},
		"any type":                   {mediaJSON, "*/*", good, 200, ""},
		"no type":                    {mediaJSON, "", good, 200, ""},
		"nulls":                      {mediaJSON, "", `{"query": "{ __typename }", "variables": null, "operationName": null, "extensions": null}`, 200, ""},
		"another type":               {mediaJSON, "text/plain", good, 406, ""},
		"a form":                     {"application/x-www-form-urlencoded", "", "query=x", 415, ""},
		"plain text":                 {"text/plain", "", good, 415, ""},
		"multipart":                  {"multipart/form-data; boundary=x", "", good, 415, ""},
		"graphql":                    {"application/graphql", "", "{ __typename }", 415, ""},
		"no content type":            {"", "", good, 415, ""},
		"another charset":            {mediaJSON + "; charset=latin1", "", good, 415, ""},
		"empty":                      {mediaJSON, "", ``, 400, codeMalformed},
		"not JSON":                   {mediaJSON, "", `{`, 400, codeMalformed},
		"not UTF-8":                  {mediaJSON, "", "{\"query\": \"\xff\"}", 400, codeMalformed},
		"a text":                     {mediaJSON, "", `"{ __typename }"`, 400, codeBadRequest},
		"two documents":              {mediaJSON, "", good + good, 400, codeMalformed},
		"a batch":                    {mediaJSON, "", "[" + good + "," + good + "]", 400, codeLimit},
		"unknown member":             {mediaJSON, "", `{"query": "{ __typename }", "more": 1}`, 400, codeBadRequest},
		"member twice":               {mediaJSON, "", `{"query": "{ __typename }", "query": "{ a }"}`, 400, codeBadRequest},
		"variables as a list":        {mediaJSON, "", `{"query": "{ __typename }", "variables": [1]}`, 400, codeBadRequest},
		"too long":                   {mediaJSON, "", `{"query": "` + strings.Repeat(" ", 1000) + `"}`, 413, codeLimit},
		"no query":                   {mediaJSON, mediaResponse, `{}`, 400, codeBadRequest},
		"no query, older":            {mediaJSON, mediaJSON, `{}`, 200, codeBadRequest},
		"a syntax error":             {mediaJSON, mediaResponse, `{"query": "{"}`, 400, codeSyntax},
		"a syntax error, older":      {mediaJSON, mediaJSON, `{"query": "{"}`, 200, codeSyntax},
		"an unknown field":           {mediaJSON, mediaResponse, `{"query": "{ nothing }"}`, 400, codeValidation},
		"a mutation":                 {mediaJSON, mediaResponse, `{"query": "mutation { a }"}`, 400, codeValidation},
		"a subscription":             {mediaJSON, mediaResponse, `{"query": "subscription { a }"}`, 400, codeValidation},
		"defer":                      {mediaJSON, mediaResponse, `{"query": "{ ... @defer { __typename } }"}`, 400, codeValidation},
		"fragments only":             {mediaJSON, mediaResponse, `{"query": "fragment a on Query { __typename }"}`, 400, codeBadRequest},
		"two operations":             {mediaJSON, mediaResponse, `{"query": "query a { __typename } query b { __typename }"}`, 400, codeBadRequest},
		"one of two":                 {mediaJSON, mediaResponse, `{"query": "query a { __typename } query b { __typename }", "operationName": "b"}`, 200, ""},
		"none of two":                {mediaJSON, mediaResponse, `{"query": "query a { __typename } query b { __typename }", "operationName": "c"}`, 400, codeBadRequest},
		"a missing variable":         {mediaJSON, mediaResponse, `{"query": "query($a: String!) { saga(id: $a) { id } }"}`, 400, codeVariables},
		"a variable of another type": {mediaJSON, mediaResponse, `{"query": "query($a: Int) { pods(first: $a) { __typename } }", "variables": {"a": "x"}}`, 400, codeVariables},
		"a variable out of range":    {mediaJSON, mediaResponse, `{"query": "query($a: Int) { pods(first: $a) { nodes { id } } }", "variables": {"a": 99999999999999999999}}`, 400, codeVariables},
		"a persisted query":          {mediaJSON, mediaResponse, `{"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "x"}}}`, 400, "PERSISTED_QUERY_NOT_SUPPORTED"},
		"a time that is none":        {mediaJSON, mediaResponse, `{"query": "{ getWorkflowInstances(filter: {startTime: {gt: \"yesterday\"}}) { id } }"}`, 200, codeArgument},
		"a text with a zero byte":    {mediaJSON, mediaResponse, `{"query": "{ getWorkflowInstances(filter: {name: {eq: \"\\u0000\"}}) { id } }"}`, 200, codeArgument},
		"a number that is too large": {mediaJSON, mediaResponse, `{"query": "{ executions(filter: {durationMillis: {gt: 99999999999999999999}}) { nodes { id } } }"}`, 400, codeValidation},
		"a path that leads nowhere":  {mediaJSON, mediaResponse, `{"query": "{ getWorkflowInstances(filter: {input: {path: {path: \"a\"}}}) { id } }"}`, 200, codeArgument},
		"like of a number":           {mediaJSON, mediaResponse, `{"query": "{ executions(filter: {priority: {like: \"1\"}}) { nodes { id } } }"}`, 400, codeValidation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := post(c.contentType, c.accept, c.body)
			assert.Equal(t, c.status, answer.Code, answer.Text)
			if c.code != "" {
				require.NotEmpty(t, answer.Errors, answer.Text)
				assert.Equal(t, c.code, answer.Errors[0].Extensions.Code, answer.Text)
			} else if c.status == http.StatusOK {
				assert.Empty(t, answer.Errors, answer.Text)
			}
			if c.status == http.StatusOK && c.accept == mediaJSON {
				assert.Equal(t, mediaJSON+"; charset=utf-8", answer.Header.Get("Content-Type"))
			}
			assert.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		})
	}
	t.Run("a query in the URL of a POST", func(t *testing.T) {
		t.Parallel()
		r := httptest.NewRequest(http.MethodPost, "/graphql?query={__typename}", strings.NewReader(good))
		r.Header.Set("Content-Type", mediaJSON)
		assert.Equal(t, 400, w.do(r).Code)
	})
	t.Run("compressed", func(t *testing.T) {
		t.Parallel()
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(good))
		r.Header.Set("Content-Type", mediaJSON)
		r.Header.Set("Content-Encoding", "gzip")
		assert.Equal(t, 415, w.do(r).Code)
	})
}
