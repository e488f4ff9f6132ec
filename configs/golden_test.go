package configs_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what write writes with a file, or writes the file.
func golden(t *testing.T, path string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, write(&got))
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String(), "run: go test ./configs -update")
}

func TestReference(t *testing.T) {
	t.Parallel()
	golden(t, "../docs/configuration.md", configs.WriteReference)
}

func TestExample(t *testing.T) {
	t.Parallel()
	golden(t, "millrace.yaml", configs.WriteExample)
}

func TestTheExampleSaysWhatHoldsAnyway(t *testing.T) {
	t.Parallel()
	sources := configs.Sources{Environ: []string{"HOME=/home/u"}}
	want, err := sources.Load()
	require.NoError(t, err)
	sources.File = "millrace.yaml"
	got, err := sources.Load()
	require.NoError(t, err)

	want.Worker.ID, got.Worker.ID = "", "" // made anew each time
	want.Coordinator.Weights = map[string]float64{}
	assert.Equal(t, want, got)
}

func TestEverySettingIsDescribed(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, s := range configs.Settings() {
		assert.Regexp(t, `^[A-Z].*\.$`, s.Doc, s.Path)
		assert.NotContains(t, seen, s.Env, "two settings share a variable")
		seen[s.Env] = s.Path
		if s.Flag != "" {
			assert.NotContains(t, seen, s.Flag, "two settings share a flag")
			seen[s.Flag] = s.Path
		}
		if s.Default == "" && s.Type != "secret" && len(s.Choices) == 0 {
			assert.NotEmpty(t, s.Unset, "%s: say what an empty value means", s.Path)
		}
	}
}
