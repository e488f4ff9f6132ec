package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/secrets"
)

const canary = "hunter2-canary"

func TestEnvironmentVariables(t *testing.T) {
	t.Setenv("MILLRACE_TRIGGER_PASSWORD", canary)
	t.Setenv("MILLRACE_TRIGGER_EMPTY", "")
	t.Setenv("MILLRACE_DSN", canary)
	r := secrets.New(trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_"})
	s, err := r.Resolve(trigger.SecretRef{Env: "MILLRACE_TRIGGER_PASSWORD"})
	require.NoError(t, err)
	assert.Equal(t, canary, s.Reveal())
	for name, code := range map[string]string{
		"MILLRACE_TRIGGER_NONE": secrets.CodeMissing, "MILLRACE_TRIGGER_EMPTY": secrets.CodeMissing,
		"MILLRACE_DSN": secrets.CodeNotAllowed, "PATH": secrets.CodeNotAllowed, "MILLRACE_TRIGGER_": secrets.CodeNotAllowed, "a b": secrets.CodeNotAllowed,
	} {
		assertRefused(t, r, trigger.SecretRef{Env: name}, code)
	}
	assertRefused(t, secrets.New(trigger.Secrets{}), trigger.SecretRef{Env: "MILLRACE_TRIGGER_PASSWORD"}, secrets.CodeNotAllowed)
	s, err = r.Resolve(trigger.SecretRef{})
	require.NoError(t, err)
	assert.True(t, s.IsZero())
}

func assertRefused(t *testing.T, r *secrets.Resolver, ref trigger.SecretRef, code string) {
	t.Helper()
	s, err := r.Resolve(ref)
	assert.True(t, s.IsZero())
	var refused *secrets.Error
	require.ErrorAs(t, err, &refused, "%+v", ref)
	assert.Equal(t, code, refused.Code, "%+v", ref)
	assert.NotEmpty(t, refused.Hint)
	assert.Equal(t, code, refused.Cause().Code)
	assert.NotContains(t, fmt.Sprintf("%v %+v", err, refused.Cause()), canary)
}

// TestFilesOfOneFolderOnly holds what keeps whoever may apply a trigger from reading the
// servers' files.
func TestFilesOfOneFolderOnly(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder := filepath.Join(top, "secrets")
	write := func(text string, path ...string) string {
		name := filepath.Join(path...)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	outside := write(canary, top, "secrets-of-the-server")
	write(canary+"\n", folder, "token")
	write(canary, folder, "..2026", "password")
	write(" \n", folder, "empty")
	write(strings.Repeat("x", secrets.MaxBytes+1), folder, "large")
	// As a cluster mounts its secrets.
	require.NoError(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "password"), filepath.Join(folder, "password")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "absolute")))
	require.NoError(t, os.Symlink("../secrets-of-the-server", filepath.Join(folder, "upwards")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))

	r := secrets.New(trigger.Secrets{Dir: folder})
	for _, name := range []string{"token", "password", filepath.Join(folder, "token"), "./token"} {
		s, err := r.Resolve(trigger.SecretRef{File: name})
		require.NoError(t, err, name)
		assert.Equal(t, canary, s.Reveal(), name)
	}
	for name, code := range map[string]string{
		outside: secrets.CodeNotAllowed, "../secrets-of-the-server": secrets.CodeNotAllowed, "a/../../secrets-of-the-server": secrets.CodeNotAllowed,
		"absolute": secrets.CodeNotAllowed, "upwards": secrets.CodeNotAllowed, "/etc/passwd": secrets.CodeNotAllowed, folder + "-of-the-server": secrets.CodeNotAllowed,
		"none": secrets.CodeMissing, "empty": secrets.CodeMissing, "token/x": secrets.CodeUnreadable,
		".": secrets.CodeUnreadable, "pipe": secrets.CodeUnreadable, "large": secrets.CodeUnreadable,
	} {
		assertRefused(t, r, trigger.SecretRef{File: name}, code)
	}
	assertRefused(t, secrets.New(trigger.Secrets{}), trigger.SecretRef{File: "token"}, secrets.CodeNotAllowed)
	assertRefused(t, secrets.New(trigger.Secrets{Dir: filepath.Join(top, "nowhere")}), trigger.SecretRef{File: "token"}, secrets.CodeMissing)
}

// TestASecretCanBeReplaced holds that nothing is kept.
func TestASecretCanBeReplaced(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := secrets.New(trigger.Secrets{Dir: folder})
	for _, text := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "token"), []byte(text), 0o600))
		s, err := r.Resolve(trigger.SecretRef{File: "token"})
		require.NoError(t, err)
		assert.Equal(t, text, s.Reveal())
	}
}
