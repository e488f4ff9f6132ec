package graphql

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// What lists are taken to hold where the query does not say.
const (
	pageDefault       = 20   // connections
	listDefault       = 100  // the lists of the data index
	tasksAssumed      = 20   // tasks of one workflow instance
	attemptsAssumed   = 5    // pods of one execution
	rowsAssumed       = 50   // rows of aggregates
	countCost         = 500  // a total, which reads every row that the filter selects
	aggregateCost     = 1000 // likewise, and sorts them into groups
	introspectedTypes = 80
	introspectedParts = 4 // on average: fields of types, arguments of fields
)

// cost estimates how many fields the answer to an operation has, counting what is
// laborious more often. The document has been validated, so fields know what they
// are.
func cost(doc *ast.QueryDocument, op *ast.OperationDefinition, variables map[string]any, limits Limits) int {
	c := &coster{doc: doc, variables: variables, limits: limits, fragments: map[fragmentOf]int{}}
	return c.selections(op.SelectionSet, 1)
}

// fragmentOf is a fragment where the connection around it has a page of that size.
type fragmentOf struct {
	name string
	page int
}

type coster struct {
	doc       *ast.QueryDocument
	variables map[string]any
	limits    Limits
	fragments map[fragmentOf]int
}

// selections adds up the costs. page is how many edges the connection has whose
// selection this is.
func (c *coster) selections(set ast.SelectionSet, page int) int {
	var total int
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			total = plus(total, c.field(s, page))
		case *ast.InlineFragment:
			total = plus(total, c.selections(s.SelectionSet, page))
		case *ast.FragmentSpread:
			key := fragmentOf{s.Name, page}
			n, known := c.fragments[key]
			if f := c.doc.Fragments.ForName(s.Name); !known && f != nil {
				n = c.selections(f.SelectionSet, page)
				c.fragments[key] = n
			}
			total = plus(total, n)
		}
	}
	return total
}

func (c *coster) field(f *ast.Field, page int) int {
	if f.Definition == nil || f.ObjectDefinition == nil {
		return 1
	}
	if strings.HasSuffix(f.Definition.Type.Name(), "Connection") {
		size := c.size(f, pageDefault, "first", "last")
		return plus(1, c.selections(f.SelectionSet, size))
	}
	if f.Name == "totalCount" {
		return countCost
	}
	var base int
	if strings.HasSuffix(f.Definition.Type.Name(), "Statistics") && f.ObjectDefinition.Name == "Query" {
		base = aggregateCost
	}
	n := c.elements(f, page)
	return plus(plus(1, base), times(n, c.selections(f.SelectionSet, 1)))
}

// elements says how many times what is selected within a field comes.
func (c *coster) elements(f *ast.Field, page int) int {
	list := f.Definition.Type.Elem != nil
	switch {
	case !list:
		return 1
	case strings.HasSuffix(f.ObjectDefinition.Name, "Connection"): // edges, nodes
		return page
	case f.ObjectDefinition.Name == "__Schema":
		return introspectedTypes
	case strings.HasPrefix(f.ObjectDefinition.Name, "__"):
		return introspectedParts
	case f.Name == "taskExecutions", f.Name == "getTaskExecutionsByWorkflowInstance":
		return c.size(f, tasksAssumed, "limit")
	case f.Name == "pods":
		return attemptsAssumed
	case f.Arguments.ForName("limit") != nil || f.Definition.Arguments.ForName("limit") != nil:
		return c.size(f, listDefault, "limit")
	}
	return rowsAssumed
}

// size reads an argument that says how long a list may be. What cannot be read is
// refused when it is resolved; until then it counts as the longest page.
func (c *coster) size(f *ast.Field, unset int, names ...string) int {
	for _, name := range names {
		arg := f.Arguments.ForName(name)
		if arg == nil || arg.Value == nil {
			continue
		}
		v, err := arg.Value.Value(c.variables)
		if err != nil {
			return c.limits.PageSize
		}
		if v == nil {
			continue
		}
		n, err := strconv.Atoi(numeral(v))
		if err != nil || n < 0 || n > c.limits.PageSize {
			return c.limits.PageSize
		}
		return n
	}
	return min(unset, c.limits.PageSize)
}

// numeral writes a value as JSON writes it.
func numeral(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}
