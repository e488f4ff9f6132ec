package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/expr"
	"github.com/millrace/millrace/topics"
)

// MaxSteps is how much one evaluation of an expression may do. It is asked for every
// request, so it is far less than expressions may cost elsewhere; and so little that
// time has no say: the same request has the same keys on any machine.
const MaxSteps = expr.Untimed

// MaxKeyBytes is how long the key that an expression gives may be.
const MaxKeyBytes = 256

// Key is the key of one limit that a request is under.
type Key struct {
	Limit string `json:"limit"`
	Value string `json:"value"`
}

// Fault is one thing that is wrong with a definition.
type Fault struct {
	// Limit is the name of the definition.
	Limit string
	// Field is the field that is wrong, by its name in the configuration; empty for
	// the definition as a whole.
	Field string
	// Err says what is wrong: an *expr.SyntaxError, with the position, where an
	// expression does not compile.
	Err error
}

// Error names limit and field.
func (f Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("limit %s: %s", f.Limit, f.Err)
	}
	return fmt.Sprintf("limit %s: %s: %s", f.Limit, f.Field, f.Err)
}

// Unwrap returns what is wrong.
func (f Fault) Unwrap() error { return f.Err }

// InvalidError lists everything that is wrong with a set of definitions.
type InvalidError struct{ Faults []Fault }

// Error lists the faults, one per line.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// KeyError says why the key of a limit cannot be told for a request. The request
// can not be admitted, however often it is tried.
type KeyError struct {
	Limit string
	// Field is the expression that is at fault: "key" or "when".
	Field string
	Err   error
}

// Error names the limit and the expression.
func (e *KeyError) Error() string {
	return fmt.Sprintf("limit %s: %s: %s", e.Limit, e.Field, e.Err)
}

// Unwrap returns what is wrong; it wraps expr.ErrBudget when the expression costs
// too much.
func (e *KeyError) Unwrap() error { return e.Err }

// Set is a set of limits, ready to tell the keys of requests. The nil Set is empty.
// It is safe for concurrent use.
type Set struct {
	limits []limit // by name
}

type limit struct {
	Definition
	key  *expr.Program[any]
	when *expr.Program[bool]
}

// Compile checks definitions and compiles their expressions. The error is an
// *InvalidError with every fault, in the order of the definitions. An expression
// that costs too much even for a request of nothing is a fault too.
func Compile(definitions []Definition) (*Set, error) {
	var faults []Fault
	set := &Set{limits: make([]limit, 0, len(definitions))}
	seen := make(map[string]bool, len(definitions))
	for _, d := range definitions {
		fault := func(field, format string, args ...any) {
			faults = append(faults, Fault{Limit: d.Name, Field: field, Err: fmt.Errorf(format, args...)})
		}
		d.check(fault)
		if seen[d.Name] {
			fault("", "is defined twice")
		}
		seen[d.Name] = true
		set.limits = append(set.limits, compile(d.withDefaults(), fault))
	}
	if len(faults) > 0 {
		return nil, &InvalidError{Faults: faults}
	}
	slices.SortFunc(set.limits, func(a, b limit) int { return cmp.Compare(a.Name, b.Name) })
	return set, nil
}

func compile(d Definition, fault func(field, format string, args ...any)) limit {
	l := limit{Definition: d}
	var err error
	if d.When != "" {
		if l.when, _, err = compileExpression[bool](d.When); err != nil {
			fault("when", "%w", err)
		}
	}
	if d.Per == PerKey && d.Key != "" {
		var trial any
		if l.key, trial, err = compileExpression[any](d.Key); err == nil {
			_, err = text(trial)
		}
		if err != nil {
			fault("key", "%w", err)
		}
	}
	return l
}

// compileExpression compiles an expression and tries it on a request of nothing. What
// it cannot work with there is no error, since a request of something may do better;
// but what costs too much even then is.
func compileExpression[T expr.Result](source string) (program *expr.Program[T], trial T, err error) {
	if program, err = expr.Compile[T](source, environment()); err != nil {
		return nil, trial, err
	}
	program = program.Within(MaxSteps)
	trial, err = program.Eval(context.Background(), variables(topics.Request{}))
	if errors.Is(err, expr.ErrBudget) {
		return nil, trial, err
	}
	return program, trial, nil
}

// Keys returns the keys of the limits that a request is under, by name of the
// limit, with no limit twice. The error is a *KeyError where the request is at
// fault, and that of ctx when it ended.
func (s *Set) Keys(ctx context.Context, req topics.Request) ([]Key, error) {
	if s == nil || len(s.limits) == 0 {
		return nil, nil
	}
	vars := variables(req)
	var keys []Key
	for _, l := range s.limits {
		value, err := l.value(ctx, req, vars)
		if err != nil {
			return nil, err
		}
		if value != "" {
			keys = append(keys, Key{Limit: l.Name, Value: value})
		}
	}
	return keys, nil
}

// value returns the key of a request, "" when the limit is not for it.
func (l limit) value(ctx context.Context, req topics.Request, vars map[string]any) (string, error) {
	if l.when != nil {
		applies, err := l.when.Eval(ctx, vars)
		if err != nil {
			return "", l.failed(ctx, "when", err)
		}
		if !applies {
			return "", nil
		}
	}
	switch l.Per {
	case PerUser:
		return UserKey(req.Tenant, req.User), nil
	case PerTenant:
		return req.Tenant, nil
	}
	result, err := l.key.Eval(ctx, vars)
	if err != nil {
		return "", l.failed(ctx, "key", err)
	}
	value, err := text(result)
	if err != nil {
		return "", l.failed(ctx, "key", err)
	}
	return value, nil
}

// failed tells a request that is at fault from a caller who has left.
func (l limit) failed(ctx context.Context, field string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("limit %s: %s: %w", l.Name, field, context.Cause(ctx))
	}
	return &KeyError{Limit: l.Name, Field: field, Err: err}
}

// text makes a key of what an expression gave.
func text(value any) (string, error) {
	var key string
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		key = v
	case bool:
		key = strconv.FormatBool(v)
	case int:
		key = strconv.Itoa(v)
	case int64:
		key = strconv.FormatInt(v, 10)
	case float64:
		key = strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return "", fmt.Errorf("gives a %T: want a text or a number", value)
	}
	switch {
	case len(key) > MaxKeyBytes:
		return "", fmt.Errorf("gives a key of %d bytes, at most %d are allowed", len(key), MaxKeyBytes)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return "", errors.New("gives a key that is not printable text")
	}
	return key, nil
}

// UserKey is the key of a limit per user: tenant/user, with / and % of the tenant
// escaped, so that no two users share one.
func UserKey(tenant, user string) string {
	return strings.ReplaceAll(strings.ReplaceAll(tenant, "%", "%25"), "/", "%2F") + "/" + user
}

// Lookup returns a definition by its name, with the defaults filled in.
func (s *Set) Lookup(name string) (Definition, bool) {
	if s == nil {
		return Definition{}, false
	}
	i, found := slices.BinarySearchFunc(s.limits, name, func(l limit, name string) int { return cmp.Compare(l.Name, name) })
	if !found {
		return Definition{}, false
	}
	return s.limits[i].Definition, true
}

// All returns the definitions by name, with the defaults filled in.
func (s *Set) All() []Definition {
	if s == nil {
		return nil
	}
	all := make([]Definition, len(s.limits))
	for i, l := range s.limits {
		all[i] = l.Definition
	}
	return all
}
