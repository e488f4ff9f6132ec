package deploy_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root = ".."
	// version is what the image is told to be.
	version = "1.2.3-image"
)

// instructions returns the Dockerfile's instructions, each on one line.
func instructions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	var list []string
	for line := range strings.Lines(joined) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// buildCommand is the shell command with which the Dockerfile builds the binary.
func buildCommand(t *testing.T) string {
	t.Helper()
	for _, line := range instructions(t) {
		if run, ok := strings.CutPrefix(line, "RUN "); ok && strings.Contains(run, "go build") {
			return strings.TrimSpace(regexp.MustCompile(`--mount=\S+\s*`).ReplaceAllString(run, ""))
		}
	}
	require.Fail(t, "the Dockerfile builds nothing")
	return ""
}

// binary builds the binary as the Dockerfile does, once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "millrace-image-")
		if built.err != nil {
			return
		}
		command := buildCommand(t)
		if !strings.Contains(command, " -o /out/millrace ") {
			built.err = errors.New("the binary goes elsewhere: " + command)
			return
		}
		command = strings.Replace(command, "/out/millrace", filepath.Join(built.dir, "millrace"), 1)
		cmd := exec.Command("sh", "-euc", command)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "VERSION="+version)
		out, err := cmd.CombinedOutput()
		if err != nil {
			built.err = errors.New(err.Error() + ": " + string(out))
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "millrace")
}

// built is what binary made; TestMain removes it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // the system's own cleaning does the rest
	}
	os.Exit(code)
}

func TestImageRunsTheBinaryThatItBuilds(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	cmd := exec.CommandContext(t.Context(), bin, "version", "-o", "json")
	cmd.Env = []string{} // nothing of the machine is needed
	out, err := cmd.Output()
	require.NoError(t, err)
	var told struct{ Version string }
	require.NoError(t, json.Unmarshal(out, &told), string(out))
	assert.Equal(t, version, told.Version, "the build argument VERSION reaches `millrace version`")

	all := strings.Join(instructions(t), "\n")
	assert.Regexp(t, `(?m)^COPY --from=build /out/millrace (\S+)$`, all)
	installed := regexp.MustCompile(`(?m)^COPY --from=build /out/millrace (\S+)$`).FindStringSubmatch(all)[1]
	assert.Contains(t, all, `ENTRYPOINT ["`+installed+`"]`)
}

func TestImageIsUnprivilegedAndPinned(t *testing.T) {
	t.Parallel()
	var users, bases []string
	for _, line := range instructions(t) {
		if user, ok := strings.CutPrefix(line, "USER "); ok {
			users = append(users, user)
		}
		if base, ok := strings.CutPrefix(line, "FROM "); ok {
			bases = append(bases, strings.Fields(base)[0])
		}
	}
	require.NotEmpty(t, users)
	assert.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, users[len(users)-1], "a number, so that Kubernetes can see that it is not root")
	require.Len(t, bases, 2, "one to build, one to run")
	assert.Regexp(t, `^golang:\d+\.\d+\.\d+-bookworm$`, bases[0])
	assert.Regexp(t, `^debian:bookworm-\d{8}-slim$`, bases[1])

	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	require.Len(t, language, 2)
	assert.True(t, strings.HasPrefix(bases[0], "golang:"+string(language[1])+"."), "%s builds a module for Go %s", bases[0], language[1])
}

// TestImageContextHoldsWhatTheBuildReads compares .dockerignore with the files
// that the build of the binary is made of.
func TestImageContextHoldsWhatTheBuildReads(t *testing.T) {
	t.Parallel()
	ignored := ignorePatterns(t)
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,Module,GoFiles,EmbedFiles", "./cmd/millrace")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	files := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                 string
			Module              *struct{ Main bool }
			GoFiles, EmbedFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range append(p.GoFiles, p.EmbedFiles...) {
			within, err := filepath.Rel(top, filepath.Join(p.Dir, name))
			require.NoError(t, err)
			files++
			for _, pattern := range ignored {
				assert.False(t, ignores(pattern, filepath.ToSlash(within)), ".dockerignore: %s hides %s", pattern, within)
			}
		}
	}
	assert.Positive(t, files)
	for _, name := range []string{"go.mod", "go.sum"} {
		for _, pattern := range ignored {
			assert.False(t, ignores(pattern, name), ".dockerignore: %s hides %s", pattern, name)
		}
	}
	assert.True(t, ignores("**/*_test.go", "deploy/image_test.go"), "the patterns are understood")
	assert.True(t, ignores("docs", "docs/adr/0001-own-transport.md"), "the patterns are understood")
}

func ignorePatterns(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	require.NoError(t, err)
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			require.NotContains(t, line, "!", "exceptions are not understood here")
			patterns = append(patterns, line)
		}
	}
	require.NotEmpty(t, patterns)
	return patterns
}

// ignores understands the two forms that .dockerignore uses: a path, which hides
// what lies below it too, and **/ before a pattern of base names.
func ignores(pattern, name string) bool {
	if base, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
		matched, err := path.Match(base, path.Base(name))
		return err != nil || matched
	}
	return name == pattern || strings.HasPrefix(name, pattern+"/")
}

// TestCommandsOfComposeAndImageExist asks the binary about every command line
// that compose.yaml and the Dockerfile give it.
func TestCommandsOfComposeAndImageExist(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	lines := map[string][]string{}
	for name, s := range project(t).Services {
		if !isOurs(s) {
			continue
		}
		lines[name] = s.Command
		if s.HealthCheck != nil && !s.HealthCheck.Disable {
			require.Equal(t, []string{"CMD", "/usr/local/bin/millrace"}, []string(s.HealthCheck.Test[:2]), name)
			lines["health check of "+name] = s.HealthCheck.Test[2:]
		}
	}
	for _, line := range instructions(t) {
		kind, list, found := strings.Cut(line, " CMD ")
		if !found {
			list, found = strings.CutPrefix(line, "CMD ")
		}
		if !found {
			continue
		}
		var words []string
		require.NoError(t, json.Unmarshal([]byte(list), &words), line)
		if strings.HasPrefix(kind, "HEALTHCHECK") {
			words = words[1:]
		}
		lines[line] = words
	}
	require.Greater(t, len(lines), 6)
	for name, words := range lines {
		hasCommand(t, bin, name, words)
	}
}

// hasCommand asks the binary about a command line.
func hasCommand(t *testing.T, bin, name string, words []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, append(words[:len(words):len(words)], "--help")...)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: millrace %s: %s", name, strings.Join(words, " "), out)
	// An unknown subcommand would show the help of its parent.
	command := "millrace"
	for _, word := range words {
		if strings.HasPrefix(word, "-") {
			break
		}
		command += " " + word
	}
	assert.Regexp(t, `(?m)^\s+`+regexp.QuoteMeta(command)+`( \[flags\])?$`, string(out), name)
}
