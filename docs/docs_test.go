package docs_test

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// pages returns the Markdown files of the repository by their slash-separated
// names, without those in hidden folders.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != ".." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".md") {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			found[filepath.ToSlash(name)] = read(t, filepath.ToSlash(name))
		}
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, found, "README.md")
	return found
}

// goBlocks returns the blocks of Go code on a page.
func goBlocks(page string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestCodeOnPagesIsCodeThatIsTested compares each block of Go code with the
// sources: it must lie in one of them word for word.
func TestCodeOnPagesIsCodeThatIsTested(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	for _, pattern := range []string{"examples/*/*.go", "pipeline/*_test.go", "pipeline/pipelinetest/*_test.go", "projections/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sources[file] = string(text)
		}
	}
	blocks := 0
	for _, name := range []string{"README.md", "docs/walkthrough.md", "docs/read-models.md"} {
		for _, block := range goBlocks(read(t, name)) {
			blocks++
			assert.True(t, inOne(sources, block), "%s: this code is in no example:\n%s", name, block)
		}
	}
	assert.GreaterOrEqual(t, blocks, 3)

	// The example of the README is the whole of it, from main on.
	audit := read(t, "examples/audit/main.go")
	_, program, found := strings.Cut(audit, "func main()")
	require.True(t, found)
	assert.Contains(t, goBlocks(read(t, "README.md")), strings.TrimSpace("func main()"+program))
}

func inOne(sources map[string]string, block string) bool {
	for _, text := range sources {
		if strings.Contains(text, block) {
			return true
		}
	}
	return false
}

// TestLinksLeadSomewhere checks the links within the repository, anchors included.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			u, err := url.Parse(m[1])
			require.NoError(t, err, "%s: %s", name, m[1])
			if u.Scheme != "" {
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			_, err = os.Stat(filepath.Join(root, filepath.FromSlash(target)))
			if !assert.NoError(t, err, "%s links to %s", name, m[1]) || u.Fragment == "" {
				continue
			}
			assert.Contains(t, anchors(all[target]), u.Fragment, "%s links to %s", name, m[1])
		}
	}
}

func withoutCode(text string) string {
	text = regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(text, "\n")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors returns the fragments of a page's headings, as GitHub makes them.
func anchors(page string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		text := strings.ToLower(m[1])
		text = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(text, "")
		list = append(list, strings.ReplaceAll(text, " ", "-"))
	}
	return list
}

// TestDecisionsAreNumbered holds the names, and that each record has its parts.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("adr/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	architecture := read(t, "docs/architecture.md")
	seen := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if !assert.Regexp(t, `^\d{4}-[a-z0-9-]+\.md$`, name) {
			continue
		}
		assert.Empty(t, seen[name[:4]], "two decisions have the number of %s", name)
		seen[name[:4]] = name
		text := read(t, "docs/adr/"+name)
		assert.Regexp(t, `^# `+name[:4]+` `, text, name)
		for _, part := range []string{"## Context", "## Decision", "## Consequences"} {
			assert.Contains(t, text, "\n"+part+"\n", name)
		}
		assert.Contains(t, architecture, "adr/"+name, "architecture.md links to every decision")
	}
}

// TestMetricsAreDocumented compares the names of the metrics in the code with
// those in operations.md.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	operations := read(t, "docs/operations.md")
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("`(millrace_[a-z_]+)`").FindAllStringSubmatch(operations, -1) {
		documented[name[1]] = true
	}
	inCode := metricsInCode(t)
	require.Greater(t, len(inCode), 15)
	for name, file := range inCode {
		assert.True(t, documented[name], "%s of %s is not in docs/operations.md", name, file)
	}
	for name := range documented {
		assert.Contains(t, inCode, name, "docs/operations.md tells of a metric that does not exist")
	}
}

// metricsInCode finds the names of metrics, which are written in three ways: in
// full, behind a subsystem, and through a function that adds the prefix.
func metricsInCode(t *testing.T) map[string]string {
	t.Helper()
	full := regexp.MustCompile(`(?:Name:\s+|NewDesc\()"(millrace_[a-z_]+)"`)
	described := regexp.MustCompile(`desc\("([a-z_]+)"`)
	subsystem := regexp.MustCompile(`Subsystem: "([a-z_]+)"`)
	short := regexp.MustCompile(`(?:gauge|counter)\("([a-z_]+)"|Subsystem: "[a-z_]+", Name: "([a-z_]+)"`)
	found := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "prometheus") {
			return err
		}
		text := string(raw)
		for _, m := range full.FindAllStringSubmatch(text, -1) {
			found[m[1]] = file
		}
		for _, m := range described.FindAllStringSubmatch(text, -1) {
			found["millrace_"+m[1]] = file
		}
		if s := subsystem.FindStringSubmatch(text); s != nil {
			for _, m := range short.FindAllStringSubmatch(text, -1) {
				found["millrace_"+s[1]+"_"+m[1]+m[2]] = file
			}
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
