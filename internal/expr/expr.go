package expr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// The budgets.
const (
	// MaxSource is how many bytes an expression may have.
	MaxSource = 4096
	// MaxNodes is how many parts (operators, operands, calls) it may have.
	MaxNodes = 256
	// MaxSteps is how much one evaluation may do. An element of a list that is
	// looked at costs one step, and so does every element or eight bytes of what a
	// function or an operator makes, or goes through.
	MaxSteps = 200_000
	// Untimed is how many steps an evaluation takes before anybody looks at the clock.
	// So an expression that is cheap gives the same value on a machine that stood still
	// while it ran.
	Untimed = 4096
	// TimeLimit is how long an evaluation of more than Untimed steps may take.
	// It is a second line: steps are what an expression runs out of on an idle
	// machine.
	TimeLimit = 250 * time.Millisecond
)

// ErrBudget is wrapped by the error of an evaluation that would cost more than it
// may.
var ErrBudget = errors.New("the expression costs too much")

// ErrTimeLimit is wrapped, with ErrBudget, by the error of an evaluation that took longer
// than TimeLimit. On a machine that has more time to spare it may succeed.
var ErrTimeLimit = fmt.Errorf("%w", ErrBudget)

// SyntaxError says what is wrong with an expression.
type SyntaxError struct {
	// Line and Column are where, from 1; 0 for the expression as a whole.
	Line, Column int
	Message      string
}

// Error names the place, if there is one.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Environment declares variables.
type Environment struct {
	samples map[string]any
	open    bool
}

// NewEnvironment declares the variables of samples, each with the type of its
// sample. Fields of structs go by their tag `expr`. A sample of nil, or a map of
// any, is checked when it is evaluated and not before.
func NewEnvironment(samples map[string]any) Environment {
	return Environment{samples: maps.Clone(samples)}
}

// Result is what an expression can give: any leaves it to the expression.
type Result interface {
	bool | string | int64 | float64 | any
}

// Program is a compiled expression that gives a T.
type Program[T Result] struct {
	source  string
	program *vm.Program
	names   []string
	// required are the names that must be there; path is set when the expression is one.
	required, path []string
	steps          int
}

// Compile compiles an expression over the variables of env. The error is a
// *SyntaxError.
func Compile[T Result](source string, env Environment) (*Program[T], error) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, &SyntaxError{Message: "the expression is empty"}
	case len(source) > MaxSource:
		return nil, &SyntaxError{Message: fmt.Sprintf("the expression has %d bytes, at most %d are allowed", len(source), MaxSource)}
	}
	samples := maps.Clone(env.samples)
	if samples == nil {
		samples = make(map[string]any)
	}
	text := source
	if env.open {
		var err error
		if text, err = rewrite(source); err != nil {
			return nil, err
		}
	}
	// The first round checks the types of what was written. The second adds the
	// charges, behind which types are no longer known.
	options := append([]expr.Option{expr.Env(samples), expr.MaxNodes(MaxNodes), expected[T]()}, forbidden()...)
	guard, open, found := new(guard), new(open), newCollector()
	options = append(options, env.options(open, found)...)
	_, err := expr.Compile(text, append(options, expr.Patch(guard))...)
	switch {
	case guard.refused != nil:
		return nil, guard.refused
	case open.refused != nil:
		return nil, open.refused
	case err != nil:
		return nil, plainer(syntaxError(err), source)
	}
	samples[chargeName], samples[calculateName] = charge(nil), calculate
	options = append([]expr.Option{expr.Env(samples), expr.MaxNodes(0)}, env.options(open)...)
	if env.open {
		options = append(options, expr.Patch(calculator{}))
	}
	options = append(options, expr.Patch(charger{}))
	program, err := expr.Compile(text, append(options, forbidden()...)...)
	if err != nil {
		return nil, syntaxError(err)
	}
	if env.open {
		names, required := found.all()
		return &Program[T]{source: source, program: program, names: names, required: required, path: path(found.root), steps: MaxSteps}, nil
	}
	names := make([]string, 0, len(env.samples))
	for name := range env.samples {
		names = append(names, name)
	}
	return &Program[T]{source: source, program: program, names: names, steps: MaxSteps}, nil
}

// expected makes the checker refuse an expression that cannot give a T.
func expected[T Result]() expr.Option {
	var zero T
	switch any(zero).(type) {
	case bool:
		return expr.AsBool()
	case int64:
		return expr.AsInt64()
	case float64:
		return expr.AsFloat64()
	default:
		return expr.AsAny()
	}
}

func syntaxError(err error) error {
	var at *file.Error
	if errors.As(err, &at) {
		return &SyntaxError{Line: at.Line, Column: at.Column + 1, Message: at.Message}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &SyntaxError{Message: text}
}

// String returns the source.
func (p *Program[T]) String() string { return p.source }

// Within returns the program with a smaller budget: it may take so many steps, at most
// MaxSteps. One that may take no more than Untimed gives the same value for the same
// variables on any machine.
func (p *Program[T]) Within(steps int) *Program[T] {
	tight := *p
	tight.steps = min(max(steps, 1), MaxSteps)
	return &tight
}

// Eval evaluates the expression. Variables that vars lacks are nil, or an error in an
// environment of any names.
func (p *Program[T]) Eval(ctx context.Context, vars map[string]any) (T, error) {
	var zero T
	if err := p.defined(vars); err != nil {
		return zero, fmt.Errorf("evaluate %q: %w", p.source, err)
	}
	b := &budget{ctx: ctx, limit: p.steps, steps: p.steps, deadline: time.Now().Add(TimeLimit)}
	env := make(map[string]any, len(p.names)+2)
	for _, name := range p.names {
		env[name] = vars[name]
		if _, taken := builtin.Index[name]; taken {
			env[shadowed+name] = vars[name]
		}
	}
	env[chargeName], env[calculateName] = charge(b), calculate
	machine := vm.VM{MemoryBudget: uint(p.steps)}
	out, err := machine.Run(p.program, env)
	switch {
	case b.err != nil:
		return zero, fmt.Errorf("evaluate %q: %w", p.source, b.err)
	case err != nil && strings.Contains(err.Error(), "memory budget exceeded"):
		return zero, fmt.Errorf("evaluate %q: %w: more than %d steps", p.source, ErrBudget, p.steps)
	case err != nil:
		return zero, fmt.Errorf("evaluate %q: %w", p.source, syntaxError(err))
	}
	value, err := convert[T](out)
	if err != nil {
		return zero, fmt.Errorf("evaluate %q: %w", p.source, err)
	}
	return value, nil
}
