package graphql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/query"
)

// named is a field: as the schema calls it, and as package query does.
type named struct{ schema, query string }

// vocabulary says how the inputs of one collection are called in package query.
type vocabulary struct {
	// fields are those of the filter.
	fields []named
	// orders are those of the order, in the order in which several in one object
	// count.
	orders []named
	// start and end are what buckets of statistics go by, empty where there are none.
	start, end string
}

func workflowWords() vocabulary {
	return vocabulary{
		fields: []named{
			{"id", "id"}, {"name", "name"}, {"namespace", "namespace"}, {"version", "version"}, {"status", "status"},
			{"startTime", "start"}, {"endTime", "end"}, {"lastUpdate", "last_update"}, {"input", "input"}, {"output", "output"},
		},
		orders: []named{
			{"id", "id"}, {"name", "name"}, {"namespace", "namespace"}, {"version", "version"}, {"status", "status"},
			{"startTime", "start"}, {"endTime", "end"}, {"lastUpdate", "last_update"},
		},
		start: "start", end: "end",
	}
}

func taskWords() vocabulary {
	return vocabulary{
		fields: []named{
			{"id", "task_execution_id"}, {"workflowInstanceId", "instance_id"}, {"taskName", "task_name"},
			{"taskPosition", "task_position"}, {"status", "status"}, {"startTime", "start"}, {"endTime", "end"}, {"enter", "start"},
			{"exit", "end"}, {"input", "input"}, {"output", "output"}, {"inputArgs", "input"}, {"outputArgs", "output"},
		},
		orders: []named{
			{"id", "task_execution_id"}, {"taskName", "task_name"}, {"taskPosition", "task_position"}, {"status", "status"},
			{"startTime", "start"}, {"endTime", "end"}, {"enter", "start"}, {"exit", "end"},
		},
		start: "start", end: "end",
	}
}

func executionWords() vocabulary {
	return vocabulary{
		fields: []named{
			{"id", "id"}, {"tenant", "tenant"}, {"user", "user"}, {"name", "name"}, {"executor", "executor"},
			{"resourceClass", "resource_class"}, {"priority", "priority"}, {"concurrencyKey", "concurrency_key"},
			{"labels", "labels"}, {"origin", "origin"}, {"rerunOf", "rerun_of"}, {"state", "state"}, {"attempt", "attempt"},
			{"worker", "worker"}, {"requestedAt", "requested_at"}, {"startedAt", "started_at"}, {"finishedAt", "finished_at"},
			{"waitedMillis", "waited_millis"}, {"durationMillis", "duration_millis"}, {"exitCode", "exit_code"},
			{"reason", "reason"}, {"message", "message"},
		},
		orders: []named{
			{"id", "id"}, {"name", "name"}, {"state", "state"}, {"requestedAt", "requested_at"}, {"startedAt", "started_at"},
			{"finishedAt", "finished_at"}, {"waitedMillis", "waited_millis"}, {"durationMillis", "duration_millis"},
		},
		start: "requested_at", end: "finished_at",
	}
}

func podWords() vocabulary {
	return vocabulary{
		fields: []named{
			{"id", "id"}, {"executionId", "execution_id"}, {"namespace", "namespace"}, {"name", "name"}, {"phase", "phase"},
			{"node", "node"}, {"reason", "reason"}, {"attempt", "attempt"}, {"exitCode", "exit_code"},
			{"createdTime", "created_time"}, {"startedTime", "started_time"}, {"finishedTime", "finished_time"},
		},
		orders: []named{
			{"id", "id"}, {"createdTime", "created_time"}, {"startedTime", "started_time"}, {"finishedTime", "finished_time"},
		},
	}
}

func sagaWords() vocabulary {
	return vocabulary{
		fields: []named{
			{"id", "id"}, {"name", "name"}, {"businessKey", "business_key"}, {"status", "status"}, {"step", "step"},
			{"reason", "reason"}, {"startedTime", "started_time"}, {"finishedTime", "finished_time"},
		},
		orders: []named{
			{"id", "id"}, {"name", "name"}, {"status", "status"}, {"startedTime", "started_time"}, {"finishedTime", "finished_time"},
		},
	}
}

// filter reads a filter. What is null counts as not given, so that a client may
// leave a variable open. An empty filter is nil and selects everything.
func (v vocabulary) filter(in map[string]any) (query.Filter, error) {
	all, err := v.conditions(in)
	switch {
	case err != nil || len(all) == 0:
		return nil, err
	case len(all) == 1:
		return all[0], nil
	}
	return query.And(all), nil
}

func (v vocabulary) conditions(in map[string]any) ([]query.Filter, error) {
	var all []query.Filter
	for _, name := range slices.Sorted(maps.Keys(in)) {
		more, err := v.condition(name, in[name])
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (v vocabulary) condition(name string, value any) ([]query.Filter, error) {
	switch name {
	case "and", "or":
		return v.several(name, value)
	case "not":
		if in, ok := value.(map[string]any); ok && in != nil {
			f, err := v.filter(in)
			if f == nil {
				f = query.And{}
			}
			return []query.Filter{query.Not{Filter: f}}, err
		}
		return nil, nil
	case "search":
		if text, ok := value.(*string); ok && text != nil {
			return []query.Filter{query.Search{Text: *text}}, nil
		}
		return nil, nil
	}
	in, ok := value.(map[string]any)
	if !ok || in == nil {
		return nil, nil
	}
	if name == "error" {
		return errorTests(in)
	}
	for _, f := range v.fields {
		if f.schema == name {
			return tests(f.query, in)
		}
	}
	return nil, invalid("%s is not a field that can be filtered by", name)
}

// several reads the lists of and and or. An empty or selects nothing, as it does
// everywhere.
func (v vocabulary) several(name string, value any) ([]query.Filter, error) {
	list, ok := value.([]map[string]any)
	if !ok || list == nil {
		return nil, nil
	}
	parts := make([]query.Filter, len(list))
	for i, in := range list {
		f, err := v.filter(in)
		if err != nil {
			return nil, err
		}
		if f == nil {
			f = query.And{}
		}
		parts[i] = f
	}
	if name == "or" {
		return []query.Filter{query.Or(parts)}, nil
	}
	return parts, nil
}

func errorTests(in map[string]any) ([]query.Filter, error) {
	var all []query.Filter
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if conditions, ok := in[name].(map[string]any); ok {
			more, err := tests("error_"+name, conditions)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	return all, nil
}

// operators are the conditions of the schema, as package query calls them.
func operators() map[string]query.Op {
	return map[string]query.Op{
		"eq": query.Eq, "ne": query.Ne, "in": query.In, "like": query.Like, "ilike": query.ILike, "startsWith": query.Prefix,
		"gt": query.Gt, "gte": query.Gte, "lt": query.Lt, "lte": query.Lte, "isNull": query.IsNull, "exists": query.Exists,
		"contains": query.Contains,
	}
}

// tests reads the conditions on one field.
func tests(field string, in map[string]any) ([]query.Filter, error) {
	var all []query.Filter
	for _, name := range slices.Sorted(maps.Keys(in)) {
		switch value := in[name].(type) {
		case []map[string]any: // of JSON data: eq, a list of keys and values, and path
			for _, entry := range value {
				more, err := jsonTests(field, entry)
				if err != nil {
					return nil, err
				}
				all = append(all, more...)
			}
		default:
			test, err := compare(field, nil, name, value)
			if err != nil {
				return nil, err
			}
			if test != nil {
				all = append(all, test)
			}
		}
	}
	return all, nil
}

// jsonTests reads a condition inside of JSON data.
func jsonTests(field string, in map[string]any) ([]query.Filter, error) {
	if key, ok := in["key"].(string); ok {
		text, _ := in["value"].(string)
		return []query.Filter{query.Test{Field: field, Path: jsonPath(key), Op: query.In, Value: asWritten(text)}}, nil
	}
	path, _ := in["path"].(string)
	var all []query.Filter
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if name == "path" {
			continue
		}
		test, err := compare(field, jsonPath(path), name, in[name])
		if err != nil {
			return nil, err
		}
		if test != nil {
			all = append(all, test)
		}
	}
	if len(all) == 0 {
		return nil, invalid("the condition on %q says nothing", clip(path))
	}
	return all, nil
}

// jsonPath splits a path: a JSON pointer, or names with dots between them.
func jsonPath(text string) []string {
	pointer, found := strings.CutPrefix(text, "/")
	if !found {
		return strings.Split(text, ".")
	}
	parts := strings.Split(pointer, "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts
}

// asWritten returns the JSON values that are written as the text says: itself, and
// a number, true or false.
func asWritten(text string) []any {
	values := []any{text}
	if v, err := scalar(json.RawMessage(text)); err == nil && v != nil {
		if _, isText := v.(string); !isText {
			values = append(values, v)
		}
	}
	return values
}

// compare makes one test; nil for a value that is not given.
func compare(field string, path []string, name string, value any) (query.Filter, error) {
	op, known := operators()[name]
	if !known {
		return nil, invalid("%s is not a condition", name)
	}
	v, err := operand(value)
	if v == nil || err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok && (op == query.Like || op == query.ILike) {
		v = pattern(text)
	}
	return query.Test{Field: field, Path: path, Op: op, Value: v}, nil
}

// operand turns what gqlgen has read into what package query compares with; nil is
// what is not given.
func operand(value any) (any, error) {
	switch v := value.(type) {
	case *string:
		return deref(v), nil
	case *int:
		return deref(v), nil
	case *int64:
		return deref(v), nil
	case *bool:
		return deref(v), nil
	case *time.Time:
		return deref(v), nil
	case json.RawMessage:
		if v == nil {
			return nil, nil
		}
		return scalar(v)
	case []string:
		return list(v)
	case []int:
		return list(v)
	case []int64:
		return list(v)
	case []json.RawMessage:
		return list(v)
	case nil:
		return nil, nil
	}
	return nil, fmt.Errorf("a filter holds a %T", value)
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func list[T any](values []T) (any, error) {
	if values == nil {
		return nil, nil
	}
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
		if document, ok := any(v).(json.RawMessage); ok {
			one, err := scalar(document)
			if err != nil {
				return nil, err
			}
			out[i] = one
		}
	}
	return out, nil
}

// scalar reads a JSON text, number, true, false or null; objects and lists stay as
// they are.
func scalar(document json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("read JSON: more than one value")
	}
	switch v.(type) {
	case map[string]any, []any:
		return document, nil
	}
	return v, nil
}

// pattern lets * stand for any text, as % does; \* is a star.
func pattern(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			b.WriteByte(c)
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		case '*':
			b.WriteByte('%')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// order reads orders, one object after the other.
func (v vocabulary) order(in ...map[string]any) []query.Order {
	var out []query.Order
	for _, one := range in {
		for _, f := range v.orders {
			if direction, ok := one[f.schema].(*string); ok && direction != nil {
				out = append(out, query.Order{Field: f.query, Descending: *direction == "DESC"})
			}
		}
	}
	return out
}

func invalid(format string, args ...any) *query.InvalidError {
	return &query.InvalidError{Code: "invalid", Message: fmt.Sprintf(format, args...)}
}
