package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/internal/expr"
)

// Expression is a compiled expression of a definition. It holds no state and is safe for
// concurrent use.
type Expression struct {
	source  string
	program *expr.Program[any]
	names   []string
	path    []string
}

// CompileExpression compiles an expression as definitions have them: variables are named
// as name, #name or ${name}; docs/workflow-format.md has the whole language. The error
// says what is wrong and where.
func CompileExpression(source string) (*Expression, error) {
	program, err := expr.Compile[any](source, expr.AnyNames())
	if err != nil {
		return nil, err
	}
	return &Expression{source: source, program: program, names: program.Names(), path: program.Path()}, nil
}

// neverBoolean says whether an expression that parses can give no boolean.
func neverBoolean(source string) bool {
	_, err := expr.Compile[bool](source, expr.AnyNames())
	return err != nil
}

// String returns the source.
func (x *Expression) String() string { return x.source }

// Eval evaluates the expression. Variables are what encoding/json makes of them, with or
// without json.Number, or json.RawMessage. A variable that is not there is an error that
// wraps expr.ErrUndefined; so is now(): see EvalAt.
//
// The result is nil, a bool, a string, an int, a float64, a list or a map; an expression
// that is no more than the name of a variable, or of a field, gives the value as it is in
// vars, json.Number and json.RawMessage included.
func (x *Expression) Eval(ctx context.Context, vars map[string]any) (any, error) {
	return x.EvalAt(ctx, vars, time.Time{})
}

// EvalAt is Eval at a time, which now() gives as a text (RFC 3339, UTC).
func (x *Expression) EvalAt(ctx context.Context, vars map[string]any, at time.Time) (any, error) {
	read := make(map[string]any, len(x.names))
	for _, name := range x.names {
		value, ok := vars[name]
		if name == expr.NowVariable {
			value, ok = at.UTC().Format(time.RFC3339), !at.IsZero()
		}
		if !ok {
			continue
		}
		var err error
		if read[name], err = numbered(value); err != nil {
			return nil, fmt.Errorf("evaluate %q: variable %q: %w", x.source, name, err)
		}
	}
	value, err := x.program.Eval(ctx, read)
	if err != nil {
		return nil, err
	}
	if len(x.path) > 0 {
		return asWritten(vars, x.path, value), nil
	}
	if value, err = expr.Storable(value); err != nil {
		return nil, fmt.Errorf("evaluate %q: %w", x.source, err)
	}
	return value, nil
}

// asWritten returns what a path leads to, with its numbers as they were written; value is
// what it leads to otherwise.
func asWritten(vars map[string]any, path []string, value any) any {
	var at any = vars
	for i, name := range path {
		if raw, ok := at.(json.RawMessage); ok {
			var fields map[string]json.RawMessage
			if json.Unmarshal(raw, &fields) != nil {
				return value
			}
			if at, ok = fields[name]; !ok {
				return value
			}
			continue
		}
		fields, ok := at.(map[string]any)
		if !ok {
			return value
		}
		if at, ok = fields[name]; !ok || i == 0 && name == expr.NowVariable {
			return value
		}
	}
	return at
}

// numbered returns value with json.Number as int or float64, and json.RawMessage decoded.
// An integer that no int holds stays a json.Number: it can be compared with its like and
// handed on, not calculated with.
func numbered(value any) (any, error) {
	switch v := value.(type) {
	case json.RawMessage:
		decoder := json.NewDecoder(bytes.NewReader(v))
		decoder.UseNumber()
		var decoded any
		if err := decoder.Decode(&decoded); err != nil {
			return nil, fmt.Errorf("is no JSON: %w", err)
		}
		return numbered(decoded)
	case json.Number:
		return expr.Number(v), nil
	case []any:
		made := make([]any, len(v))
		for i := range v {
			var err error
			if made[i], err = numbered(v[i]); err != nil {
				return nil, err
			}
		}
		return made, nil
	case map[string]any:
		made := make(map[string]any, len(v))
		for key := range v {
			var err error
			if made[key], err = numbered(v[key]); err != nil {
				return nil, err
			}
		}
		return made, nil
	case float64:
		// What was decoded without json.Number: 700 is an integer all the same.
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v), nil
		}
	}
	return value, nil
}
