package expr

import (
	"fmt"
	"math"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
)

// calculateName is what the function that calculates is called in an environment. Nobody
// can write it in an expression.
const calculateName = "\x00calculate"

// calculator makes sums, differences and products of integers fail where they would be too
// large for one, instead of starting from the other end.
type calculator struct{}

// Visit implements ast.Visitor.
func (calculator) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.BinaryNode)
	if !ok || n.Operator != "+" && n.Operator != "-" && n.Operator != "*" {
		return
	}
	call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: calculateName}, Arguments: []ast.Node{&ast.StringNode{Value: n.Operator}, n.Left, n.Right}}
	call.SetLocation(n.Location())
	ast.Patch(node, call)
}

// calculate is a operator b.
func calculate(args ...any) (any, error) {
	operator, _ := args[0].(string)
	a, b := args[1], args[2]
	x, first := a.(int)
	y, second := b.(int)
	if first && second && overflows(operator, x, y) {
		return nil, fmt.Errorf("%d %s %d is too large for an integer", x, operator, y)
	}
	switch operator {
	case "+":
		return runtime.Add(a, b), nil
	case "-":
		return runtime.Subtract(a, b), nil
	default:
		return runtime.Multiply(a, b), nil
	}
}

func overflows(operator string, x, y int) bool {
	switch operator {
	case "+":
		return y > 0 && x > math.MaxInt-y || y < 0 && x < math.MinInt-y
	case "-":
		return y < 0 && x > math.MaxInt+y || y > 0 && x < math.MinInt+y
	default:
		return x != 0 && y != 0 && (x == -1 && y == math.MinInt || y == -1 && x == math.MinInt || x*y/y != x)
	}
}
