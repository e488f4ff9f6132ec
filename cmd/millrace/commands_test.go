package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walk calls visit for every command.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		walk(child, visit)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	c := &cli{surroundings: surroundings{now: noon}}
	walk(c.root(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		assert.Regexp(t, `^[A-Z][^.]*$`, cmd.Short, "%s: one phrase, capitalised, without a full stop", path)
		assert.NotEmpty(t, cmd.Long, path)
		assert.True(t, strings.HasSuffix(strings.TrimSpace(cmd.Long), "."), path)
		assert.Contains(t, cmd.Example, "millrace", path)
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			assert.True(t, strings.HasPrefix(line, "  "), "%s: %q", path, line)
		}
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			assert.LessOrEqual(t, len(line), 90, "%s: %q", path, line)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, path+" --"+f.Name) })
		if cmd.HasSubCommands() {
			return
		}
		require.NotNil(t, cmd.RunE, path)
	})
}

// The commands in examples exist and so do their flags.
func TestExamplesAreTrue(t *testing.T) {
	t.Parallel()
	c := &cli{surroundings: surroundings{now: noon}}
	root := c.root()
	call := regexp.MustCompile(`(?:^|[ (])millrace (.*)`)
	examples := 0
	walk(root, func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			match := call.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			words := strings.Fields(strings.FieldsFunc(match[1], func(r rune) bool { return strings.ContainsRune("|>)\"", r) })[0])
			target, rest, err := root.Find(words)
			require.NoError(t, err, line)
			// A group that does something by itself has flags of its own.
			assert.True(t, len(target.Commands()) == 0 || target.LocalNonPersistentFlags().HasFlags(), "%s names a group only", line)
			for _, word := range rest {
				if word == "--" {
					break
				}
				if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
					name, _, _ = strings.Cut(name, "=")
					assert.NotNil(t, target.Flag(name), "%s: --%s", line, name)
				}
			}
			examples++
		}
	})
	assert.Greater(t, examples, 30)
}

func TestUsageErrorsHelp(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, tc := range []struct {
		line string
		want string
	}{
		{"exections list", "did you mean executions?"},
		{"executions lst", "did you mean list?"},
		{"executions list --stat RUNNING", "did you mean --state?"},
		{"executions list --state RUNING", "did you mean RUNNING?"},
		{"executions list --limit=-1", "--limit"},
		{"executions list extra", "unknown command"},
		{"executions get", "accepts 1 arg"},
		{"executions list --label nonsense", "want name=value"},
		{"executions output x --stream stdin", "want stdout or stderr"},
		{"-o jsn executions list", "did you mean json?"},
		{"--watch=-1s executions list", "positive interval"},
		{"submit", "nothing to run"},
		{"submit --timeout 5s -- echo", "--timeout goes with --wait"},
		{"submit --env X -- echo", "want name=value"},
		{"submit --not-before soon -- echo", "--not-before"},
		{"submit --executor function -- f {", "not JSON"},
		{"submit --executor function -- f 1 2", "quote the JSON"},
		{"submit --file - --stdin - -- echo", "cannot both"},
		{"config check --set nonsense", "want path=value"},
		{"config check --set api.listn=x", "did you mean api.listen?"},
		{"completion tcsh", "invalid argument"},
		{"serve --auth=of --kafka-brokers a:1 --postgres-dsn postgres://x", `"of" is not one of token, off; did you mean off?`},
		{"topics create", "kafka.brokers: is required"},
		{"migrate status", "postgres.dsn: is required"},
	} {
		assert.Equal(t, exitUsage, c.run(strings.Fields(tc.line)...), tc.line)
		assert.Contains(t, c.err.String(), tc.want, tc.line)
		assert.Empty(t, c.out.String(), tc.line)
	}
}

func TestHelpNeedsNothing(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.environ = []string{"MILLRACE_NONSENSE=1"}
	for _, line := range []string{"", "--help", "executions", "submit --help", "help submit"} {
		assert.Equal(t, exitOK, c.run(strings.Fields(line)...), line)
		assert.Contains(t, c.out.String(), "Examples:", line)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	require.Equal(t, exitOK, c.run("version"))
	assert.Regexp(t, `^millrace .* go1\.\d+.* \w+/\w+\n$`, c.out.String())
	require.Equal(t, exitOK, c.run("version", "-o", "json"))
	assert.Contains(t, c.out.String(), `"platform"`)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Equal(t, exitOK, c.run("completion", shell))
		assert.Contains(t, c.out.String(), "millrace", shell)
	}
}
