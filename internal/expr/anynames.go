package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
)

// ErrUndefined is wrapped by the error of an evaluation that lacks a variable.
var ErrUndefined = errors.New("undefined variable")

// NowVariable is the variable that now() reads in an environment of any names. Nobody can
// write it in an expression in another way. Who evaluates without it leaves now() undefined.
const NowVariable = "now()"

// containsName stands for contains(...) in the text that the parser sees, where contains
// is an operator. It is as long, so that columns stay.
const containsName = "$contain"

// shadowed begins the names of variables that functions have too: count, len, type ... A
// name is a function where it is called, else a variable.
const shadowed = "\x00"

// AnyNames is the environment of expressions whose variables are not known when they are
// compiled: every name is one. An evaluation that lacks a variable fails with ErrUndefined,
// whether or not it would have come to it, unless the variable is on the left of ??.
//
// Expressions over it are of a dialect: #name and ${...} are the same as name and (...),
// contains(list, element) as element in list, null as nil, and now() reads NowVariable.
func AnyNames() Environment { return Environment{open: true} }

// Names returns the variables that the expression may read, in alphabetical order; those that
// a let of its own declares may be among them.
func (p *Program[T]) Names() []string { return slices.Clone(p.names) }

// Path returns the names that lead from a variable to one of its fields, if that is all
// the expression is: a.b gives a, b.
func (p *Program[T]) Path() []string { return slices.Clone(p.path) }

// defined checks that vars has what the expression needs.
func (p *Program[T]) defined(vars map[string]any) error {
	for _, name := range p.required {
		if _, ok := vars[name]; !ok {
			if name == NowVariable {
				return fmt.Errorf("%w: now() has no meaning here", ErrUndefined)
			}
			return fmt.Errorf("%w %q", ErrUndefined, name)
		}
	}
	return nil
}

// open patches what is particular to an environment of any names. It comes before all
// other visitors.
type open struct{ refused error }

// Visit implements ast.Visitor.
func (o *open) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		switch _, taken := builtin.Index[n.Value]; {
		case n.Value == "null":
			ast.Patch(node, &ast.NilNode{})
		case taken:
			ast.Patch(node, &ast.IdentifierNode{Value: shadowed + n.Value})
		}
	case *ast.BinaryNode:
		if n.Operator == "??" && path(n.Left) != nil {
			n.Left = lenient(n.Left)
		}
	case *ast.CallNode:
		callee, named := n.Callee.(*ast.IdentifierNode)
		if !named {
			o.refused = &SyntaxError{Message: "values have no functions of their own"}
			return
		}
		name := strings.TrimPrefix(callee.Value, shadowed)
		switch {
		case name == "now" && len(n.Arguments) == 0:
			ast.Patch(node, &ast.IdentifierNode{Value: NowVariable})
		case name == containsName && len(n.Arguments) == 2:
			ast.Patch(node, &ast.BinaryNode{Operator: "in", Left: n.Arguments[1], Right: n.Arguments[0]})
		case name == containsName:
			o.refused = &SyntaxError{Message: "contains takes two arguments: contains(list, element)"}
		default:
			o.refused = &SyntaxError{Message: fmt.Sprintf("there is no function %s", name)}
		}
	}
}

// lenient makes a path give nil where one of its fields has no value to be a field of.
func lenient(node ast.Node) ast.Node {
	chain, chained := node.(*ast.ChainNode)
	if !chained {
		chain = &ast.ChainNode{Node: node}
	}
	for at := chain.Node; ; {
		member, ok := at.(*ast.MemberNode)
		if !ok {
			return chain
		}
		member.Optional = true
		at = member.Node
	}
}

// collector gathers the variables that an expression reads.
type collector struct {
	names, optional, declared map[string]bool
	root                      ast.Node
}

func newCollector() *collector {
	return &collector{names: map[string]bool{}, optional: map[string]bool{}, declared: map[string]bool{}}
}

// Visit implements ast.Visitor. Children come before their parents.
func (c *collector) Visit(node *ast.Node) {
	c.root = *node
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		c.names[strings.TrimPrefix(n.Value, shadowed)] = true
	case *ast.VariableDeclaratorNode:
		c.declared[n.Name] = true
	case *ast.BinaryNode:
		if names := path(n.Left); n.Operator == "??" && names != nil {
			c.optional[names[0]] = true
		}
	}
}

// all returns the names of all variables, and of those that must be there. A name that is
// also declared by a let is not asked for.
func (c *collector) all() (names, required []string) {
	names = slices.Sorted(maps.Keys(c.names))
	required = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return c.optional[name] || c.declared[name] })
	return names, required
}

// path returns the names from a variable to its field if node is no more than that.
func path(node ast.Node) []string {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		return []string{strings.TrimPrefix(n.Value, shadowed)}
	case *ast.ChainNode:
		return path(n.Node)
	case *ast.MemberNode:
		if property, ok := n.Property.(*ast.StringNode); ok {
			if names := path(n.Node); names != nil {
				return append(names, property.Value)
			}
		}
	}
	return nil
}

// options are what the compiler needs to take any name.
func (e Environment) options(first ...ast.Visitor) []expr.Option {
	if !e.open {
		return nil
	}
	options := []expr.Option{expr.AllowUndefinedVariables()}
	for _, visitor := range first {
		options = append(options, expr.Patch(visitor))
	}
	return options
}
