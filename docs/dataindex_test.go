package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDefectsOfLifecycleEventsAreDocumented compares the codes of package lifecycle, and
// those of package topics that it can meet, with the page that says what they mean.
func TestDefectsOfLifecycleEventsAreDocumented(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "docs/data-index.md"), "## What cannot be read")
	require.True(t, found)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(section, -1) {
		assert.False(t, documented[m[1]], "%s is there twice", m[1])
		documented[m[1]] = true
	}
	// Events of any type are read here: these are for readers of one.
	never := []string{"unexpected_type", "schema_violation"}
	known := map[string]bool{}
	for _, file := range []string{"topics/errors.go", "internal/lifecycle/defects.go"} {
		for _, code := range codesIn(t, file) {
			known[code] = true
		}
	}
	for _, code := range never {
		delete(known, code)
	}
	assert.Equal(t, known, documented)
}

// codesIn returns the values of a file's constants that are called Code something.
func codesIn(t *testing.T, path string) (codes []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, read(t, path), 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			codes = append(codes, code)
		}
		return true
	})
	return codes
}
