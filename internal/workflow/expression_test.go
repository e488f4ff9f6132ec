package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/expr"
)

// inEveryForm are variables as encoding/json makes them of a text, with json.Number and
// without it, and as a raw text for each.
func inEveryForm(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	var exact, floats map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&exact))
	require.NoError(t, json.Unmarshal([]byte(text), &floats))
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(text), &raw))
	texts := map[string]any{}
	for name, value := range raw {
		texts[name] = value
	}
	return map[string]map[string]any{"exact": exact, "floats": floats, "texts": texts}
}

func TestExpressionsReadVariablesInEveryForm(t *testing.T) {
	t.Parallel()
	forms := inEveryForm(t, `{"score": 700, "rate": 0.5, "round": 7.0, "user": {"roles": ["ADMIN", 3], "age": 18, "deep": {"n": 1e2}}, "empty": null, "list": [1, 2.5, "x"]}`)
	for source, want := range map[string]any{
		`#score == 700.0 && score >= 700`: true, `score / 2`: 350.0, `score + 1`: 701, `round + 1 == 8`: true, `rate * 2`: 1.0, `3 in user.roles`: true, `user.age + user.deep.n`: 118.0,
		`contains(user.roles, 'ADMIN')`: true, `empty == null`: true, `len(list) == 3`: true, `list[1] > list[0]`: true, `user.deep.missing ?? 5`: 5, `[rate, score]`: []any{0.5, 700},
	} {
		x, err := CompileExpression(source)
		require.NoError(t, err, source)
		for form, vars := range forms {
			got, err := x.Eval(t.Context(), vars)
			require.NoError(t, err, "%s of %s", source, form)
			if source == `round + 1 == 8` || form == "exact" || form == "texts" {
				assert.Equal(t, want, got, "%s of %s", source, form)
				continue
			}
			assert.EqualValues(t, want, got, "%s of %s", source, form)
		}
	}
}

// What an expression only hands on keeps its digits.
func TestNumbersAreHandedOnAsTheyWere(t *testing.T) {
	t.Parallel()
	const text = `{"big": 9007199254740993, "huge": 123456789012345678901234567890, "other": 123456789012345678901234567891, "point": 700.00, "order": {"id": 9007199254740993, "items": [1.10]}}`
	forms := inEveryForm(t, text)
	for source, want := range map[string]string{
		`${big}`: `9007199254740993`, `huge`: `123456789012345678901234567890`, `#point`: `700.00`, `order.id`: `9007199254740993`, `${order}`: `{"id":9007199254740993,"items":[1.10]}`,
		`big + 1`: `9007199254740994`, `order.id - 1`: `9007199254740992`, `huge == huge`: `true`, `huge == other`: `false`, `{"a": big}`: `{"a":9007199254740993}`, `big == order.id`: `true`, `order.none`: `null`,
	} {
		x, err := CompileExpression(source)
		require.NoError(t, err, source)
		for _, form := range []string{"exact", "texts"} {
			got, err := x.Eval(t.Context(), forms[form])
			require.NoError(t, err, "%s of %s", source, form)
			made, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, want, string(made), "%s of %s", source, form)
			if want[0] != '{' {
				assert.Equal(t, want, string(made), "%s of %s", source, form)
			}
		}
	}
	for _, source := range []string{`huge + 1`, `huge > 1`} {
		x, err := CompileExpression(source)
		require.NoError(t, err)
		_, err = x.Eval(t.Context(), forms["exact"])
		require.Error(t, err, "%s cannot be calculated with, and says so", source)
	}
}

func TestExpressionsThatFail(t *testing.T) {
	t.Parallel()
	vars := map[string]any{"a": 1, "zero": 0, "text": "x", "broken": json.RawMessage(`{`), "user": json.RawMessage(`{"name":"ada"}`)}
	for source, want := range map[string]string{
		`missing`: "undefined variable", `a / zero`: "division by zero", `[a / zero]`: "division by zero", `{"x": {"y": a / zero}}`: "division by zero", `-a / zero`: "division by zero",
		`text > 1`: "invalid operation", `broken`: "is no JSON", `now()`: "now() has no meaning here", `user.name.first`: "invalid operation", `9223372036854775807 + a`: "too large for an integer",
	} {
		x, err := CompileExpression(source)
		require.NoError(t, err, source)
		_, err = x.Eval(t.Context(), vars)
		require.ErrorContains(t, err, want, source)
		require.ErrorContains(t, err, fmt.Sprintf("evaluate %q", source))
	}
	x, err := CompileExpression(`a / zero > 1`)
	require.NoError(t, err)
	got, err := x.Eval(t.Context(), vars)
	require.NoError(t, err)
	assert.Equal(t, true, got)
	_, err = CompileExpression(`a >`)
	var syntax *expr.SyntaxError
	require.ErrorAs(t, err, &syntax)
}

func TestNow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600))
	for source, want := range map[string]any{"${now()}": "2026-01-02T03:04:05Z", "now() + '!'": "2026-01-02T03:04:05Z!", "now": "mine"} {
		x, err := CompileExpression(source)
		require.NoError(t, err, source)
		got, err := x.EvalAt(t.Context(), map[string]any{"now": "mine"}, at)
		require.NoError(t, err, source)
		assert.Equal(t, want, got, source)
	}
}

func FuzzEval(f *testing.F) {
	f.Add(`#a.b[0] + ${c}`, `{"a":{"b":[1]},"c":2.5}`)
	f.Add(`c`, `{"c":1e400}`)
	f.Fuzz(func(t *testing.T, source, variables string) {
		var vars map[string]json.RawMessage
		x, err := CompileExpression(source)
		if err != nil || json.Unmarshal([]byte(variables), &vars) != nil {
			return
		}
		given := map[string]any{}
		for name, value := range vars {
			given[name] = value
		}
		got, err := x.EvalAt(t.Context(), given, time.Unix(0, 0))
		if err == nil {
			_, err = json.Marshal(got)
			require.NoError(t, err, "what it gives can be kept")
		}
	})
}
