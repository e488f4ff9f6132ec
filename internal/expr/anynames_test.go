package expr_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/expr"
)

func free(t *testing.T, source string) *expr.Program[any] {
	t.Helper()
	p, err := expr.Compile[any](source, expr.AnyNames())
	require.NoError(t, err, source)
	return p
}

func TestAnyNameIsAVariable(t *testing.T) {
	t.Parallel()
	vars := map[string]any{
		"creditScore": 720, "status": "APPROVED", "roles": []any{"ADMIN", 7}, "user": map[string]any{"name": "ada", "tags": []any{"x"}}, "count": 3, "len": 4, "größe": 5,
		"ok": true, "half": 0.5, "nothing": nil, "filter": "f", expr.NowVariable: "2026-01-02T03:04:05Z",
	}
	for source, want := range map[string]any{
		// The three ways to name a variable.
		`creditScore`: 720, `#creditScore`: 720, `${creditScore}`: 720, ` ${ #creditScore } + #creditScore`: 1440, `größe + #größe`: 10,
		`user.name`: "ada", `${user.name}`: "ada", `#user.name`: "ada", `${user}.name`: "ada", `user["name"]`: "ada", `user.none`: nil, `user?.none?.deep`: nil,
		// Names of functions are names of variables too.
		`count + len`: 7, `len(roles) + len`: 6, `filter == "f"`: true, `count(roles, # == 7)`: 1,
		// Operators.
		`#creditScore >= 700 && #creditScore < 750`: true, `!ok || status != 'APPROVED'`: false, `(count - 1) * 2 / 4`: 1.0, `count == 3.0`: true, `half < 1`: true, `-count`: -3,
		`"ADMIN" in roles`: true, `7.0 in roles`: true, `"none" not in roles`: true, `"name" in user`: true, `ok and not (count > 3)`: true, `count % 2`: 1,
		`contains(roles, 'ADMIN')`: true, `contains(user.tags, "y")`: false, `!contains(roles, 1 + 6)`: false, `contains (roles, 'x') || contains(roles,7)`: true,
		`status contains "PROVE"`: true, `status contains ("x")`: false, `(status) contains 'x'`: false, `roles[0] contains "A"`: true, `"a" contains("a")`: true,
		// What is in a string stays there.
		`'#creditScore ${user} contains(a, b)' + "#x"`: "#creditScore ${user} contains(a, b)#x", `"it's" == 'it\'s'`: true, "`a\\`": `a\`, `"}" + ${"{"}`: "}{", `'"'`: `"`,
		// Braces within braces, and functions over lists.
		`${ {"a": ${count}}.a }`: 3, `map(roles, {{"r": #}})[0].r`: "ADMIN", `filter(roles, # == 7)[0]`: 7, `let n = count; n + 1`: 4, `count > 2 ? "many" : "few"`: "many", `if ok { 1 } else { 2 }`: 1,
		// Nothing.
		`nothing == null && nothing == nil`: true, `missing ?? 1`: 1, `(missing.deep ?? user.none) ?? "x"`: "x", `now()`: "2026-01-02T03:04:05Z", `now() > "2026-01-01"`: true,
	} {
		got, err := free(t, source).Eval(t.Context(), vars)
		require.NoError(t, err, source)
		assert.Equal(t, want, got, source)
	}
}

func TestVariablesThatAreNotThere(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`missing`: `undefined variable "missing"`, `true || missing`: `undefined variable "missing"`, `#missing.deep == 1`: `undefined variable "missing"`,
		`missing ?? missing2`: `undefined variable "missing2"`, `now()`: "now() has no meaning here", `filter([1], # == missing)`: `undefined variable "missing"`,
	} {
		_, err := free(t, source).Eval(t.Context(), nil)
		require.ErrorIs(t, err, expr.ErrUndefined, source)
		require.ErrorContains(t, err, want, source)
	}
	assert.Equal(t, []string{"a", "b", "c"}, free(t, `#b.x + ${a} + len(c)`).Names())
	assert.Equal(t, []string{"a", "b", "c"}, free(t, `${a.b?.c}`).Path())
	for _, source := range []string{`a + 0`, `a[0]`, `"a"`, `[a]`, `a ?? b`} {
		assert.Empty(t, free(t, source).Path(), source)
	}
}

func TestMistakesInTheDialect(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`a >=`:                 "line 1, column 5: it ends where something is missing",
		`${a`:                  "line 1, column 1: unterminated ${",
		`b + ${a`:              "line 1, column 5: unterminated ${",
		`a == 'x`:              "line 1, column 6: unterminated string",
		`${a + }`:              `line 1, column 7: unexpected "}"`,
		`${a} ${b}`:            `line 1, column 7: unexpected "{"`,
		"a +\n  )":             `line 2, column 3: unexpected ")"`,
		`a b`:                  `unexpected "b"`,
		`unknown(1)`:           "there is no function unknown",
		`a.method(1)`:          "values have no functions of their own",
		`contains(a)`:          "contains takes two arguments",
		`a contains`:           "it ends where something is missing",
		`now(1)`:               "there is no function now",
		`a // comment`:         "no comments",
		`a /* comment */`:      "no comments",
		`$env`:                 "$env is not available",
		`replace(a, b, c)`:     "there is no function replace",
		`date("2026-01-01")`:   "there is no function date",
		`a == 1 2`:             "unexpected",
		`}`:                    "unexpected",
		``:                     "the expression is empty",
		`99999999999999999999`: "invalid integer literal",
	} {
		_, err := expr.Compile[any](source, expr.AnyNames())
		var syntax *expr.SyntaxError
		require.ErrorAs(t, err, &syntax, source)
		assert.Contains(t, err.Error(), want, source)
	}
	_, err := expr.Compile[bool](`1 + 2`, expr.AnyNames())
	require.ErrorContains(t, err, "expected bool")
}

func TestIntegersAreExact(t *testing.T) {
	t.Parallel()
	vars := map[string]any{"big": math.MaxInt, "small": math.MinInt, "odd": 1<<53 + 1, "one": 1, "text": "a", "list": []any{1}}
	for source, want := range map[string]any{
		`odd + 0 == 9007199254740993`: true, `odd == 9007199254740992`: false, `big - one`: math.MaxInt - 1, `small + one`: math.MinInt + 1, `big * one`: math.MaxInt, `-1 * big`: -math.MaxInt,
		`0 * small`: 0, `text + "b"`: "ab", `1.5 + one`: 2.5, `one - 0.5`: 0.5, `2 * 1.5`: 3.0, `big + 0.5 > 9e18`: true, `3037000499 * 3037000499`: 3037000499 * 3037000499,
	} {
		got, err := free(t, source).Eval(t.Context(), vars)
		require.NoError(t, err, source)
		assert.Equal(t, want, got, source)
	}
	for _, source := range []string{`big + one`, `one + big`, `small - one`, `big * 2`, `small * -1`, `-1 * small`, `one - small`, `small + -1`, `3037000500 * 3037000500`} {
		_, err := free(t, source).Eval(t.Context(), vars)
		require.ErrorContains(t, err, "too large for an integer", source)
	}
	for _, source := range []string{`text - one`, `one + text`, `text * text`, `text > one`, `list + 1`} {
		_, err := free(t, source).Eval(t.Context(), vars)
		require.Error(t, err, source)
	}
}

// The dialect is under the budgets of the language.
func TestTheDialectIsBounded(t *testing.T) {
	t.Parallel()
	list := make([]any, 100_000)
	for i := range list {
		list[i] = i
	}
	for _, source := range []string{
		`count(items, contains(items, # + 1000000)) > 0`, `count(1..1000, #missing ?? contains(items, -1)) > 0`, `map(items, items)`,
	} {
		_, err := free(t, source).Eval(t.Context(), map[string]any{"items": list})
		require.ErrorIs(t, err, expr.ErrBudget, source)
	}
}

func FuzzDialect(f *testing.F) {
	for _, seed := range []string{`#a >= 700 && ${b.c} == 'x'`, `contains(a, "${b}")`, `'a\'' + #b`, `${${a}}`, `{"a": ${a}}`, `now() ?? null`, "`#a`", `a.contains(b)`, `$ #`, `9223372036854775807 + a * 2`, `\x00calculate("+", 1, 2)`} {
		f.Add(seed)
	}
	vars := map[string]any{"a": 1, "b": map[string]any{"c": "x"}, "$": []any{1.5, nil}}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := expr.Compile[any](source, expr.AnyNames())
		if err != nil {
			var syntax *expr.SyntaxError
			require.ErrorAs(t, err, &syntax)
			return
		}
		_, _ = p.Eval(t.Context(), vars)
	})
}
