package graphql

import (
	"fmt"
	"math"

	"github.com/vektah/gqlparser/v2/ast"
)

// introspectionDepth bounds how deep introspection goes: what the usual tools ask
// for is about 15 deep, most of it ofType.
const introspectionDepth = 20

// repeatedMost bounds how often fields of one name come in a document: the validator
// compares each of them with each.
const repeatedMost = 100

// nameBytes bounds each name in a document: the validator compares names that it
// does not know with those that it does, and repeats them in its errors.
const nameBytes = 128

// measure checks what of a document can be told from its form alone, before the
// validator, some of whose rules compare every field with every other, sees it.
// Each fragment is measured once, however often it is spread.
func measure(doc *ast.QueryDocument, op *ast.OperationDefinition, limits Limits) *LimitError {
	m := &measurer{doc: doc, limits: limits, fragments: map[string]extent{}, open: map[string]bool{}, names: map[string]int{}}
	if n := m.directives(); n > limits.Directives {
		return beyond(limitDirectives, limits.Directives, n, "the document has %d directives", n)
	}
	total := m.selections(op.SelectionSet)
	for _, f := range doc.Fragments {
		// Also those that are not spread: the validator walks them all.
		m.name(f.Name, f.TypeCondition)
		e := m.fragment(f.Name)
		total.fields = max(total.fields, e.fields)
		total.introspection = max(total.introspection, e.introspection)
	}
	for _, other := range doc.Operations {
		m.name(other.Name)
		for _, v := range other.VariableDefinitions {
			m.name(v.Variable, v.Type.Name())
			m.value(v.DefaultValue, 0)
		}
		if other != op {
			total = total.beside(m.selections(other.SelectionSet))
		}
	}
	switch {
	case m.err != nil:
		return m.err
	case total.depth > limits.Depth:
		return beyond(limitDepth, limits.Depth, total.depth, "the query is %s levels deep", number(total.depth))
	case total.introspection > introspectionDepth:
		return beyond(limitDepth, introspectionDepth, total.introspection, "the introspection is %s levels deep", number(total.introspection))
	case total.top > limits.RootFields:
		return beyond(limitRootFields, limits.RootFields, total.top, "the query has %s fields at its top", number(total.top))
	case total.aliases > limits.Aliases:
		return beyond(limitAliases, limits.Aliases, total.aliases, "the query has %s aliases", number(total.aliases))
	case total.fields > limits.Cost:
		return beyond(limitCost, limits.Cost, total.fields, "the query has %s fields", number(total.fields))
	}
	return nil
}

// extent is how far a selection goes, with the fragments that it spreads.
type extent struct {
	// depth is of data, introspection of what lies within __schema and __type.
	depth, introspection int
	// top counts the fields of the selection itself.
	top, fields, aliases int
}

// beside returns the extent of two selections side by side.
func (e extent) beside(o extent) extent {
	return extent{
		depth: max(e.depth, o.depth), introspection: max(e.introspection, o.introspection),
		top: plus(e.top, o.top), fields: plus(e.fields, o.fields), aliases: plus(e.aliases, o.aliases),
	}
}

type measurer struct {
	doc       *ast.QueryDocument
	limits    Limits
	fragments map[string]extent
	// open are the fragments that are being measured: one that is met again spreads
	// itself.
	open map[string]bool
	// names counts fields by what they are called in the answer.
	names map[string]int
	err   *LimitError
}

// fail keeps the first error.
func (m *measurer) fail(err *LimitError) {
	if m.err == nil {
		m.err = err
	}
}

func (m *measurer) selections(set ast.SelectionSet) extent {
	var total extent
	for _, selection := range set {
		if m.err != nil {
			return total
		}
		switch s := selection.(type) {
		case *ast.Field:
			total = total.beside(m.field(s))
		case *ast.InlineFragment:
			m.name(s.TypeCondition)
			total = total.beside(m.selections(s.SelectionSet))
		case *ast.FragmentSpread:
			m.name(s.Name)
			total = total.beside(m.fragment(s.Name))
		}
	}
	return total
}

func (m *measurer) field(f *ast.Field) extent {
	m.name(f.Name, f.Alias)
	m.arguments(f.Arguments)
	if m.names[f.Alias]++; m.names[f.Alias] > repeatedMost {
		m.fail(&LimitError{Limit: limitRepeated, Allowed: repeatedMost, Found: repeatedMost + 1,
			Message: fmt.Sprintf("the document names the field %s more than %d times", clip(f.Alias), repeatedMost)})
	}
	within := m.selections(f.SelectionSet)
	e := extent{
		depth: within.depth + 1, introspection: within.introspection,
		top: 1, fields: plus(within.fields, 1), aliases: within.aliases,
	}
	if f.Alias != f.Name {
		e.aliases = plus(e.aliases, 1)
	}
	if f.Name == "__schema" || f.Name == "__type" {
		e.introspection = max(within.depth, within.introspection) + 1
		e.depth = 1
	}
	return e
}

func (m *measurer) fragment(name string) extent {
	if e, measured := m.fragments[name]; measured {
		return e
	}
	f := m.doc.Fragments.ForName(name)
	if f == nil {
		return extent{} // the validator says so
	}
	if m.open[name] {
		m.fail(&LimitError{Limit: limitFragments, Message: fmt.Sprintf("the fragment %s spreads itself, at once or by way of others", clip(name))})
		return extent{}
	}
	m.open[name] = true
	e := m.selections(f.SelectionSet)
	delete(m.open, name)
	m.fragments[name] = e
	return e
}

func (m *measurer) arguments(list ast.ArgumentList) {
	for _, a := range list {
		m.name(a.Name)
		m.value(a.Value, 0)
	}
}

// name checks names.
func (m *measurer) name(names ...string) {
	for _, n := range names {
		if len(n) > nameBytes {
			m.fail(beyond(limitName, nameBytes, len(n), "the name %s has %d bytes", clip(n), len(n)))
		}
	}
}

// value checks a literal: the lists in it and how deep its objects lie.
func (m *measurer) value(v *ast.Value, depth int) {
	if v == nil || m.err != nil {
		return
	}
	switch v.Kind {
	case ast.ListValue:
		m.list(len(v.Children))
	case ast.ObjectValue:
		depth++
		m.depth(depth)
	case ast.EnumValue, ast.Variable:
		m.name(v.Raw)
		return
	default:
		return
	}
	for _, child := range v.Children {
		m.name(child.Name)
		m.value(child.Value, depth)
	}
}

func (m *measurer) list(n int) {
	if n > m.limits.ListLength {
		m.fail(beyond(limitListLength, m.limits.ListLength, n, "a list has %d values", n))
	}
}

func (m *measurer) depth(n int) {
	if n > m.limits.Depth {
		m.fail(beyond(limitDepth, m.limits.Depth, n, "an argument has objects %d levels deep", n))
	}
}

// directives counts the directives of the whole document.
func (m *measurer) directives() int {
	var count int
	add := func(list ast.DirectiveList) {
		count += len(list)
		for _, d := range list {
			m.name(d.Name)
			m.arguments(d.Arguments)
		}
	}
	var walk func(ast.SelectionSet)
	walk = func(set ast.SelectionSet) {
		for _, selection := range set {
			switch s := selection.(type) {
			case *ast.Field:
				add(s.Directives)
				walk(s.SelectionSet)
			case *ast.InlineFragment:
				add(s.Directives)
				walk(s.SelectionSet)
			case *ast.FragmentSpread:
				add(s.Directives)
			}
		}
	}
	for _, op := range m.doc.Operations {
		add(op.Directives)
		for _, v := range op.VariableDefinitions {
			add(v.Directives)
		}
		walk(op.SelectionSet)
	}
	for _, f := range m.doc.Fragments {
		add(f.Directives)
		walk(f.SelectionSet)
	}
	return count
}

// measureVariables checks the values of variables as measure checks literals.
func measureVariables(variables map[string]any, limits Limits) *LimitError {
	m := &measurer{limits: limits}
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if m.err != nil {
			return
		}
		switch v := v.(type) {
		case []any:
			m.list(len(v))
			for _, child := range v {
				walk(child, depth)
			}
		case map[string]any:
			m.depth(depth + 1)
			for _, child := range v {
				walk(child, depth+1)
			}
		}
	}
	for _, v := range variables {
		walk(v, 0)
	}
	return m.err
}

// plus adds without running over.
func plus(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// times multiplies without running over.
func times(a, b int) int {
	if b != 0 && a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

// number says a count that may have run over.
func number(n int) string {
	if n == math.MaxInt {
		return "far too many"
	}
	return fmt.Sprint(n)
}

// clip bounds a text of the caller that is repeated to it.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
