package expr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/expr"
)

type request struct {
	User     string            `expr:"user"`
	Priority int               `expr:"priority"`
	Labels   map[string]string `expr:"labels"`
	Size     int64             `expr:"size"`
}

func environment() expr.Environment {
	return expr.NewEnvironment(map[string]any{"request": request{}, "items": []any{}, "texts": []string{}, "input": map[string]any{}})
}

func variables() map[string]any {
	return map[string]any{
		"request": request{User: "ada", Priority: 3, Labels: map[string]string{"team": "blue"}, Size: 1 << 40},
		"items":   []any{1, 2, 3}, "texts": []string{"a", "b"}, "input": map[string]any{"n": 7, "deep": map[string]any{"x": "y"}},
	}
}

func TestExpressionsGiveValues(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]any{
		`request.user`:                             "ada",
		`request.labels.team`:                      "blue",
		`request.labels["none"] ?? "nobody"`:       "",
		`request.user + "/" + request.labels.team`: "ada/blue",
		`request.priority * 2`:                     6,
		`filter(items, # > 1)`:                     []any{2, 3},
		`map(texts, upper(#))`:                     []any{"A", "B"},
		`input.deep.x`:                             "y",
		`input.none?.x`:                            nil,
		`len(texts) > 1 ? "many" : "few"`:          "many",
		`sum(items)`:                               6,
		`{"a": request.user}`:                      map[string]any{"a": "ada"},
	} {
		p, err := expr.Compile[any](source, environment())
		require.NoError(t, err, source)
		got, err := p.Eval(t.Context(), variables())
		require.NoError(t, err, source)
		assert.Equal(t, want, got, source)
	}
}

func TestResultsAreTyped(t *testing.T) {
	t.Parallel()
	yes, err := expr.Compile[bool](`request.priority > 2 && request.user startsWith "a"`, environment())
	require.NoError(t, err)
	ok, err := yes.Eval(t.Context(), variables())
	require.NoError(t, err)
	assert.True(t, ok)

	number, err := expr.Compile[int64](`request.size + 1`, environment())
	require.NoError(t, err)
	n, err := number.Eval(t.Context(), variables())
	require.NoError(t, err)
	assert.Equal(t, int64(1<<40+1), n)

	share, err := expr.Compile[float64](`request.priority / 2`, environment())
	require.NoError(t, err)
	f, err := share.Eval(t.Context(), variables())
	require.NoError(t, err)
	assert.InDelta(t, 1.5, f, 0)

	text, err := expr.Compile[string](`input.n`, environment())
	require.NoError(t, err, "its type is known at evaluation only")
	_, err = text.Eval(t.Context(), variables())
	require.ErrorContains(t, err, "gives a int, not a string")
	_, err = text.Eval(t.Context(), nil)
	require.Error(t, err)
}

func TestMistakesAreFoundWhenCompiled(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		``:                     "the expression is empty",
		`request.usr`:          "column 9",
		`request.user +`:       "column",
		`nobody == 1`:          "unknown name nobody",
		`request.user > 3`:     "mismatched types",
		`now() > request.user`: "now",
		`replace(request.user, "", request.user)`: "replace",
		`keys($env)`:                     "$env is not available",
		strings.Repeat("1+", 2050) + "1": "at most 4096",
		strings.Repeat("1+", 300) + "1":  "nodes",
		strings.Repeat("(", 3000):        "",
	} {
		_, err := expr.Compile[any](source, environment())
		var syntax *expr.SyntaxError
		require.ErrorAs(t, err, &syntax, "%.80s", source)
		assert.Contains(t, err.Error(), want, "%.80s", source)
	}
	_, err := expr.Compile[bool](`request.user`, environment())
	require.ErrorContains(t, err, "expected bool")
	_, err = expr.Compile[int64](`request.user`, environment())
	require.Error(t, err)
}

// What grows or loops is stopped by the budget, however it is written.
func TestCostIsBounded(t *testing.T) {
	t.Parallel()
	long := make([]any, 100_000)
	for i := range long {
		long[i] = strings.Repeat("x", 100)
	}
	vars := variables()
	vars["items"] = long
	vars["input"] = map[string]any{"text": strings.Repeat("x", 1<<20)}
	doubling := "let a0 = input.text; "
	for i, c := range "abcdefghijklmnopqrstuvwxyz" {
		previous := "a0"
		if i > 0 {
			previous = string("abcdefghijklmnopqrstuvwxyz"[i-1]) + "v"
		}
		doubling += "let " + string(c) + "v = " + previous + " + " + previous + "; "
	}
	for _, source := range []string{
		`all(items, let a = #; all(items, # == a))`,
		`count(items, any(items, any(items, # == "y"))) > 0`,
		`1..1000000000`,
		`reduce(1..99, #acc + #acc, input.text)`,
		`map(1..1000, input.text + "y")`,
		`map(items, split(input.text, ""))`,
		`map(1..10000, items)`,
		doubling + "len(zv)",
		`sortBy(items, count(items, # > "a"))`,
		`filter(items, len(concat(items, items)) > 0)`,
		`count(1..1000, input.text contains "y") > 0`,
		`count(1..1000, input.text matches "y+$") > 0`,
		`count(1..1000, input.text == input.text + "") > 0`,
		`count(1..1000, "none" in items) > 0`,
	} {
		p, err := expr.Compile[any](source, environment())
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		_, err = p.Eval(t.Context(), vars)
		require.ErrorIs(t, err, expr.ErrBudget, source)
	}
}

func TestABudgetCanBeTighter(t *testing.T) {
	t.Parallel()
	p, err := expr.Compile[any](`count(1..900, # > 0)`, environment())
	require.NoError(t, err)
	for steps, enough := range map[int]bool{expr.MaxSteps: true, 2 * expr.MaxSteps: true, expr.Untimed: true, 900: false, 0: false, -1: false} {
		_, err := p.Within(steps).Eval(t.Context(), variables())
		if enough {
			require.NoError(t, err, steps)
			continue
		}
		require.ErrorIs(t, err, expr.ErrBudget, steps)
	}
	_, err = p.Within(900).Eval(t.Context(), variables())
	require.ErrorContains(t, err, "the expression costs too much: more than 900 steps")
	_, err = p.Eval(t.Context(), variables())
	require.NoError(t, err, "the program itself has the budget that it had")
}

func TestEvaluationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p, err := expr.Compile[any](`map(items, # + 1)`, environment())
	require.NoError(t, err)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err = p.Eval(ctx, variables())
	require.ErrorIs(t, err, cause)
}

func TestOperatorsStillWorkUnderCharge(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		`request.user in ["ada", "bob"]`:                       true,
		`request.user not in ["ada", "bob"]`:                   false,
		`"team" in request.labels`:                             true,
		`"b" in texts && request.user matches "^a.a$"`:         true,
		`request.user contains "d" && !(request.user < "ac")`:  true,
		`request.labels.team != "red" && nil == input["none"]`: true,
		`request.user endsWith "x" || request.size >= 1`:       true,
	} {
		p, err := expr.Compile[bool](source, environment())
		require.NoError(t, err, source)
		got, err := p.Eval(t.Context(), variables())
		require.NoError(t, err, source)
		assert.Equal(t, want, got, source)
	}
}

func FuzzExpressions(f *testing.F) {
	for _, seed := range []string{`request.user`, `map(items, # + 1)`, `let a = input; a.b?.c ?? 1`, `1..9 | filter(# > 3)`, `-1 ** 99`, `texts[5]`, `"\x00charge"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := expr.Compile[any](source, environment())
		if err != nil {
			var syntax *expr.SyntaxError
			require.ErrorAs(t, err, &syntax)
			return
		}
		_, _ = p.Eval(t.Context(), variables())
	})
}

func BenchmarkEval(b *testing.B) {
	p, err := expr.Compile[string](`request.user + "/" + request.labels.team`, environment())
	require.NoError(b, err)
	vars := variables()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Eval(b.Context(), vars)
	}
}
