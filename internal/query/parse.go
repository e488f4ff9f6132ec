package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseMaxBytes bounds the JSON of a filter.
const parseMaxBytes = 256 << 10

// ParseFilter reads a filter from JSON, the form that REST takes:
//
//	{"status": {"in": ["RUNNING", "FAULTED"]},
//	 "start": {"gte": "2026-11-21T00:00:00Z"},
//	 "input": [{"path": "customer.id", "eq": "c-1"}, {"path": ["items", "0", "price"], "gt": 10}],
//	 "or": [{"name": {"like": "order%"}}, {"not": {"namespace": {"is_null": true}}}],
//	 "search": "refused card"}
//
// All members of an object must hold. A field takes an object of operators, or just a
// value, which stands for eq. A JSON field takes objects with a path, as a text with
// dots or as a list, or a list of such objects. Times are RFC 3339. Errors are
// *InvalidError and *LimitError; what the fields mean is checked when the filter is
// used.
func (s *Schema) ParseFilter(text []byte, limits Limits) (Filter, error) {
	limits = limits.withDefaults()
	if len(text) > parseMaxBytes {
		return nil, &LimitError{Limit: "filter_bytes", Max: parseMaxBytes, Got: len(text)}
	}
	if err := checkNesting(text, limits); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, invalid("", "invalid", "the filter is not JSON: %s", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("", "invalid", "the filter is not JSON: something follows it")
	}
	p := parser{schema: s, limits: limits}
	f, err := p.object(tree, "", 1)
	if err != nil {
		return nil, err
	}
	if a, ok := f.(And); ok && len(a) == 0 {
		return nil, nil
	}
	return f, nil
}

// checkNesting refuses trees deeper than any filter within the limits can be, before
// they are decoded.
func checkNesting(text []byte, limits Limits) error {
	// Each level of a filter is an object and a list; below them are operators, a list
	// of values, and a document.
	most := 2*limits.Depth + 64
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return &LimitError{Limit: "depth", Max: limits.Depth, Got: depth}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

type parser struct {
	schema *Schema
	limits Limits
	tests  int
}

// object reads an object whose members must all hold.
func (p *parser) object(node any, at string, depth int) (Filter, error) {
	members, ok := node.(map[string]any)
	if !ok {
		return nil, wrongType(at, "an object", node)
	}
	if depth > p.limits.Depth {
		return nil, &LimitError{Limit: "depth", Max: p.limits.Depth, Got: depth}
	}
	all := And{}
	for _, name := range slices.Sorted(maps.Keys(members)) { // sorted: the same filter is the same list
		parts, err := p.member(name, members[name], at+"/"+pointerPart(name), depth)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (p *parser) member(name string, node any, at string, depth int) ([]Filter, error) {
	switch name {
	case "and", "or":
		items, ok := node.([]any)
		if !ok {
			return nil, wrongType(at, "a list of filters", node)
		}
		parts := make([]Filter, len(items))
		for i, item := range items {
			var err error
			if parts[i], err = p.object(item, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return nil, err
			}
		}
		if name == "or" {
			return []Filter{Or(parts)}, nil
		}
		return []Filter{And(parts)}, nil
	case "not":
		inner, err := p.object(node, at, depth+1)
		return []Filter{Not{inner}}, err
	case "search":
		text, ok := node.(string)
		if !ok {
			return nil, wrongType(at, "a text", node)
		}
		return []Filter{Search{text}}, p.count()
	}
	f, ok := p.schema.Field(name)
	if !ok {
		return nil, invalid(at, "unknown_field", "is no field of %s, nor and, or, not, search: use %s", p.schema.Name,
			strings.Join(p.schema.names(func(Field) bool { return true }), ", "))
	}
	if f.Kind == JSON {
		return p.documents(f, node, at)
	}
	return p.operators(Test{Field: name}, f, node, at)
}

// documents reads the tests of a JSON field.
func (p *parser) documents(f Field, node any, at string) ([]Filter, error) {
	items, many := node.([]any)
	if !many {
		items = []any{node}
	}
	var all []Filter
	for i, item := range items {
		place := at
		if many {
			place += "/" + strconv.Itoa(i)
		}
		members, ok := item.(map[string]any)
		if !ok {
			return nil, wrongType(place, `an object such as {"path": "customer.id", "eq": "c-1"}`, item)
		}
		path, err := parsePath(members["path"], place+"/path")
		if err != nil {
			return nil, err
		}
		tests := maps.Clone(members)
		delete(tests, "path")
		parts, err := p.operators(Test{Field: f.Name, Path: path}, f, tests, place)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
	}
	return all, nil
}

func parsePath(node any, at string) ([]string, error) {
	switch path := node.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.Split(path, "."), nil
	case []any:
		parts := make([]string, len(path))
		for i, part := range path {
			switch part := part.(type) {
			case string:
				parts[i] = part
			case json.Number:
				parts[i] = part.String()
			default:
				return nil, wrongType(at+"/"+strconv.Itoa(i), "a text or a number", part)
			}
		}
		return parts, nil
	}
	return nil, wrongType(at, "a text or a list of texts", node)
}

// operators reads {"gte": 1, "lt": 5}, or a plain value, which stands for eq.
func (p *parser) operators(t Test, f Field, node any, at string) ([]Filter, error) {
	members, ok := node.(map[string]any)
	if !ok {
		members = map[string]any{string(Eq): node}
	}
	if len(members) == 0 {
		return nil, invalid(at, "invalid", "has no operator: use %s", opNames(f.Kind))
	}
	var all []Filter
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := p.count(); err != nil {
			return nil, err
		}
		place := at
		if ok {
			place += "/" + pointerPart(name)
		}
		t.Op = Op(name)
		if !slices.Contains(Ops(f.Kind), t.Op) {
			return nil, invalid(place, "unknown_operator", "is no operator of %s: use %s", f.Name, opNames(f.Kind))
		}
		var err error
		if t.Value, err = p.operand(t.Op, f, members[name], place); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (p *parser) operand(op Op, f Field, node any, at string) (any, error) {
	switch op {
	case IsNull, Exists:
		return node, nil
	case In:
		items, ok := node.([]any)
		if !ok {
			return nil, wrongType(at, "a list", node)
		}
		if len(items) > p.limits.InValues {
			return nil, &LimitError{Limit: "in_values", Max: p.limits.InValues, Got: len(items)}
		}
		values := make([]any, len(items))
		for i, item := range items {
			var err error
			if values[i], err = scalar(f, item, at+"/"+strconv.Itoa(i)); err != nil {
				return nil, err
			}
		}
		return values, nil
	default:
		return scalar(f, node, at)
	}
}

// scalar turns texts into times where a field wants them; the rest is checked when the
// filter is used.
func scalar(f Field, node any, at string) (any, error) {
	if f.Kind != Time {
		if f.Kind == JSON {
			return node, nil
		}
		switch node.(type) {
		case nil:
			return nil, invalid(at, "wrong_type", "must not be null: use is_null")
		case map[string]any, []any:
			return nil, wrongType(at, "a single value", node)
		}
		return node, nil
	}
	text, ok := node.(string)
	if !ok {
		return nil, wrongType(at, "a time as text, RFC 3339", node)
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, invalid(at, "wrong_type", "%q is not a time of RFC 3339, such as 2026-11-21T15:04:05Z", clip(text))
	}
	return t, nil
}

func (p *parser) count() error {
	if p.tests++; p.tests > p.limits.Conditions {
		return &LimitError{Limit: "conditions", Max: p.limits.Conditions, Got: p.tests}
	}
	return nil
}

// ParseOrder reads an order such as "-start,name": fields by name, descending ones with
// a minus.
func ParseOrder(text string) ([]Order, error) {
	if text == "" {
		return nil, nil
	}
	var order []Order
	for part := range strings.SplitSeq(text, ",") {
		name, descending := strings.CutPrefix(strings.TrimSpace(part), "-")
		if name == "" {
			return nil, invalid("", "invalid", "the order names no field in %q", clip(text))
		}
		order = append(order, Order{Field: name, Descending: descending})
	}
	return order, nil
}

// String writes an order as ParseOrder reads it.
func (o Order) String() string {
	if o.Descending {
		return "-" + o.Field
	}
	return o.Field
}
