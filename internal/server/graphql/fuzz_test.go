package graphql

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/server/auth"
)

// empty is a database without rows.
type empty struct{}

func (empty) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noResults{} }

type noResults struct{ pgx.BatchResults }

func (noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, nil }
func (noResults) Query() (pgx.Rows, error)         { return noRows{}, nil }
func (noResults) Close() error                     { return nil }

type noRows struct{ pgx.Rows }

func (noRows) Next() bool { return false }
func (noRows) Err() error { return nil }
func (noRows) Close()     {}

// FuzzFilter: whatever is sent for a filter and an order is either refused in words
// or made into a statement; it is never an internal error.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"status": {"eq": "COMPLETED"}}`, `{"name": {"like": "order%"}, "startTime": {"gte": "2026-11-21T12:00:00Z"}}`,
		`{"input": {"eq": [{"key": "customerId", "value": "c-1"}]}}`, `{"input": {"path": [{"path": "a.0", "gt": 1e999}]}}`,
		`{"or": [{"id": {"in": ["a", null]}}, {"not": {"search": "a or -b"}}]}`, `{"error": {"status": {"in": [1, 2]}}}`,
		`{"input": {"contains": {"a": [1, {"b": "\u0000"}]}}}`, `{"id": {"eq": 1}}`, `{"and": {"and": {"and": {}}}}`, `{"name": {"like": "\\"}}`,
	} {
		f.Add(seed, `{"startTime": "DESC"}`)
	}
	w := newServer(f, empty{}, auth.Guard{}, Config{})
	f.Fuzz(func(t *testing.T, filter, order string) {
		if !json.Valid([]byte(filter)) || !json.Valid([]byte(order)) {
			t.Skip()
		}
		body := `{"query": "query($f: WorkflowInstanceFilterInput, $o: [WorkflowInstanceOrderByInput!]) {
			workflowInstances(filter: $f, orderBy: $o, first: 5) { nodes { id } totalCount } workflowInstanceStatistics(filter: $f) { truncated } }",
			"variables": {"f": ` + filter + `, "o": ` + order + `}}`
		w.t = t
		answer := w.do(fuzzed(strings.NewReplacer("\n", " ", "\t", " ").Replace(body)))
		for _, code := range answer.codes() {
			if code == codeInternal || code == codeUnavailable || code == "" {
				t.Fatalf("%s: %s\n%s", code, answer.Text, w.log.String())
			}
		}
	})
}

// FuzzQuery: no document, whatever it says, is an internal error.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		introspection, nested(3), doubling(20, `{ getWorkflowInstances { ...f0 } }`, `{ id }`), `{ a: __typename @skip(if: true) }`,
		`query($n: Int = 3) { workflowInstances(first: $n) { edges { cursor node { id } } pageInfo { endCursor } } }`,
		`{ search(text: "\u0000") { executions { nodes { pods { execution { id } } } } } }`, `subscription { a }`, `"""`, `{ pods(filter: {attempt: {in: 1}}) { nodes { id } } }`,
		`{ getWorkflowInstances(filter: {input: {path: {path: "", contains: {a: [$x]}}}}) { id } }`, `{ __type(name: "Query") { fields { name } } }`,
	} {
		f.Add(seed, `{}`)
	}
	w := newServer(f, empty{}, auth.Guard{}, Config{})
	f.Fuzz(func(t *testing.T, query, variables string) {
		body, err := json.Marshal(map[string]any{"query": query, "variables": json.RawMessage(variables)})
		if err != nil {
			t.Skip()
		}
		w.t = t
		answer := w.do(fuzzed(string(body)))
		for _, code := range answer.codes() {
			if code == codeInternal || code == codeUnavailable {
				t.Fatalf("%s: %s\n%s", code, answer.Text, w.log.String())
			}
		}
	})
}

func fuzzed(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", mediaJSON)
	return r
}
