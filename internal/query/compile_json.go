package query

import (
	"encoding/json"
	"strconv"
	"strings"
)

// containmentsMax is how many alternatives of an In are looked up one by one in an
// index; with more, every document is read.
const containmentsMax = 16

// document compiles a test of a JSON field.
//
// What the index can answer is said as containment (@>) of the value wrapped in the
// path: it is what a GIN index of class jsonb_path_ops finds. Containment is the same
// as equality for scalars under names of members; for arrays, objects and the
// elements of arrays it is only necessary, and the exact comparison stands beside it.
func (c *compiler) document(t Test, at string) (string, error) {
	if len(t.Path) > c.limits.PathDepth {
		return "", &LimitError{Limit: "path_depth", Max: c.limits.PathDepth, Got: len(t.Path)}
	}
	for _, part := range t.Path {
		if len(part) > c.limits.TextBytes {
			return "", &LimitError{Limit: "text_bytes", Max: c.limits.TextBytes, Got: len(part)}
		}
		if !storable(part) {
			return "", invalid(at, "invalid", "has a path that is not UTF-8, or has a zero byte")
		}
	}
	d := &document{compiler: c, column: c.schema.columns[t.Field], path: t.Path, at: at}
	switch t.Op {
	case Eq:
		return d.equal(t.Value)
	case Ne:
		equal, err := d.equal(t.Value)
		return "(" + equal + ") IS NOT TRUE", err
	case Contains:
		return d.contains(t.Value)
	case In:
		return d.in(t.Value)
	case IsNull, Exists:
		return d.null(t.Op, t.Value)
	case Like, ILike, Prefix:
		return d.like(t.Op, t.Value)
	default:
		return d.ranged(t.Op, t.Value)
	}
}

// document is a place in a JSON column.
type document struct {
	*compiler
	column string
	path   []string
	at     string
	// placeholder of the path, once it is an argument.
	pathArg string
}

// value is the expression of what the path leads to.
func (d *document) value() string {
	if len(d.path) == 0 {
		return d.column
	}
	return "(" + d.column + " #> " + d.arg() + ")"
}

// text is the same as text, without the quotes of JSON.
func (d *document) text() string {
	if len(d.path) == 0 {
		return "(" + d.column + " #>> '{}')"
	}
	return "(" + d.column + " #>> " + d.arg() + ")"
}

func (d *document) arg() string {
	if d.pathArg == "" {
		d.pathArg = d.st.arg(d.path) + "::text[]"
	}
	return d.pathArg
}

// named reports whether all parts of the path can only be names of members; a number
// may also be the index of an array.
func (d *document) named() bool {
	for _, part := range d.path {
		if _, err := strconv.Atoi(part); err == nil {
			return false
		}
	}
	return true
}

// wrap puts a value under the path.
func (d *document) wrap(raw string) string {
	var text strings.Builder
	for _, part := range d.path {
		name, _ := json.Marshal(part) // cannot fail: a text
		text.WriteString(`{` + string(name) + `:`)
	}
	return text.String() + raw + strings.Repeat("}", len(d.path))
}

func (d *document) equal(value any) (string, error) {
	raw, err := d.documentValue(value, true, d.at)
	if err != nil {
		return "", err
	}
	exact := func() string { return d.value() + " = " + d.st.typed(JSON, raw) }
	switch scalar := raw[0] != '{' && raw[0] != '['; {
	case !d.named():
		return exact(), nil
	case scalar && len(d.path) > 0:
		return d.column + " @> " + d.st.typed(JSON, d.wrap(raw)), nil
	default:
		return "(" + d.column + " @> " + d.st.typed(JSON, d.wrap(raw)) + " AND " + exact() + ")", nil
	}
}

func (d *document) contains(value any) (string, error) {
	raw, err := d.documentValue(value, true, d.at)
	if err != nil {
		return "", err
	}
	if d.named() {
		return d.column + " @> " + d.st.typed(JSON, d.wrap(raw)), nil
	}
	return d.value() + " @> " + d.st.typed(JSON, raw), nil
}

func (d *document) in(value any) (string, error) {
	list, err := d.list(value, d.at)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "false", nil
	}
	raws := make([]any, len(list))
	scalars := true
	for i, v := range list {
		raw, err := d.documentValue(v, true, d.at+"/"+strconv.Itoa(i))
		if err != nil {
			return "", err
		}
		raws[i] = raw
		scalars = scalars && raw[0] != '{' && raw[0] != '['
	}
	if len(raws) > containmentsMax || !scalars || !d.named() || len(d.path) == 0 {
		return d.value() + " = ANY(" + d.st.array(JSON, raws) + ")", nil
	}
	alternatives := make([]string, len(raws))
	for i, raw := range raws {
		alternatives[i] = d.column + " @> " + d.st.typed(JSON, d.wrap(raw.(string)))
	}
	return "(" + strings.Join(alternatives, " OR ") + ")", nil
}

func (d *document) null(op Op, value any) (string, error) {
	yes, ok := value.(bool)
	if !ok {
		return "", wrongType(d.at, "true or false", value)
	}
	if op == Exists {
		return isNull(d.value(), !yes), nil
	}
	// The text of a JSON null is NULL.
	return isNull(d.text(), yes), nil
}

func (d *document) like(op Op, value any) (string, error) {
	pattern, ok := textOf(value)
	if !ok {
		return "", wrongType(d.at, "a text", value)
	}
	if err := d.compiler.text(Field{Kind: Text}, pattern, d.at); err != nil {
		return "", err
	}
	like, err := d.compiler.like(d.text(), op, pattern, d.at)
	return "(jsonb_typeof(" + d.value() + ") = 'string' AND " + like + ")", err
}

// ranged compares with what has the same type. Numbers compare as numbers, texts in the
// order of the database.
func (d *document) ranged(op Op, value any) (string, error) {
	raw, err := d.documentValue(value, false, d.at)
	if err != nil {
		return "", err
	}
	kind := "number"
	switch raw[0] {
	case '"':
		kind = "string"
	case 't', 'f', 'n':
		return "", wrongType(d.at, "a text or a number", value)
	}
	return "(jsonb_typeof(" + d.value() + ") = '" + kind + "' AND " + d.value() + " " + rangeOperator(op) + " " + d.st.typed(JSON, raw) + ")", nil
}
