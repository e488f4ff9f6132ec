package query

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// compiler turns a filter into a condition. It keeps the budget.
type compiler struct {
	schema *Schema
	limits Limits
	st     *statement
	tests  int
}

// compile returns the condition of a filter, "" for none. Errors are *InvalidError and
// *LimitError.
//
// A condition may be unknown (NULL) where a field has no value; And, Or and WHERE take
// that for false, and Not says IS NOT TRUE, which makes it the complement.
func compile(schema *Schema, limits Limits, st *statement, f Filter) (string, error) {
	if f == nil {
		return "", nil
	}
	c := &compiler{schema: schema, limits: limits, st: st}
	return c.node(f, "", 1)
}

func (c *compiler) node(f Filter, at string, depth int) (string, error) {
	if depth > c.limits.Depth {
		return "", &LimitError{Limit: "depth", Max: c.limits.Depth, Got: depth}
	}
	switch f := f.(type) {
	case And:
		return c.all(f, at+"/and", " AND ", "true", depth)
	case Or:
		return c.all(f, at+"/or", " OR ", "false", depth)
	case Not:
		inner, err := c.node(f.Filter, at+"/not", depth+1)
		return "(" + inner + ") IS NOT TRUE", err
	case Test:
		if err := c.count(); err != nil {
			return "", err
		}
		return c.test(f, at+"/"+pointerPart(f.Field))
	case Search:
		if err := c.count(); err != nil {
			return "", err
		}
		return c.search(f, at+"/search")
	case nil:
		return "", invalid(at, "invalid", "has an empty part")
	}
	return "", invalid(at, "invalid", "is a filter of an unknown type %T", f)
}

func (c *compiler) count() error {
	if c.tests++; c.tests > c.limits.Conditions {
		return &LimitError{Limit: "conditions", Max: c.limits.Conditions, Got: c.tests}
	}
	return nil
}

func (c *compiler) all(parts []Filter, at, operator, none string, depth int) (string, error) {
	if len(parts) == 0 {
		return none, nil
	}
	if len(parts) > c.limits.Conditions {
		return "", &LimitError{Limit: "conditions", Max: c.limits.Conditions, Got: len(parts)}
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		var err error
		if texts[i], err = c.node(part, at+"/"+strconv.Itoa(i), depth+1); err != nil {
			return "", err
		}
	}
	return "(" + strings.Join(texts, operator) + ")", nil
}

func (c *compiler) test(t Test, at string) (string, error) {
	f, ok := c.schema.Field(t.Field)
	if !ok {
		return "", invalid(at, "unknown_field", "is no field of %s: use %s", c.schema.Name,
			strings.Join(c.schema.names(func(Field) bool { return true }), ", "))
	}
	if !slices.Contains(Ops(f.Kind), t.Op) {
		return "", invalid(at, "unknown_operator", "does not take %q: a field of kind %s takes %s", clip(string(t.Op)), f.Kind, opNames(f.Kind))
	}
	if f.Kind == JSON {
		return c.document(t, at)
	}
	if len(t.Path) > 0 {
		return "", invalid(at, "invalid", "has no parts to lead a path into")
	}
	column := c.schema.columns[f.Name]
	switch t.Op {
	case IsNull:
		yes, ok := t.Value.(bool)
		if !ok {
			return "", wrongType(at, "true or false", t.Value)
		}
		return isNull(column, yes), nil
	case In:
		return c.in(f, column, t.Value, at)
	default:
	}
	value, err := c.value(f, t.Value, at)
	if err != nil {
		return "", err
	}
	return c.compare(f, column, t.Op, value, at)
}

// compare compares a column with a checked value.
func (c *compiler) compare(f Field, column string, op Op, value any, at string) (string, error) {
	switch op {
	case Eq:
		if yes, ok := value.(bool); ok {
			if yes {
				return column, nil
			}
			return column + " IS FALSE", nil
		}
		return column + " = " + c.st.typed(f.Kind, value), nil
	case Ne:
		return column + " IS DISTINCT FROM " + c.st.typed(f.Kind, value), nil
	case Like, ILike, Prefix:
		return c.like(column, op, value.(string), at)
	default:
	}
	if f.Kind == Text {
		// Bytes, whatever the collation of the column.
		column += ` COLLATE "C"`
	}
	return column + " " + rangeOperator(op) + " " + c.st.typed(f.Kind, value), nil
}

func rangeOperator(op Op) string {
	switch op {
	case Gt:
		return ">"
	case Gte:
		return ">="
	case Lt:
		return "<"
	default:
		return "<="
	}
}

// like compares a text with a pattern. A pattern costs at most its length times that
// of the text: PostgreSQL gives up the whole match as soon as what follows a % is not
// found in the rest of the text, instead of trying later places of earlier ones. The
// limits keep that product small.
func (c *compiler) like(column string, op Op, pattern, at string) (string, error) {
	if op == Prefix {
		return column + " ^@ " + c.st.typed(Text, pattern), nil
	}
	if n := len(pattern); n > c.limits.PatternBytes {
		return "", &LimitError{Limit: "pattern_bytes", Max: c.limits.PatternBytes, Got: n}
	}
	wildcards, escaped := 0, false
	for _, r := range pattern {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '%':
			wildcards++
		}
	}
	if escaped {
		return "", invalid(at, "invalid", `ends with \, which takes the meaning from a character that is not there: write \\`)
	}
	if wildcards > c.limits.Wildcards {
		return "", &LimitError{Limit: "wildcards", Max: c.limits.Wildcards, Got: wildcards}
	}
	operator := " LIKE "
	if op == ILike {
		operator = " ILIKE "
	}
	return column + operator + c.st.typed(Text, pattern), nil
}

func (c *compiler) in(f Field, column string, value any, at string) (string, error) {
	list, err := c.list(value, at)
	if err != nil {
		return "", err
	}
	values := make([]any, len(list))
	for i, v := range list {
		if values[i], err = c.value(f, v, at+"/"+strconv.Itoa(i)); err != nil {
			return "", err
		}
	}
	if len(values) == 1 { // which an index serves in the order of the list
		return column + " = " + c.st.typed(f.Kind, values[0]), nil
	}
	return column + " = ANY(" + c.st.array(f.Kind, values) + ")", nil
}

// list checks the value of an In.
func (c *compiler) list(value any, at string) ([]any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, wrongType(at, "a list", value)
	}
	if len(list) > c.limits.InValues {
		return nil, &LimitError{Limit: "in_values", Max: c.limits.InValues, Got: len(list)}
	}
	return list, nil
}

func (c *compiler) search(s Search, at string) (string, error) {
	switch words := len(strings.Fields(s.Text)); {
	case !c.schema.Searchable:
		return "", invalid(at, "unknown_field", "is not possible on %s", c.schema.Name)
	case len(s.Text) > c.limits.SearchBytes:
		return "", &LimitError{Limit: "search_bytes", Max: c.limits.SearchBytes, Got: len(s.Text)}
	case words > c.limits.SearchWords:
		return "", &LimitError{Limit: "search_words", Max: c.limits.SearchWords, Got: words}
	case words == 0:
		return "", invalid(at, "invalid", "has no words")
	case !storable(s.Text):
		return "", invalid(at, "invalid", "is not text")
	}
	return c.schema.search + " @@ websearch_to_tsquery('simple', " + c.st.typed(Text, s.Text) + ")", nil
}

func isNull(expression string, yes bool) string {
	if yes {
		return expression + " IS NULL"
	}
	return expression + " IS NOT NULL"
}

func invalid(pointer, code, format string, args ...any) *InvalidError {
	return &InvalidError{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)}
}

func wrongType(at, want string, got any) *InvalidError {
	return invalid(at, "wrong_type", "must be %s, not %s", want, typeName(got))
}

// typeName says what a value is in the words of JSON.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case int, int32, int64, float64, json.Number:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a value of type %T", v)
}

// pointerPart escapes a name for a JSON pointer.
func pointerPart(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(clip(name), "~", "~0"), "/", "~1")
}

func opNames(k Kind) string {
	var names []string
	for _, op := range Ops(k) {
		names = append(names, string(op))
	}
	return strings.Join(names, ", ")
}
