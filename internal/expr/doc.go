// Package expr is the one expression language of Millrace: limits, decisions and
// mappings are written in it. The language is expr-lang/expr's, less what cannot be
// bounded, under budgets.
//
//	labels.team == "blue" && priority > 2
//
// # Why it is safe to run a stranger's expression
//
// An expression reads the variables that its Environment declares and nothing
// else: it has no files, no network, no clock and no side effects, so the same
// variables give the same value. It always ends: there are no loops but those over
// the elements of a list, and every element, call, comparison and concatenation
// draws on a budget of steps, values by their size. So neither nested loops over long lists
// nor strings that double themselves get far. Evaluation also ends with its
// context, and a long one after TimeLimit. Who evaluates often gives a tighter budget
// (Within), under which time has no say at all.
//
// Functions whose cost their operands do not bound (replace, repeat, join, uniq,
// flatten) and those that bring in time (now, date, timezone) are not there.
//
// # Errors
//
// Compile refuses what is too long, has too many parts, or does not fit the
// declared types, and says where (*SyntaxError). Eval returns an error that wraps
// ErrBudget for an expression that costs too much, and any other for one that meets
// a value it cannot work with. Neither panics, whatever the expression.
//
// A Program holds no state and is safe for concurrent use.
package expr
