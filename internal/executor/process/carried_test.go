//go:build linux

package process_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/process"
)

func encode(t *testing.T, spec map[string]any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return raw
}

func TestScriptsRunAsTheirFirstLineSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec map[string]any
		want string
	}{
		{map[string]any{"script": "echo $((6*7)); cat"}, "42\n"},
		{map[string]any{"script": "#!/bin/cat"}, "#!/bin/cat"},
		{map[string]any{"script": "#!/usr/bin/env -S sh -e\necho one; false; echo two"}, "one\n"},
		{map[string]any{"script": "a b\n", "command": []string{"wc", "-w"}}, "2"},
	} {
		_, a := run(t, encode(t, c.spec))
		assert.Contains(t, a.Stdout(), c.want, a.Stderr())
	}
	result, _ := run(t, encode(t, map[string]any{"script": "#!/no/such/interpreter\n"}))
	assert.Equal(t, "start_failed", result.Reason)
	assert.Contains(t, result.Message, "/no/such/interpreter")
	assert.False(t, result.Retryable)
}

func TestFilesLieInTheWorkingDirectoryForReading(t *testing.T) {
	t.Parallel()
	spec := encode(t, map[string]any{
		"script": `cat greeting lib/deep/b; stat -c %a greeting; ls -A; echo x > lib/mine && cat lib/mine`,
		"files":  map[string]any{"greeting": "hello\n", "lib/deep/b": map[string]string{"base64": "AP8K"}},
	})
	result, a := run(t, spec)
	require.Equal(t, executor.Completed, result.Outcome, a.Stderr())
	assert.Equal(t, "hello\n\x00\xff\n400\n.millrace-script\ngreeting\nlib\nx\n", a.Stdout())

	requireSandbox(t)
	result, a = sandboxed(t, process.Sandbox{}, spec)
	require.Equal(t, executor.Completed, result.Outcome, a.Stderr())
	assert.Equal(t, "hello\n\x00\xff\n400\n.millrace-script\ngreeting\nlib\nx\n", a.Stdout())
}
