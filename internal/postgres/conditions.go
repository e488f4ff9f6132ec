package postgres

import (
	"fmt"
	"strings"
)

// Conditions gathers the conditions of a WHERE clause and their arguments. The
// zero value selects everything. Conditions are text of the program; what comes
// from elsewhere goes into arguments.
type Conditions struct {
	list []string
	args []any
}

// Where adds a condition; each %s in it stands for one argument.
func (c *Conditions) Where(condition string, args ...any) {
	places := make([]any, len(args))
	for i, arg := range args {
		places[i] = c.Arg(arg)
	}
	c.list = append(c.list, fmt.Sprintf(condition, places...))
}

// Equal adds the condition that a column has a value, unless the value is empty.
func (c *Conditions) Equal(column, value string) {
	if value != "" {
		c.Where(column+" = %s", value)
	}
}

// Not adds the condition that not all of the conditions hold that add adds.
func (c *Conditions) Not(add func(*Conditions)) {
	inner := &Conditions{args: c.args}
	add(inner)
	c.args = inner.args
	c.list = append(c.list, "NOT ("+inner.all(" AND ")+")")
}

// Arg adds an argument without a condition and returns its placeholder.
func (c *Conditions) Arg(value any) string {
	c.args = append(c.args, value)
	return fmt.Sprintf("$%d", len(c.args))
}

// Args returns the arguments in the order of their placeholders.
func (c *Conditions) Args() []any { return c.args }

// Clause returns the WHERE clause, which is empty without conditions.
func (c *Conditions) Clause() string {
	if len(c.list) == 0 {
		return ""
	}
	return "\nWHERE " + c.all("\n  AND ")
}

func (c *Conditions) all(and string) string {
	if len(c.list) == 0 {
		return "true"
	}
	return strings.Join(c.list, and)
}
