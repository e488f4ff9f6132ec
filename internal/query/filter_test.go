package query_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

// zoo is a world with instances a to f that differ in every kind of field; e has a
// name only and f is a placeholder.
func zoo(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	row := func(id, name, status string, minute, code int, input, output string) {
		w.workflow(id, map[string]any{
			"name": name, "namespace": "acme", "status": status, "start": noon().Add(time.Duration(minute) * time.Minute),
			"end": noon().Add(time.Duration(minute+10) * time.Minute), "error_status": code, "events_future": id == "b",
			"input": input, "output": output,
		})
	}
	row("a", "order", "COMPLETED", 1, 0, `{"customer":{"id":"c-1","vip":true},"total":10,"items":[{"sku":"x"},{"sku":"y"}],"note":null}`, `"done"`)
	row("b", "order_2", "FAULTED", 2, 500, `{"customer":{"id":"c-2","vip":false},"total":9.5,"items":[],"7":"seven"}`, `42`)
	row("c", "Order%", "RUNNING", 3, 404, `{"customer":"c-1","total":"10","items":{"0":{"sku":"x"}}}`, `[1,2,{"a":3}]`)
	row("d", `ship\ment`, "COMPLETED", 4, -1, `[{"customer":{"id":"c-1"}}]`, `null`)
	w.workflow("e", map[string]any{"name": "bare"})
	w.workflow("f", nil)
	return w
}

func selected(t testing.TB, w *world, f query.Filter) string {
	t.Helper()
	found := ids(t, w.store.WorkflowInstances(), query.Request{Filter: f, Order: []query.Order{{Field: "id"}}})
	return strings.Join(found, "")
}

func TestFiltersOfPlainFields(t *testing.T) {
	t.Parallel()
	w := zoo(t)
	at := func(minute int) time.Time { return noon().Add(time.Duration(minute) * time.Minute) }
	type status string
	for _, tc := range []struct {
		field string
		op    query.Op
		value any
		want  string
	}{
		{"name", query.Eq, "order", "a"},
		{"name", query.Eq, "ORDER", ""},
		{"name", query.Ne, "order", "bcdef"},
		{"name", query.In, []any{"order", "bare", "nobody"}, "ae"},
		{"name", query.In, []any{}, ""},
		{"name", query.Like, "order%", "ab"},
		{"name", query.Like, "order_2", "b"},
		{"name", query.Like, "order__", "b"},
		{"name", query.Like, `%\%`, "c"},
		{"name", query.Like, `ship\\ment`, "d"},
		{"name", query.Like, "%", "abcde"},
		{"name", query.Like, "", ""},
		{"name", query.ILike, "ORDER%", "abc"},
		{"name", query.Prefix, "order", "ab"},
		{"name", query.Prefix, "Order%", "c"},
		{"name", query.Prefix, "%", ""},
		{"name", query.Prefix, "", "abcde"},
		{"name", query.Gt, "order", "bd"},
		{"name", query.Gte, "order", "abd"},
		{"name", query.Lt, "order", "ce"},
		{"name", query.Lte, "order", "ace"},
		{"name", query.IsNull, true, "f"},
		{"name", query.IsNull, false, "abcde"},
		{"status", query.Eq, "COMPLETED", "ad"},
		{"status", query.Eq, status("FAULTED"), "b"},
		{"status", query.Ne, "COMPLETED", "bcef"},
		{"status", query.In, []any{"FAULTED", status("RUNNING")}, "bc"},
		{"status", query.Like, "%ED", "abd"},
		{"status", query.IsNull, true, "ef"},
		{"error_status", query.Eq, 500, "b"},
		{"error_status", query.Ne, 500, "acdef"},
		{"error_status", query.In, []any{500, int64(404), json.Number("0")}, "abc"},
		{"error_status", query.Gt, 0, "bc"},
		{"error_status", query.Gte, int64(404), "bc"},
		{"error_status", query.Lt, 0, "d"},
		{"error_status", query.Lte, 0, "ad"},
		{"error_status", query.Lt, int64(1) << 60, "abcd"},
		{"error_status", query.Eq, int64(1) << 60, ""},
		{"error_status", query.IsNull, true, "ef"},
		{"start", query.Eq, at(1), "a"},
		{"start", query.Eq, at(1).In(time.FixedZone("", 7200)), "a"},
		{"start", query.Ne, at(1), "bcdef"},
		{"start", query.In, []any{at(1), at(4)}, "ad"},
		{"start", query.Gt, at(2), "cd"},
		{"start", query.Gte, at(2), "bcd"},
		{"start", query.Lt, at(2), "a"},
		{"start", query.Lte, at(2), "ab"},
		{"start", query.IsNull, true, "ef"},
		{"events_future", query.Eq, true, "b"},
		{"events_future", query.Eq, false, "acdef"},
		{"events_future", query.Ne, true, "acdef"},
		{"placeholder", query.Eq, true, "f"},
		{"placeholder", query.Eq, false, "abcde"},
		{"duration_millis", query.Eq, 600_000, "abcd"},
		{"duration_millis", query.Gt, 600_000, ""},
		{"id", query.In, []any{"a", "f"}, "af"},
	} {
		f := query.Test{Field: tc.field, Op: tc.op, Value: tc.value}
		assert.Equal(t, tc.want, selected(t, w, f), "%s %s %v", tc.field, tc.op, tc.value)
		complements(t, w, f, tc.want)
	}
}

// complements holds that a filter and its Not share the rows out.
func complements(t testing.TB, w *world, f query.Filter, holds string) {
	t.Helper()
	rest := strings.Map(func(r rune) rune {
		if strings.ContainsRune(holds, r) {
			return -1
		}
		return r
	}, "abcdef")
	assert.Equal(t, rest, selected(t, w, query.Not{Filter: f}), "not %v", f)
	assert.Equal(t, holds, selected(t, w, query.Not{Filter: query.Not{Filter: f}}), "not not %v", f)
}

func TestFiltersOfDocuments(t *testing.T) {
	t.Parallel()
	w := zoo(t)
	for _, tc := range []struct {
		field, path string
		op          query.Op
		value       any
		want        string
	}{
		{"input", "customer.id", query.Eq, "c-1", "a"},
		{"input", "customer.id", query.Ne, "c-1", "bcdef"},
		{"input", "customer.vip", query.Eq, false, "b"},
		{"input", "customer", query.Eq, json.RawMessage(`{"vip":true,"id":"c-1"}`), "a"},
		{"input", "customer", query.Eq, json.RawMessage(`{"id":"c-1"}`), ""},
		{"input", "customer", query.Contains, json.RawMessage(`{"id":"c-1"}`), "a"},
		{"input", "customer", query.Eq, map[string]any{"vip": false, "id": "c-2"}, "b"},
		{"input", "items", query.Eq, json.RawMessage(`[]`), "b"},
		{"input", "items", query.Contains, []any{map[string]any{"sku": "y"}}, "a"},
		{"input", "items.0.sku", query.Eq, "x", "ac"},
		{"input", "items.1.sku", query.Eq, "y", "a"},
		{"input", "items.-1.sku", query.Eq, "y", "a"},
		{"input", "0.customer.id", query.Eq, "c-1", "d"},
		{"input", "7", query.Eq, "seven", "b"},
		{"input", "total", query.Eq, 10, "a"},
		{"input", "total", query.Eq, json.Number("10.0"), "a"},
		{"input", "total", query.Eq, "10", "c"},
		{"input", "total", query.In, []any{10, "10"}, "ac"},
		{"input", "total", query.In, many(9.5, 20), "b"},
		{"input", "total", query.In, []any{}, ""},
		{"input", "total", query.Gt, 9, "ab"},
		{"input", "total", query.Gte, 10, "a"},
		{"input", "total", query.Lt, 10, "b"},
		{"input", "total", query.Lte, 1e9, "ab"},
		{"input", "total", query.Lte, "9", "c"},
		{"input", "customer.id", query.Gt, "c-1", "b"},
		{"input", "customer.id", query.Like, "c-_", "ab"},
		{"input", "customer.id", query.ILike, "C-1", "a"},
		{"input", "customer.id", query.Prefix, "c-2", "b"},
		{"input", "total", query.Like, "1%", "c"},
		{"input", "note", query.Eq, nil, "a"},
		{"input", "note", query.Exists, true, "a"},
		{"input", "note", query.IsNull, false, ""},
		{"input", "customer.id", query.Exists, true, "ab"},
		{"input", "customer.id", query.Exists, false, "cdef"},
		{"input", "customer.id", query.IsNull, true, "cdef"},
		{"input", "", query.IsNull, true, "ef"},
		{"input", "", query.Contains, json.RawMessage(`{"total":10}`), "a"},
		{"output", "", query.Eq, "done", "a"},
		{"output", "", query.Eq, 42, "b"},
		{"output", "", query.Gt, 41, "b"},
		{"output", "", query.Eq, []any{1, 2, map[string]any{"a": 3}}, "c"},
		{"output", "", query.Eq, 1, ""},
		{"output", "", query.Eq, nil, "d"},
		{"output", "", query.IsNull, true, "def"},
		{"output", "", query.Exists, true, "abcd"},
		{"output", "", query.Like, "do%", "a"},
		{"output", "", query.In, []any{42, "done"}, "ab"},
	} {
		var path []string
		if tc.path != "" {
			path = strings.Split(tc.path, ".")
		}
		f := query.Test{Field: tc.field, Path: path, Op: tc.op, Value: tc.value}
		assert.Equal(t, tc.want, selected(t, w, f), "%s %s %s %v", tc.field, tc.path, tc.op, tc.value)
		complements(t, w, f, tc.want)
	}
}

// many returns a list of n values, of which one is v.
func many(v any, n int) []any {
	list := []any{v}
	for i := 1; i < n; i++ {
		list = append(list, "other")
	}
	return list
}

func TestFiltersCombine(t *testing.T) {
	t.Parallel()
	w := zoo(t)
	name := func(v string) query.Filter { return query.Test{Field: "name", Op: query.Eq, Value: v} }
	order, bare := name("order"), name("bare")
	started := query.Test{Field: "start", Op: query.IsNull, Value: false}
	for _, tc := range []struct {
		filter query.Filter
		want   string
	}{
		{nil, "abcdef"},
		{query.And{}, "abcdef"},
		{query.Or{}, ""},
		{query.Not{Filter: query.And{}}, ""},
		{query.Or{order, bare}, "ae"},
		{query.And{query.Or{order, bare}, started}, "a"},
		{query.And{order, bare}, ""},
		{query.Not{Filter: query.Or{order, started}}, "ef"},
		{query.Not{Filter: query.And{order, started}}, "bcdef"},
		{query.And{query.Not{Filter: order}, query.Not{Filter: bare}, query.Or{query.And{started}}}, "bcd"},
	} {
		assert.Equal(t, tc.want, selected(t, w, tc.filter), "%v", tc.filter)
	}
}

func TestSearchFindsWordsOfNamesErrorsAndDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.workflow("a", map[string]any{"name": "Order processing", "input": `{"customer":"Ann Miller","sku":"ORD-789"}`})
	w.workflow("b", map[string]any{"name": "refund", "error_title": "Card refused", "error_detail": "the bank's card was refused twice"})
	w.workflow("c", map[string]any{"name": "ship", "output": `{"to":["Miller & Sons", 4711]}`})
	w.workflow("d", map[string]any{"input": `{"big":"` + strings.Repeat("word ", 100_000) + `"}`})
	w.task("a", "do/0", map[string]any{"task_name": "charge card"})
	for text, want := range map[string]string{
		"miller":              "ac",
		"Miller order":        "a",
		`"card was refused"`:  "b",
		`"refused card"`:      "",
		"miller -order":       "c",
		"refund or ship":      "bc",
		"4711":                "c",
		"ORD-789":             "a",
		"customer":            "", // the name of a member is not a word
		"mill":                "",
		"word":                "d",
		"' & | ! ( ) :* <->a": "abcd", // only the -a means something
		`"`:                   "",
	} {
		assert.Equal(t, want, selected(t, w, query.Search{Text: text}), text)
	}
	assert.Equal(t, "b", selected(t, w, query.And{query.Search{Text: "card"}, query.Test{Field: "name", Op: query.Eq, Value: "refund"}}))
	assert.Len(t, ids(t, w.store.TaskInstances(), query.Request{Filter: query.Search{Text: "charge"}}), 1)
	_, err := w.store.Executions().Count(t.Context(), query.Scope{}, query.Search{Text: "x"})
	require.NoError(t, err)
}

func TestHostileTextSelectsWhatItSays(t *testing.T) {
	t.Parallel()
	w := zoo(t)
	for _, text := range []string{
		`'; DROP TABLE workflow_instances; --`, `" OR 1=1 --`, `$1`, `%s %d %!`, `\`, `''`, "a\u2028b", `{"a":1}`, `}'::jsonb`, `{,}`, `\u0000`,
	} {
		for _, f := range []query.Filter{
			query.Test{Field: "name", Op: query.Eq, Value: text},
			query.Test{Field: "name", Op: query.In, Value: []any{text}},
			query.Test{Field: "name", Op: query.Prefix, Value: text},
			query.Test{Field: "input", Path: []string{text}, Op: query.Eq, Value: text},
			query.Test{Field: "input", Path: []string{text, "1", text}, Op: query.Eq, Value: text},
			query.Test{Field: "input", Path: []string{text}, Op: query.In, Value: []any{text, text}},
			query.Test{Field: "input", Path: []string{text}, Op: query.Like, Value: `x` + strings.ReplaceAll(text, `\`, `\\`)},
			query.Test{Field: "input", Path: []string{text}, Op: query.Gt, Value: text},
			query.Test{Field: "input", Path: []string{text}, Op: query.Contains, Value: map[string]any{text: text}},
			query.Search{Text: "zz " + text},
		} {
			assert.Empty(t, selected(t, w, f), "%v", f)
		}
	}
	for _, name := range []string{"name; DROP", `name" = '' --`, "", "active_status", "ctid"} {
		_, err := w.store.WorkflowInstances().List(t.Context(), query.Scope{}, query.Request{Filter: query.Test{Field: name, Op: query.Eq, Value: "x"}})
		invalid(t, err, "unknown_field")
		_, err = w.store.WorkflowInstances().List(t.Context(), query.Scope{}, query.Request{Order: []query.Order{{Field: name}}})
		invalid(t, err, "unknown_field")
		_, err = w.store.WorkflowInstances().Aggregate(t.Context(), query.Scope{}, query.Aggregate{GroupBy: []string{name}})
		invalid(t, err, "unknown_field")
	}
	assert.Equal(t, "abcdef", selected(t, w, nil))
}

func invalid(t testing.TB, err error, code string) {
	t.Helper()
	var wrong *query.InvalidError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, code, wrong.Code, wrong.Error())
}

func TestWrongValuesAreNamed(t *testing.T) {
	t.Parallel()
	store := query.NewStore(nil, query.Limits{})
	for _, tc := range []struct {
		test query.Test
		code string
	}{
		{query.Test{Field: "name", Op: query.Eq, Value: 1}, "wrong_type"},
		{query.Test{Field: "name", Op: query.Eq, Value: nil}, "wrong_type"},
		{query.Test{Field: "name", Op: query.Eq, Value: json.Number("1")}, "wrong_type"},
		{query.Test{Field: "name", Op: query.Eq, Value: "a\x00"}, "invalid"},
		{query.Test{Field: "name", Op: query.Eq, Value: "\xff"}, "invalid"},
		{query.Test{Field: "name", Op: query.In, Value: "x"}, "wrong_type"},
		{query.Test{Field: "name", Op: query.In, Value: []any{1}}, "wrong_type"},
		{query.Test{Field: "name", Op: query.IsNull, Value: "yes"}, "wrong_type"},
		{query.Test{Field: "name", Op: query.Like, Value: `a\`}, "invalid"},
		{query.Test{Field: "name", Op: query.Exists, Value: true}, "unknown_operator"},
		{query.Test{Field: "name", Op: "regex", Value: "x"}, "unknown_operator"},
		{query.Test{Field: "name", Path: []string{"a"}, Op: query.Eq, Value: "x"}, "invalid"},
		{query.Test{Field: "status", Op: query.Eq, Value: "DONE"}, "invalid"},
		{query.Test{Field: "status", Op: query.Gt, Value: "COMPLETED"}, "unknown_operator"},
		{query.Test{Field: "error_status", Op: query.Eq, Value: "500"}, "wrong_type"},
		{query.Test{Field: "error_status", Op: query.Eq, Value: json.Number("1.5")}, "wrong_type"},
		{query.Test{Field: "error_status", Op: query.Eq, Value: json.Number("9223372036854775808")}, "wrong_type"},
		{query.Test{Field: "start", Op: query.Eq, Value: "2026-01-01"}, "wrong_type"},
		{query.Test{Field: "start", Op: query.Eq, Value: time.Time{}.AddDate(-5000, 0, 0)}, "invalid"},
		{query.Test{Field: "placeholder", Op: query.Eq, Value: "true"}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Eq, Value: "a\x00"}, "invalid"},
		{query.Test{Field: "input", Op: query.Eq, Value: json.RawMessage(`{"a":"\u0000"}`)}, "invalid"},
		{query.Test{Field: "input", Op: query.Eq, Value: json.RawMessage(`{"\u0000":1}`)}, "invalid"},
		{query.Test{Field: "input", Op: query.Eq, Value: json.RawMessage(`{`)}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Eq, Value: json.Number("1e999999999")}, "invalid"},
		{query.Test{Field: "input", Op: query.Eq, Value: json.Number("no")}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Gt, Value: true}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Gt, Value: json.RawMessage(`1`)}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Like, Value: 1}, "wrong_type"},
		{query.Test{Field: "input", Op: query.Exists, Value: nil}, "wrong_type"},
		{query.Test{Field: "input", Path: []string{"\x00"}, Op: query.Exists, Value: true}, "invalid"},
		{query.Test{Field: "input", Op: query.Eq, Value: make(chan int)}, "wrong_type"},
	} {
		_, err := store.WorkflowInstances().Count(t.Context(), query.Scope{}, tc.test)
		invalid(t, err, tc.code)
		_, err = store.WorkflowInstances().Count(t.Context(), query.Scope{}, query.Not{Filter: query.Or{tc.test}})
		invalid(t, err, tc.code)
	}
}

func TestEveryLimitIsNamed(t *testing.T) {
	t.Parallel()
	store := query.NewStore(nil, query.Limits{})
	long := func(n int) string { return strings.Repeat("a", n) }
	one := query.Test{Field: "name", Op: query.IsNull, Value: true}
	deep := query.Filter(one)
	for range 20 {
		deep = query.Not{Filter: deep}
	}
	filters := map[string]query.Filter{
		"depth":          deep,
		"conditions":     query.And(slices.Repeat([]query.Filter{one}, 65)),
		"in_values":      query.Test{Field: "name", Op: query.In, Value: many("x", 1001)},
		"text_bytes":     query.Test{Field: "name", Op: query.Eq, Value: long(5000)},
		"pattern_bytes":  query.Test{Field: "name", Op: query.Like, Value: long(300)},
		"wildcards":      query.Test{Field: "name", Op: query.Like, Value: strings.Repeat("%a", 9)},
		"path_depth":     query.Test{Field: "input", Path: slices.Repeat([]string{"a"}, 17), Op: query.Exists, Value: true},
		"document_bytes": query.Test{Field: "input", Op: query.Eq, Value: long(20_000)},
		"search_bytes":   query.Search{Text: long(600)},
		"search_words":   query.Search{Text: strings.Repeat("a ", 17)},
	}
	for name, f := range filters {
		_, err := store.WorkflowInstances().Count(t.Context(), query.Scope{}, f)
		limited(t, err, name)
	}
	nested := query.Or{query.And(slices.Repeat([]query.Filter{one}, 40)), query.And(slices.Repeat([]query.Filter{one}, 40))}
	_, err := store.WorkflowInstances().Count(t.Context(), query.Scope{}, nested)
	limited(t, err, "conditions")
	for name, req := range map[string]query.Request{
		"page_size": {Page: query.Page{First: 1001}},
		"offset":    {Page: query.Page{Offset: 100_001}},
		"orders":    {Order: []query.Order{{Field: "id"}, {Field: "name"}, {Field: "start"}, {Field: "end"}}},
	} {
		_, err := store.WorkflowInstances().List(t.Context(), query.Scope{}, req)
		limited(t, err, name)
	}
	_, err = store.WorkflowInstances().Aggregate(t.Context(), query.Scope{}, query.Aggregate{GroupBy: []string{"name", "status", "version"}})
	limited(t, err, "group_by")
	_, err = store.WorkflowInstances().Aggregate(t.Context(), query.Scope{}, query.Aggregate{Limit: 1001})
	limited(t, err, "groups")
	keys := make([]string, 1001)
	for i := range keys {
		keys[i] = long(i + 1)
	}
	_, err = store.WorkflowInstances().Many(t.Context(), query.Scope{}, keys)
	limited(t, err, "keys")
	_, err = store.TasksOf(t.Context(), query.Scope{}, keys, query.Children{})
	limited(t, err, "keys")
	_, err = store.TasksOf(t.Context(), query.Scope{}, keys[:500], query.Children{})
	limited(t, err, "child_rows")
	_, err = store.TasksOf(t.Context(), query.Scope{}, keys[:1], query.Children{Limit: 1001})
	limited(t, err, "page_size")
}

func limited(t testing.TB, err error, name string) {
	t.Helper()
	var limit *query.LimitError
	require.ErrorAs(t, err, &limit, name)
	assert.Equal(t, name, limit.Limit)
	assert.Greater(t, limit.Got, limit.Max)
	assert.Contains(t, limit.Error(), name)
}
