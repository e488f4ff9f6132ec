package expr_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/expr"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[json.Number]any{
		"7": 7, "-3": -3, "2.5": 2.5, "1e3": 1000.0, "1E400": json.Number("1E400"),
		"9223372036854775807": math.MaxInt64, "9223372036854775808": json.Number("9223372036854775808"),
	} {
		assert.Equal(t, want, expr.Number(text), text)
	}
}

func TestStorable(t *testing.T) {
	t.Parallel()
	got, err := expr.Storable(map[string]any{"groups": map[any][]any{1: {"a"}, true: {map[any][]any{nil: {2.5}}}}})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"groups": map[string]any{"1": []any{"a"}, "true": []any{map[string]any{"<nil>": []any{2.5}}}}}, got)
	for _, no := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, value := range []any{no, []any{no}, map[string]any{"a": no}, map[any][]any{1: {no}}} {
			_, err := expr.Storable(value)
			assert.EqualError(t, err, "the result is no number (a division by zero?)", "%v", value)
		}
	}
}
