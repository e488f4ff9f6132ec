package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// template is a JSON value in whose strings there may be expressions. One of the fields is
// set: written where there are none.
type template struct {
	// pointer is where it stands in the definition.
	pointer string
	written json.RawMessage
	// whole is the expression of a string that is no more than one: its value is the value.
	whole *expression
	// parts are those of a string that is more than that.
	parts []part
	// members are those of an object, in their order; items those of a list.
	members []templateMember
	items   []*template
	object  bool
	// text says that what whole gives is wanted as a text.
	text bool
}

type templateMember struct {
	name  []byte // with its quotes
	value *template
}

// part is a piece of a string: an expression, or text.
type part struct {
	text       string
	expression *expression
}

// static says whether the template has no expressions.
func (t *template) static() bool { return t.written != nil }

// template compiles a valid JSON value. asText says of a pointer within the value whether
// a text is wanted there.
func (c *checker) template(pointer string, raw json.RawMessage, asText func(pointer string) bool) *template {
	t := &template{pointer: pointer}
	inner := func(name string, raw json.RawMessage) *template {
		name = "/" + strictjson.Escape(name)
		return c.template(pointer+name, raw, func(below string) bool { return asText(name + below) })
	}
	dynamic := false
	switch rawjson.First(raw) {
	case '"':
		t.text = asText("")
		c.templateText(t, rawjson.Unquote(raw[rawjson.Space(raw, 0):rawjson.EndOfText(raw, rawjson.Space(raw, 0))]))
		dynamic = t.whole != nil || len(t.parts) > 0
	case '{':
		t.object = true
		for name, member := range rawjson.Members(raw) {
			m := templateMember{name: name, value: inner(rawjson.Unquote(name), member)}
			t.members, dynamic = append(t.members, m), dynamic || !m.value.static()
		}
	case '[':
		i := 0
		for item := range rawjson.Items(raw) {
			element := inner(strconv.Itoa(i), item)
			t.items, dynamic = append(t.items, element), dynamic || !element.static()
			i++
		}
	}
	switch {
	case dynamic:
	case rawjson.First(raw) == '"':
		// "$${" has become "${".
		if t.written == nil {
			t.written = rawjson.Compact(nil, raw)
		}
	default:
		t.written = t.fixed(raw)
	}
	return t
}

// fixed returns a value without expressions.
func (t *template) fixed(raw json.RawMessage) json.RawMessage {
	if len(t.members) == 0 && len(t.items) == 0 {
		return rawjson.Compact(nil, raw)
	}
	// Nothing of it can fail.
	out, _ := t.appendJSON(context.Background(), nil, nil)
	return out
}

// templateText compiles a string.
func (c *checker) templateText(t *template, text string) {
	parts, fault := splitText(text)
	if fault != nil {
		fault.Pointer = t.pointer
		c.faults = append(c.faults, *fault)
		return
	}
	switch {
	case len(parts) == 1 && parts[0].expression == nil:
		t.written = rawjson.Quote(nil, parts[0].text)
	case len(parts) == 1:
		t.whole = parts[0].expression
	default:
		t.parts = parts
	}
}

// splitText takes a string apart: "${...}" is an expression, "$${" stands for "${".
func splitText(text string) (parts []part, fault *Fault) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	for {
		before, after, found := strings.Cut(text, "${")
		switch {
		case !found:
			literal.WriteString(text)
			if flush(); len(parts) == 0 {
				parts = []part{{}}
			}
			return parts, nil
		case strings.HasSuffix(before, "$"):
			literal.WriteString(before + "{")
			text = after
			continue
		}
		literal.WriteString(before)
		flush()
		end := endOfExpression(after)
		if end < 0 {
			return nil, &Fault{
				Code: CodeExpression, Message: "has an expression that does not end: its } is missing",
				Hint: "the text ${ is written $${",
			}
		}
		compiled, fault := compileExpression(after[:end])
		if fault != nil {
			return nil, fault
		}
		parts = append(parts, part{expression: compiled})
		text = after[end+1:]
	}
}

// endOfExpression returns where the } is that ends an expression, -1: nowhere.
func endOfExpression(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'', '`':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// expressions calls do for each expression below t.
func (t *template) expressions(do func(pointer string, x *expression)) {
	if t == nil {
		return
	}
	if t.whole != nil {
		do(t.pointer, t.whole)
	}
	for _, p := range t.parts {
		if p.expression != nil {
			do(t.pointer, p.expression)
		}
	}
	for _, m := range t.members {
		m.value.expressions(do)
	}
	for _, item := range t.items {
		item.expressions(do)
	}
}

// eval returns the value of a template. The error is a *MappingError that says where, or
// that the evaluation was ended from outside.
func (t *template) eval(ctx context.Context, s *scope) (value, error) {
	switch {
	case t.written != nil:
		return value{written: t.written}, nil
	case t.whole != nil:
		v, err := t.whole.eval(ctx, s)
		if err == nil && t.text && !v.null() {
			var text string
			text, err = v.text()
			v = value{made: text}
		}
		return v, t.at(err)
	case t.parts != nil:
		text, err := t.join(ctx, s)
		return value{made: text}, err
	}
	out, err := t.appendJSON(ctx, nil, s)
	return value{written: out}, err
}

// appendJSON appends the value as JSON.
func (t *template) appendJSON(ctx context.Context, out []byte, s *scope) ([]byte, error) {
	switch {
	case t.written != nil:
		return append(out, t.written...), nil
	case t.whole != nil, t.parts != nil:
		v, err := t.eval(ctx, s)
		if err != nil {
			return nil, err
		}
		out, err = v.appendJSON(out)
		return out, t.at(err)
	case t.object:
		out = append(out, '{')
		for i, m := range t.members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(out, m.name...), ':')
			var err error
			if out, err = m.value.appendJSON(ctx, out, s); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	}
	out = append(out, '[')
	for i, item := range t.items {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = item.appendJSON(ctx, out, s); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// join returns the text of a string that has expressions in it.
func (t *template) join(ctx context.Context, s *scope) (string, error) {
	var out strings.Builder
	for _, p := range t.parts {
		if p.expression == nil {
			out.WriteString(p.text)
			continue
		}
		v, err := p.expression.eval(ctx, s)
		if err != nil {
			return "", t.at(err)
		}
		if v.null() {
			return "", t.at(&MappingError{Code: CodeMapping, Message: fmt.Sprintf(
				"${%s} gives nothing, which would leave a gap in a text; write ${%s ?? \"none\"} for one without", p.expression, p.expression)})
		}
		text, err := v.text()
		if err != nil {
			return "", t.at(err)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// at says where an error of the mapping is.
func (t *template) at(err error) error {
	if err == nil {
		return nil
	}
	if fault, ok := errors.AsType[*MappingError](err); ok && fault.Pointer == "" {
		fault.Pointer = t.pointer
	}
	return err
}
