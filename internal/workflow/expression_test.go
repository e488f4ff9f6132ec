package workflow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExpressionsOfDefinitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src  string
		want any
	}{
		{"#a >= 700 && ${b.c} == 'x'", true}, {"contains(r, 'A')", true}, {"'#a ${b}' == \"#a ${b}\"", true}, {"${big}", json.Number("9007199254740993")},
		{"big + 1", 9007199254740994}, {"a == 700.0", true}, {"now()", "2026-01-02T03:04:05Z"}, {"x ?? 3", 3}, {"b.none == null", true}, {"len(r) > 0", true}, {"raw.n + 1", 3}, {"${raw.n}", json.RawMessage("2")},
		{"f + 0", 701}, {"{'a': ${a}}.a", 700}, {"\"A\" in r", true}, {"filter(r, # == 'A')", []any{"A"}}, {"let q = a; q + 1", 701}, {"'abc' contains 'b'", true}, {"(s) contains ('b')", true},
	} {
		x, err := CompileExpression(c.src)
		require.NoError(t, err, c.src)
		got, err := x.EvalAt(t.Context(), map[string]any{"a": json.Number("700"), "b": map[string]any{"c": "x"}, "r": []any{"A", "B"}, "big": json.Number("9007199254740993"), "raw": json.RawMessage(`{"n":2}`), "f": 701.0, "s": "abc"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		require.NoError(t, err, c.src)
		require.Equal(t, c.want, got, c.src)
	}
	for _, src := range []string{"a ==", "${a", "'a", "foo(1)", "a.b()", "$contain(1)", "${a} ${b}", "contains(a)", "$env"} {
		_, err := CompileExpression(src)
		require.Error(t, err, src)
		t.Log(err)
	}
	x, _ := CompileExpression("true || nope == 1")
	_, err := x.Eval(t.Context(), nil)
	t.Log(err)
	require.Error(t, err)
}
