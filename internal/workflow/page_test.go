package workflow

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is docs/workflow-format.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/workflow-format.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheDefinitionsOfThePageAreRight(t *testing.T) {
	t.Parallel()
	found := 0
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page(t), -1) {
		if !strings.HasPrefix(block[1], "{") {
			continue // a part of one
		}
		found++
		_, faults := Lint([]byte(block[1]))
		assert.Empty(t, faults, block[1])
	}
	assert.Positive(t, found)
}

// Every field of the format is on the page, and so is every type of step.
func TestThePageIsComplete(t *testing.T) {
	t.Parallel()
	text := page(t)
	l := new(linter)
	for _, s := range []any{Definition{}, Step{}, BoundaryEvent{}, Retry{}, Compensation{}} {
		for _, name := range l.fieldsOf(reflect.TypeOf(s)).names {
			assert.Contains(t, text, "`"+name+"`", "%T", s)
		}
	}
	for _, name := range types {
		assert.Contains(t, text, string(name))
	}
}

// What the page says of expressions holds.
func TestTheExpressionsOfThePageWork(t *testing.T) {
	t.Parallel()
	vars := map[string]any{
		"score": 720, "name": "fox", "first": "Ada", "last": "L.", "total": 7, "items": []any{map[string]any{"price": 5, "tag": "a"}, map[string]any{"price": 15, "tag": "b"}},
		"numbers": []any{3, 1, 2}, "user": map[string]any{"roles": []any{"ADMIN"}, "first name": "Ada", "address": map[string]any{"city": "London"}, "name": "ada"}, "a": nil,
	}
	for source, want := range map[string]any{
		`score == #score && #score == ${score}`: true, `user.address.city`: "London", `user["first name"]`: "Ada", `numbers[0]`: 3, `numbers[-1]`: 2, `-1 + 0.5`: -0.5, `[1, 2]`: []any{1, 2}, `{"a": 1}`: map[string]any{"a": 1},
		`700 == 700.0`: true, `7 % 4`: 3, `2 ** 3`: 8.0, `7 / 2`: 3.5, `'a' + "b"`: "ab", `true and not false or false`: true, `score > 1 ? 'b' : 'c'`: "b", `"ADMIN" in user.roles && contains(user.roles, "ADMIN") && "name" in user`: true,
		`name contains "o" && name startsWith "f" && name endsWith "x" && name matches "^f.x$"`: true, `upper(name) + lower("X") + trim(" y ")`: "FOXxy", `split("a,b", ",")`: []string{"a", "b"},
		`indexOf(name, "x")`: 2, `hasPrefix(name, "f") && hasSuffix(name, "x")`: true, `len(numbers) + sum(numbers) + min(numbers) + max(numbers)`: 13, `first(numbers) + last(numbers)`: 5, `mean(numbers)`: 2.0,
		`sort(numbers)`: []any{1, 2, 3}, `reverse(numbers)`: []any{2, 1, 3}, `concat(numbers, [4])`: []any{3, 1, 2, 4}, `len(keys(user)) + len(values(user))`: 8,
		`any(numbers, # > 2) && all(numbers, # > 0) && none(numbers, # > 9) && one(numbers, # == 1)`: true, `count(numbers, # > 1)`: 2, `map(items, #.price)`: []any{5, 15}, `find(items, #.price > 10).tag`: "b",
		`len(filter(items, #.price > 10))`: 1, `sortBy(items, -#.price)[0].tag`: "b", `map(values(groupBy(items, #.tag)), len(#))`: []any{1, 1}, `groupBy(numbers, # > 1)`: map[string]any{"true": []any{3, 2}, "false": []any{1}}, `reduce(numbers, # + 1)`: 3,
		`int("3") + int(2.0)`: 5, `float(1)`: 1.0, `string(5)`: "5", `fromJSON(toJSON([1]))[0]`: 1.0, `type(1)`: "int", `abs(-2) + ceil(1.2) + floor(1.8) + round(1.4)`: 6.0,
		`nickname ?? name`: "fox", `a?.b`: nil, `${first + ' ' + last}`: "Ada L.", `user.missing`: nil,
	} {
		x, err := CompileExpression(source)
		require.NoError(t, err, source)
		got, err := x.Eval(t.Context(), vars)
		require.NoError(t, err, source)
		assert.EqualValues(t, want, got, source)
	}
	for _, name := range []string{"in", "not", "and", "or", "contains", "matches", "startsWith", "endsWith", "let", "if", "else"} {
		_, err := CompileExpression(name + " == 1")
		require.Error(t, err, "%s is no name of a variable", name)
	}
}
