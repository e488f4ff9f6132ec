package workflow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// decode fills a struct, a list or a value from a node and reports what does not fit. Null
// leaves the zero value.
func (l *linter) decode(n *node, into reflect.Value, at place) {
	if n.kind == nullNode {
		return
	}
	switch target := into.Addr().Interface().(type) {
	case *json.RawMessage:
		*target = json.RawMessage(l.document.text[n.start:n.end])
		return
	case *Branches:
		if !l.expect(n, objectNode, at) {
			return
		}
		for _, m := range l.members(n, at) {
			if m.value.kind != stringNode {
				l.fault(codeType, at.with(m.name), "", "the target of a branch is a string, the id of a step, not %s", m.value.kind)
			}
			*target = append(*target, Branch{Expression: m.name, Step: m.value.text})
		}
		return
	case *Assignments:
		if !l.expect(n, objectNode, at) {
			return
		}
		for _, m := range l.members(n, at) {
			*target = append(*target, Assignment{Variable: m.name, Value: json.RawMessage(l.document.text[m.value.start:m.value.end])})
		}
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		if l.expect(n, objectNode, at) {
			l.decodeFields(n, into, at)
		}
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		l.decode(n, into.Elem(), at)
	case reflect.Slice:
		if !l.expect(n, arrayNode, at) {
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(n.items), len(n.items)))
		for i, item := range n.items {
			l.decode(item, into.Index(i), at.with(i))
		}
	default:
		l.decodeScalar(n, into, at)
	}
}

// decodeScalar takes a string, a boolean or a number.
func (l *linter) decodeScalar(n *node, into reflect.Value, at place) {
	text := l.document.text[n.start:n.end]
	switch into.Kind() {
	case reflect.String:
		if l.expect(n, stringNode, at) {
			into.SetString(n.text)
			if strings.ContainsRune(n.text, 0) {
				l.fault(codeCharacter, at, "", "a text must not have the character U+0000")
			}
		}
	case reflect.Bool:
		if l.expect(n, booleanNode, at) {
			into.SetBool(text[0] == 't')
		}
	case reflect.Int:
		if l.expect(n, numberNode, at) && json.Unmarshal(text, into.Addr().Interface()) != nil {
			l.fault(codeType, at, "", "%s is not an integer", text)
		}
	default:
		if l.expect(n, numberNode, at) && json.Unmarshal(text, into.Addr().Interface()) != nil {
			l.fault(codeType, at, "", "%s is too large a number", text)
		}
	}
}

func (l *linter) expect(n *node, kind nodeKind, at place) bool {
	if n.kind != kind {
		l.fault(codeType, at, "", "%s is %s, not %s", at.subject(), kind, n.kind)
	}
	return n.kind == kind
}

// decodeFields fills a struct. Fields go by their tags, as encoding/json has it: their case
// does not matter, what is not known is left alone.
func (l *linter) decodeFields(n *node, into reflect.Value, at place) {
	fields := l.fieldsOf(into.Type())
	for i := range n.members {
		m := &n.members[i]
		index, known := fields.index[m.name]
		if !known {
			for _, name := range fields.names {
				if strings.EqualFold(name, m.name) {
					l.warn(codeSpelling, at.key(m.name), "", "the field %q is written %q", m.name, name)
					index, known, m.name = fields.index[name], true, name
					break
				}
			}
		}
		if !known {
			l.warn(codeUnknown, at.key(m.name), l.guess(m.name, fields.names), "the field %q is not known and means nothing", m.name)
			continue
		}
		// The last of several counts, as for encoding/json; that there are is a fault.
		into.Field(index).SetZero()
		l.decode(m.value, into.Field(index), at.with(m.name))
	}
	l.members(n, at)
}

// members returns the members of an object and reports those that come twice.
func (l *linter) members(n *node, at place) []member {
	seen := make(map[string]int, len(n.members))
	for _, m := range n.members {
		if before, twice := seen[m.name]; twice {
			if l.full(Fault{}) {
				break
			}
			line, _ := l.document.place(before)
			where := at.with(m.name)
			l.faultAt(m.at, Fault{Code: codeTwice, Path: where.String(), Pointer: where.pointer(), Message: fmt.Sprintf("%q is there twice: line %d has the first", m.name, line)})
			continue
		}
		seen[m.name] = m.at
	}
	return n.members
}

// structFields are the fields of a struct by the names that its tags give.
type structFields struct {
	names []string
	index map[string]int
}

func (l *linter) fieldsOf(t reflect.Type) structFields {
	if fields, known := l.fields[t]; known {
		return fields
	}
	fields := structFields{index: make(map[string]int, t.NumField())}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields.names = append(fields.names, name)
		fields.index[name] = i
	}
	if l.fields == nil {
		l.fields = map[reflect.Type]structFields{}
	}
	l.fields[t] = fields
	return fields
}

// didYouMean returns a hint with the name that is most like a wrong one; empty: none is.
func didYouMean(wrong string, names []string) string {
	if name := nearest(wrong, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// nearest returns the name that is most like a wrong one: with few letters changed, or the
// same but for case, '-' and '_'.
func nearest(wrong string, names []string) string {
	best, distance := "", min(len(wrong)/3, 3)+1
	for _, name := range names {
		if d := edits(plain(wrong), plain(name), distance); d < distance {
			best, distance = name, d
		}
	}
	return best
}

func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
}

// edits counts the letters to change, to add, to take away or to swap with their neighbour
// that make b of a, up to a limit.
func edits(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if diff := len(x) - len(y); diff >= limit || -diff >= limit {
		return limit
	}
	before, previous := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range x {
		row := make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, previous[j+1]+1, previous[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		if slices.Min(row) >= limit {
			return limit
		}
		before, previous = previous, row
	}
	return previous[len(y)]
}
