package expr

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
)

// chargeName is what the charging function is called in an environment. Nobody can
// write it in an expression.
const chargeName = "\x00charge"

// forbidden takes away the functions that the package documentation lists.
func forbidden() []expr.Option {
	var options []expr.Option
	for _, name := range []string{"replace", "repeat", "join", "uniq", "flatten", "now", "date", "timezone"} {
		options = append(options, expr.DisableBuiltin(name))
	}
	return options
}

// guard refuses what the checker would let pass.
type guard struct{ refused error }

// Visit implements ast.Visitor.
func (g *guard) Visit(node *ast.Node) {
	// The environment as a value holds more than what was declared.
	if id, ok := (*node).(*ast.IdentifierNode); ok && id.Value == "$env" {
		g.refused = &SyntaxError{Message: "$env is not available: name the variables"}
	}
}

// charger lets every node that can be costly pay for what it gave.
type charger struct{}

// Visit implements ast.Visitor.
func (charger) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode:
		n.Node = charged(n.Node)
	case *ast.BuiltinNode, *ast.CallNode, *ast.SliceNode:
		ast.Patch(node, charged(*node))
	case *ast.BinaryNode:
		switch n.Operator {
		case "+", "..", "**", "^":
			ast.Patch(node, charged(*node))
		case "contains", "startsWith", "endsWith", "matches", "==", "!=", "<", "<=", ">", ">=":
			n.Left = chargedUnlessWritten(n.Left)
		case "in", "not in":
			n.Right = chargedUnlessWritten(n.Right)
		}
	}
}

// chargedUnlessWritten charges for an operand that an operator goes through to the
// end. One that is written in the expression is no longer than that.
func chargedUnlessWritten(node ast.Node) ast.Node {
	switch node.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode, *ast.ConstantNode, *ast.ArrayNode, *ast.MapNode:
		return node
	}
	return charged(node)
}

func charged(node ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: chargeName}, Arguments: []ast.Node{node}}
}

// budget is what one evaluation may still spend.
type budget struct {
	ctx      context.Context
	limit    int // the steps there were
	steps    int // and those that are left
	deadline time.Time
	err      error
}

// charge returns the function that takes the cost of a value off b and hands the
// value on.
func charge(b *budget) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		return args[0], b.spend(1 + size(args[0]))
	}
}

func (b *budget) spend(steps int) error {
	b.steps -= steps
	switch {
	case b.steps < 0:
		b.err = fmt.Errorf("%w: more than %d steps", ErrBudget, b.limit)
	case b.ctx.Err() != nil:
		b.err = context.Cause(b.ctx)
	case b.limit-b.steps > Untimed && time.Now().After(b.deadline):
		b.err = fmt.Errorf("%w: more than %s", ErrTimeLimit, TimeLimit)
	}
	return b.err
}

// size is what it costs to have made v, without looking into it.
func size(v any) int {
	switch v := v.(type) {
	case nil, bool, int, int64, float64:
		return 0
	case string:
		return len(v) / 8
	case []any:
		return len(v)
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return r.Len()
	case reflect.String:
		return r.Len() / 8
	default:
		return 0
	}
}

// convert makes a T of what an expression gave. Numbers are converted where no
// digit is lost.
func convert[T Result](v any) (T, error) {
	var zero T
	if _, any := any(&zero).(*any); any && v == nil {
		return zero, nil // which is what an expression may give here
	}
	if value, ok := v.(T); ok {
		return value, nil
	}
	r := reflect.ValueOf(v)
	var number any
	switch any(zero).(type) {
	case int64:
		switch {
		case r.CanInt():
			number = r.Int()
		case r.CanUint() && r.Uint() <= math.MaxInt64:
			number = int64(r.Uint())
		case r.CanFloat() && r.Float() == math.Trunc(r.Float()) && math.Abs(r.Float()) < 1<<53:
			number = int64(r.Float())
		}
	case float64:
		switch {
		case r.CanInt():
			number = float64(r.Int())
		case r.CanUint():
			number = float64(r.Uint())
		case r.CanFloat():
			number = r.Float()
		}
	case string:
		if r.Kind() == reflect.String {
			number = r.String()
		}
	}
	if value, ok := number.(T); ok {
		return value, nil
	}
	if v == nil {
		return zero, fmt.Errorf("gives nothing, not a %T", zero)
	}
	return zero, fmt.Errorf("gives a %T, not a %T", v, zero)
}
