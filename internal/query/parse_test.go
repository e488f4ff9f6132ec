package query_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

func parse(text string) (query.Filter, error) {
	return query.NewStore(nil, query.Limits{}).WorkflowInstances().Schema().ParseFilter([]byte(text), query.Limits{})
}

func TestFiltersAreReadFromJSON(t *testing.T) {
	t.Parallel()
	test := func(field string, op query.Op, value any) query.Test {
		return query.Test{Field: field, Op: op, Value: value}
	}
	for text, want := range map[string]query.Filter{
		`{}`:                      nil,
		`{"name":"order"}`:        test("name", query.Eq, "order"),
		`{"name":{"ne":"order"}}`: test("name", query.Ne, "order"),
		`{"status":{"in":["RUNNING","FAULTED"]},"name":{"like":"a%","prefix":"a"}}`: query.And{
			test("name", query.Like, "a%"), test("name", query.Prefix, "a"), test("status", query.In, []any{"RUNNING", "FAULTED"})},
		`{"start":{"gte":"2026-11-21T12:00:00Z"}}`: test("start", query.Gte, noon()),
		`{"error_status":{"gt":400}}`:              test("error_status", query.Gt, json.Number("400")),
		`{"placeholder":true}`:                     test("placeholder", query.Eq, true),
		`{"end":{"is_null":true}}`:                 test("end", query.IsNull, true),
		`{"not":{"name":"a"}}`:                     query.Not{Filter: test("name", query.Eq, "a")},
		`{"not":{}}`:                               query.Not{Filter: query.And{}},
		`{"or":[{"name":"a"},{"name":"b"}]}`:       query.Or{test("name", query.Eq, "a"), test("name", query.Eq, "b")},
		`{"or":[]}`:                                query.Or{},
		`{"and":[{"name":"a"}]}`:                   query.And{test("name", query.Eq, "a")},
		`{"search":"card"}`:                        query.Search{Text: "card"},
		`{"input":{"path":"a.b","eq":1}}`:          query.Test{Field: "input", Path: []string{"a", "b"}, Op: query.Eq, Value: json.Number("1")},
		`{"input":[{"path":["a.b",0],"exists":true},{"is_null":false}]}`: query.And{
			query.Test{Field: "input", Path: []string{"a.b", "0"}, Op: query.Exists, Value: true}, test("input", query.IsNull, false)},
		`{"input":{"path":"a","contains":{"x":[null]}}}`: query.Test{Field: "input", Path: []string{"a"}, Op: query.Contains, Value: map[string]any{"x": []any{nil}}},
	} {
		got, err := parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

func TestFiltersThatAreNoneSayWhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                    "not JSON",
		`{"name":"a"`:                         "not JSON",
		`{} {}`:                               "something follows",
		`[]`:                                  "must be an object, not a list",
		`{"nam":"a"}`:                         "/nam is no field of workflow instances",
		`{"name":{}}`:                         "/name has no operator",
		`{"name":{"regex":"a"}}`:              `/name/regex is no operator of name`,
		`{"name":null}`:                       "/name must not be null: use is_null",
		`{"name":["a"]}`:                      "/name must be a single value, not a list",
		`{"start":{"gt":"yesterday"}}`:        `/start/gt "yesterday" is not a time`,
		`{"start":{"gt":5}}`:                  "/start/gt must be a time as text",
		`{"status":{"in":"RUNNING"}}`:         "/status/in must be a list, not a text",
		`{"and":{"name":"a"}}`:                "/and must be a list of filters",
		`{"or":[{"not":[1]}]}`:                "/or/0/not must be an object",
		`{"search":1}`:                        "/search must be a text",
		`{"input":"a"}`:                       `/input must be an object such as`,
		`{"input":{"path":5,"eq":1}}`:         "/input/path must be a text or a list",
		`{"input":{"path":[[]],"eq":1}}`:      "/input/path/0 must be a text or a number",
		`{"input":[{"eq":1},{"path":"a~/"}]}`: "/input/1 has no operator",
	} {
		_, err := parse(text)
		var wrong *query.InvalidError
		require.ErrorAs(t, err, &wrong, text)
		assert.Contains(t, wrong.Error(), want)
	}
	for text, limit := range map[string]string{
		strings.Repeat(`{"not":`, 30) + `{}` + strings.Repeat("}", 30):     "depth",
		strings.Repeat(`[`, 100_000):                                       "depth",
		`{"or":[` + strings.Repeat(`{"name":"a"},`, 70) + `{"name":"a"}]}`: "conditions",
		`{"name":{"in":[` + strings.Repeat(`"a",`, 1000) + `"a"]}}`:        "in_values",
		`{"name":"` + strings.Repeat("a", 300_000) + `"}`:                  "filter_bytes",
	} {
		_, err := parse(text)
		limited(t, err, limit)
	}
}

func TestOrdersAreReadFromText(t *testing.T) {
	t.Parallel()
	got, err := query.ParseOrder("-start, name")
	require.NoError(t, err)
	assert.Equal(t, []query.Order{{Field: "start", Descending: true}, {Field: "name"}}, got)
	assert.Equal(t, "-start", got[0].String())
	got, err = query.ParseOrder("")
	require.NoError(t, err)
	assert.Empty(t, got)
	for _, text := range []string{",", "-", "name,"} {
		_, err := query.ParseOrder(text)
		invalid(t, err, "invalid")
	}
}

// FuzzFilter: whatever is read as a filter, the database takes, or it is refused with
// an error that says so.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`{"name":{"like":"%a_\\%"}}`, `{"input":[{"path":"a.0","gt":1e5},{"contains":{"a":[1]}}],"or":[{"not":{"search":"x -y"}}]}`,
		`{"start":{"in":["2026-11-21T12:00:00+25:00"]}}`, `{"input":{"path":[""],"in":[null,true,{}]}}`, `{"error_status":{"lt":-1e3}}`,
		`{"input":{"eq":"\ud800"}}`, `{"output":{"path":"a","eq":1e-400}}`,
	} {
		f.Add(text)
	}
	w := newWorld(f)
	w.workflow("a", map[string]any{"name": "a", "start": noon(), "end": noon().Add(time.Second), "input": `{"a":[1,"x"]}`, "output": `"x"`})
	f.Fuzz(func(t *testing.T, text string) {
		c := w.store.WorkflowInstances()
		filter, err := c.Schema().ParseFilter([]byte(text), query.Limits{})
		if err == nil {
			_, err = c.Count(t.Context(), query.Scope{}, filter)
		}
		var invalid *query.InvalidError
		var limit *query.LimitError
		if err != nil {
			require.True(t, assert.ErrorAs(t, err, &invalid) || assert.ErrorAs(t, err, &limit), "%v", err)
		}
	})
}
