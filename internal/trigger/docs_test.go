package trigger_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
)

func formatPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/trigger-format.md")
	require.NoError(t, err)
	return string(text)
}

// TestEveryFieldIsDocumented holds that the page has every field of a definition.
func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	page := formatPage(t)
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !strings.HasSuffix(of.PkgPath(), "internal/trigger") {
			return
		}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			assert.Regexp(t, regexp.MustCompile("[`.{]"+name+"[`:.]"), page, "%s.%s", of, field.Name)
			walk(field.Type)
		}
	}
	walk(reflect.TypeFor[trigger.Definition]())
}

// TestEveryCodeIsDocumented holds that the page has every code of faults.
func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	page := formatPage(t)
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	require.NoError(t, err)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			assert.NoError(t, err)
			assert.Contains(t, page, "`"+code+"`", spec.Names[0].Name)
			found++
		}
		return true
	})
	assert.Greater(t, found, 15)
}

// TestDocumentedTriggersCompile compiles the first example of the page.
func TestDocumentedTriggersCompile(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(formatPage(t), "```yaml\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	documents, faults := trigger.ReadDocuments([]byte(text))
	require.Empty(t, faults)
	require.Len(t, documents, 1)
	_, faults = trigger.Check(documents[0].JSON, installed())
	assert.Empty(t, faults)
}
