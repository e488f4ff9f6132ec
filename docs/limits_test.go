package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/expr"
	"github.com/millrace/millrace/internal/limits"
)

// TestExamplesOfLimitsAreValid loads each configuration on the page.
func TestExamplesOfLimitsAreValid(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllStringSubmatch(read(t, "docs/limits.md"), -1)
	require.Len(t, blocks, 2)
	found := 0
	for _, block := range blocks {
		file := filepath.Join(t.TempDir(), "millrace.yaml")
		require.NoError(t, os.WriteFile(file, []byte(block[1]), 0o600))
		config, err := configs.Sources{File: file, Environ: []string{"MILLRACE_DATA_DIR=" + t.TempDir()}}.Load()
		require.NoError(t, err, block[1])
		found += len(config.LimitDefinitions())
	}
	assert.Equal(t, 7, found)
}

// TestExpressionsOfLimitsAreAsDescribed tries what the page lists.
func TestExpressionsOfLimitsAreAsDescribed(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/limits.md")
	compile := func(source string) error {
		_, err := limits.Compile([]limits.Definition{{Name: "x", Per: limits.PerKey, Key: source, Concurrency: 1}})
		return err
	}
	_, functions, found := strings.Cut(page, "- Functions: ")
	require.True(t, found)
	there, functions, found := strings.Cut(functions, "Not there are ")
	require.True(t, found)
	missing, _, _ := strings.Cut(functions, ": the same request")
	calls := map[string]string{
		"split": `split(user, "@")[0]`, "indexOf": `indexOf(user, "@")`, "hasPrefix": `hasPrefix(user, "a")`, "min": `min(priority, 3)`,
		"max": `max(priority, 3)`, "string": `string(priority)`, "int": `int("3")`, "any": `any(1..3, # > 2)`, "all": `all(1..3, # > 2)`,
		"filter": `filter(1..3, # > 2)[0]`, "map": `map(1..3, # + 1)[0]`, "count": `count(1..3, # > 2)`,
	}
	names := regexp.MustCompile("`([a-zA-Z]+)`")
	for _, name := range names.FindAllStringSubmatch(there, -1) {
		call, special := calls[name[1]]
		if !special {
			call = name[1] + "(user)"
		}
		assert.NoError(t, compile(call), call)
	}
	for _, name := range names.FindAllStringSubmatch(missing, -1) {
		assert.ErrorContains(t, compile(name[1]+"()"), "unknown name "+name[1])
	}
	for _, source := range []string{
		`let x = priority * 7 % 3; x`, `priority ** 2 > 9`, `user in ["a"] ? "a" : "b"`, `user contains "a" || user endsWith "b" && !(user startsWith "c")`,
		`labels["cost-centre"]`, `"team" in labels`, `split(user, "@")[1]`,
	} {
		assert.NoError(t, compile(source), source)
	}
	budgets := fmt.Sprintf("An expression has at most %d bytes and %d parts. One evaluation may take %d steps",
		expr.MaxSource, expr.MaxNodes, limits.MaxSteps)
	assert.Contains(t, page, budgets)
	assert.Contains(t, page, fmt.Sprintf("of at most %d bytes, without control characters", limits.MaxKeyBytes))
}
