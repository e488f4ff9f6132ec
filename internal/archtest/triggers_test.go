package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources are the packages that know where a message came from.
var sources = []string{"handlers/trigger", "internal/server/hooks", "internal/schedule"}

// Requirement 001: what knows of the sources of work is confined to them. They and the
// creation of executions and instances are imported only by what assembles and configures
// them; behind the creation nobody can tell a trigger's work from any other. TestLayers holds
// the same of Kafka itself.
func TestRequirement001_SourcesAreConfined(t *testing.T) {
	t.Parallel()
	may := append([]string{
		"internal/trigger", "internal/ingest", // what triggers are, and what makes their targets
		"internal/server/rest", "internal/client", // people apply triggers
		"internal/alerts", "app", "cmd", "configs", "examples", "bench", "e2e",
	}, sources...)
	known := append([]string{"internal/trigger", "internal/ingest"}, sources...)
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			within, ours := strings.CutPrefix(imported, module+"/")
			if ours && under(within, known...) && !under(p.short(), may...) {
				t.Errorf("%s imports %s: what happens after the creation must not know triggers", p.short(), within)
			}
		}
	}
}

// Requirement 001: a new feature needs no branch for a source. Outside the sources and the
// creation nobody compares the kinds of origins.
func TestRequirement001_FeaturesNeedNoBranches(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || under(p.short(), sources...) || under(p.short(), "internal/trigger", "internal/ingest") {
				continue
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, nil, 0)
			require.NoError(t, err)
			for _, at := range comparisonsOfOrigins(parsed) {
				t.Errorf("%s compares the kind of an origin: then a feature works for one source and not for another", set.Position(at))
			}
		}
	}
}

// comparisonsOfOrigins are the places where a file decides by Origin.Kind.
func comparisonsOfOrigins(f *ast.File) []token.Pos {
	var found []token.Pos
	note := func(parts ...ast.Node) {
		for _, part := range parts {
			if part != nil && mentionsOriginKind(part) {
				found = append(found, part.Pos())
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			note(n.X, n.Y)
		case *ast.SwitchStmt:
			if n.Tag != nil {
				note(n.Tag)
			}
		case *ast.IndexExpr:
			note(n.Index)
		}
		return true
	})
	return found
}

// mentionsOriginKind says whether an expression is, or converts, the kind of an origin.
func mentionsOriginKind(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch x := s.X.(type) {
		case *ast.SelectorExpr:
			found = found || s.Sel.Name == "Kind" && x.Sel.Name == "Origin"
		case *ast.Ident:
			found = found || s.Sel.Name == "Kind" && strings.EqualFold(x.Name, "origin")
		}
		found = found || s.Sel.Name == "OriginKind"
		return true
	})
	return found
}

func TestComparisonsOfOriginsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`if e.Request.Origin.Kind == "kafka" {}`:                 1,
		`switch origin.Kind { case "kafka": }`:                   1,
		`_ = special[string(r.Origin.Kind)]`:                     1,
		`if "webhook" != v.OriginKind {}`:                        1,
		`row.Set(v.originKind, q.Origin.Kind); r.Origin = other`: 0,
		`if r.Kind == "job" {}`:                                  0,
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() {\n"+text+"\n}", 0)
		require.NoError(t, err)
		assert.Len(t, comparisonsOfOrigins(parsed), want, text)
	}
}
