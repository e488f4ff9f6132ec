package archtest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/millrace/millrace"

// root is the top of the repository, from this package's folder.
const root = "../.."

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Imports    []string
}

// short is the import path within the module.
func (p pkg) short() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// under reports whether a package path is one of the prefixes or below one.
func under(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// A rule names imports that only some packages may have.
type rule struct {
	imports []string // import paths or prefixes
	only    []string // the packages that may, by path within the module
	why     string
}

func rules() []rule {
	return []rule{
		{
			[]string{"go.uber.org/fx"},
			[]string{"app"},
			"fx assembles the program in one place; packages export plain constructors",
		},
		{
			[]string{"github.com/twmb/franz-go"},
			[]string{"internal/kafka", "internal/embedded", "internal/testenv", "examples/triggers", "bench", "e2e"},
			"only the transport knows a Kafka client, and what plays a person with Kafka's tools",
		},
		{
			[]string{"github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill-kafka"},
			[]string{"internal/kafka/stock", "bench"},
			"only the stock driver knows that client, so that it can be left out of a build",
		},
		{
			[]string{"github.com/99designs/gqlgen", "github.com/vektah/gqlparser"},
			[]string{"internal/server/graphql"},
			"only its server knows a GraphQL library",
		},
		{
			[]string{"google.golang.org/grpc"},
			[]string{"api/proto", "internal/server/grpc", "sdk", "bench", "examples", "e2e"},
			"only its server and its clients know gRPC",
		},
		{
			[]string{"github.com/netresearch/go-cron"},
			[]string{"internal/schedule/cron"},
			"only one package knows a library for cron expressions, and says what they mean",
		},
		{
			[]string{"k8s.io/client-go"},
			[]string{"internal/executor/kubernetes", "app", "bench", "e2e"},
			"only its executor knows a Kubernetes client",
		},
		{
			[]string{module + "/app"},
			[]string{"cmd", "examples", "bench", "e2e"},
			"app is the top: what it assembles must not know it",
		},
		{
			[]string{module + "/internal/executor/kubernetes/kubetest", module + "/internal/testenv/realkube"},
			[]string{"internal/executor/kubernetes/kubetest", "internal/testenv/realkube", "bench", "e2e"},
			"a cluster for tests has no business in the program",
		},
		{
			[]string{module + "/internal/kafka"},
			[]string{"app", "cmd", "internal/kafka", "internal/server", "handlers/trigger/kafkasource", "bench", "e2e"},
			"nothing but the assembly, the tools and the source of Kafka triggers may ask whether work came from Kafka",
		},
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for _, r := range rules() {
				if !under(imported, r.imports...) || under(p.short(), r.only...) {
					continue
				}
				t.Errorf("%s imports %s: only %s may, because %s",
					p.short(), imported, strings.Join(r.only, ", "), r.why)
			}
		}
	}
}

// TestDirection holds the one way in which the layers depend on each other.
func TestDirection(t *testing.T) {
	t.Parallel()
	// A package on the left may import, within the module, only what is on the
	// right (and itself). Test packages are not listed by go list's Imports.
	allowed := map[string][]string{
		"topics":                 {"topics"},
		"internal/delivery":      {"topics"},
		"middleware":             {"topics", "internal/delivery", "internal/secret"},
		"pipeline":               {"topics", "internal/delivery", "middleware", "pipeline", "internal/crash", "internal/secret"},
		"sagas":                  {"topics", "middleware", "pipeline", "internal/workflow"},
		"sagas/execution":        {"sagas"},
		"internal/execution":     {"topics", "internal/executor"},
		"internal/executor/spec": {},
		"internal/expr":          {},
		"internal/workflow":      {"internal/expr", "internal/rawjson"},
		"internal/rawjson":       {},
		"internal/definitions":   {"internal/workflow", "internal/postgres"},
		"internal/limits":        {"topics", "internal/expr"},
		"internal/kafka":         {"topics", "internal/delivery", "internal/kafka", "internal/secret", "internal/crash"},
		"internal/outbox":        {"topics", "internal/delivery", "internal/postgres", "internal/lease", "internal/crash"},
		"internal/lifecycle":     {"topics"},
		"internal/jobs":          {"topics", "internal/outbox", "internal/postgres"},
		"internal/lease":         {"internal/postgres", "internal/crash"},
		"internal/crash":         {},
		"internal/replay":        {"topics", "middleware", "internal/crash", "internal/eventlog", "internal/lease", "internal/postgres", "internal/secret"},
		"internal/postgres":      {"internal/secret"},
		"internal/ingest": {"topics", "middleware", "internal/crash", "internal/deadletter", "internal/definitions", "internal/engine", "internal/execution",
			"internal/inbox", "internal/outbox", "internal/postgres", "internal/trigger"},
		"internal/trigger": {
			"topics", "internal/expr", "internal/execution", "internal/executor/spec", "internal/rawjson", "internal/schedule/cron", "internal/server/strictjson"},
		"internal/trigger/secrets": {"internal/trigger", "internal/secret"},
		"internal/trigger/store":   {"internal/trigger", "internal/postgres"},
		"internal/query":           {"internal/postgres", "internal/execution"},
		"internal/schedule/cron":   {},
		// The supervisor and its sources make targets through ingest alone.
		"handlers/trigger": {
			"topics", "internal/delivery", "internal/ingest", "internal/kafka", "internal/lease", "internal/postgres", "internal/schedule", "internal/secret", "internal/trigger",
		},
	}
	for _, p := range packages(t) {
		may, listed := allowed[p.short()]
		if !listed {
			continue
		}
		for _, imported := range p.Imports {
			within, ours := strings.CutPrefix(imported, module+"/")
			if ours && !under(within, append(may, p.short())...) {
				t.Errorf("%s imports %s: it may only import %v", p.short(), within, may)
			}
		}
	}
}

func TestHandlersMeetOnTopicsOnly(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if !under(p.short(), "handlers") {
			continue
		}
		for _, imported := range p.Imports {
			within, _ := strings.CutPrefix(imported, module+"/")
			assert.False(t, under(within, "handlers") && !under(p.short(), within) && !under(within, p.short()),
				"%s imports %s: handlers never import each other", p.short(), within)
		}
	}
}

func TestPurePackagesDoNoIO(t *testing.T) {
	t.Parallel()
	forbidden := []string{"net", "net/http", "os", "os/exec", "database/sql", "github.com/jackc", "github.com/twmb"}
	for _, p := range packages(t) {
		if !under(p.short(), "topics", "internal/executor/spec", "internal/expr", "internal/lifecycle", "internal/workflow", "internal/schedule/cron") &&
			!slices.Contains([]string{"internal/execution", "internal/limits", "internal/trigger"}, p.short()) {
			continue
		}
		for _, imported := range p.Imports {
			assert.False(t, slices.Contains(forbidden, imported) || under(imported, forbidden[5:]...),
				"%s is pure and imports %s", p.short(), imported)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	forbidden := []string{"util", "utils", "common", "misc", "types", "models", "helpers"}
	for _, p := range packages(t) {
		assert.NotContains(t, forbidden, p.Name, "package %s says nothing with its name", p.short())
	}
}

// TestPackageDocs holds that every package has exactly one package comment, and
// that godoc sees it.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		require.NoError(t, err)
		var documented []string
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
			require.NoError(t, err)
			if hasDoc(parsed) {
				documented = append(documented, filepath.Base(file))
			}
		}
		if len(files) > 0 && !onlyTests(files) {
			assert.Len(t, documented, 1, "%s: want one package comment, found in %v", p.short(), documented)
		}
	}
}

func hasDoc(f *ast.File) bool {
	return f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "Code generated")
}

func onlyTests(files []string) bool {
	return !slices.ContainsFunc(files, func(f string) bool { return !strings.HasSuffix(f, "_test.go") })
}

// maxLines is how long a file written by hand may be.
const maxLines = 500

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != root {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		lines, generated := countLines(t, path)
		if !generated {
			assert.LessOrEqual(t, lines, maxLines, "%s is too long: split it", path)
		}
		return nil
	})
	require.NoError(t, err)
}

func countLines(t *testing.T, path string) (lines int, generated bool) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); lines++ {
		generated = generated || strings.HasPrefix(s.Text(), "// Code generated")
	}
	return lines, generated
}

// TestModulesOfUsers keeps what users import apart from the engine: neither knows the
// other, so that one can be had without the other, and in any version of it.
func TestModulesOfUsers(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"sdk/go", "e2e/workflows"} {
		text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			for _, word := range strings.Fields(line) {
				assert.NotEqual(t, module, word, "%s/go.mod must not know the engine's module", dir)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), module+"/", "the engine's go.mod must not know the modules of users: it could not be installed by version")
}
