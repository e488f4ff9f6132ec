package workflow

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// Each definition of testdata/lint has its faults, with their places, in a file beside it.
func TestLintTellsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/lint/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	codes := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, faults := Lint(text)
		var out strings.Builder
		for _, f := range faults {
			codes[f.Code] = true
			fmt.Fprintln(&out, f)
			assert.Positive(t, f.Line, "%s: %s", file, f)
			assert.Positive(t, f.Column, "%s: %s", file, f)
		}
		golden(t, strings.TrimSuffix(file, ".json")+".faults", out.String())
	}
	// What no small file can have is tested by the other tests.
	for _, code := range []string{codeTooLarge, codeComplex, codeAbsent} {
		codes[code] = true
	}
	assert.ElementsMatch(t, documentedCodes(t), slices.Collect(maps.Keys(codes)), "every code has an example, and is in docs/workflow-format.md")
}

// golden compares text with a file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, file)
}

// documentedCodes returns the codes that the table of docs/workflow-format.md lists.
func documentedCodes(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/workflow-format.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| code |")
	require.True(t, found)
	var codes []string
	for line := range strings.Lines(table) {
		if strings.TrimSpace(line) == "" {
			break
		}
		if code, ok := strings.CutPrefix(line, "| `"); ok {
			code, _, _ = strings.Cut(code, "`")
			codes = append(codes, code)
		}
	}
	return codes
}
