package crash_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/crash"
)

// passed returns where the points are in the source, by name.
func passed(t *testing.T) map[string][]string {
	t.Helper()
	const root = "../.."
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || called.Sel.Name != "At" {
				return true
			}
			if of, ok := called.X.(*ast.Ident); !ok || of.Name != "crash" {
				return true
			}
			where := files.Position(call.Pos()).String()
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !assert.True(t, ok, "%s: the name of a point must be a literal", where) {
				return true
			}
			name, err := strconv.Unquote(literal.Value)
			assert.NoError(t, err)
			found[name] = append(found[name], where)
			return true
		})
		return nil
	})
	require.NoError(t, err)
	return found
}

func TestPointsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	found := passed(t)
	for _, p := range crash.Points() {
		assert.Len(t, found[p.Name], 1, "%s is described: it must be in the source, in one place", p.Name)
		assert.Regexp(t, `^[a-z_]+\.[a-z_]+$`, p.Name)
		assert.Regexp(t, `^[A-Z].*: .*\.$`, p.Meaning, p.Name)
		delete(found, p.Name)
	}
	assert.Empty(t, found, "in the source, and not described")
}

// At must be free in the builds that people run.
func TestAtDoesNotAllocate(t *testing.T) { // not parallel: others would be counted
	assert.Zero(t, testing.AllocsPerRun(1000, func() { crash.At("relay.published") }))
}

func BenchmarkAt(b *testing.B) {
	for b.Loop() {
		crash.At("relay.published")
	}
}

func BenchmarkNothing(b *testing.B) {
	for b.Loop() {
	}
}
