package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/instance"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

// onDir makes the console work on a data directory without naming an API.
func (c *console) onDir(dir string) {
	c.environ = []string{"HOME=" + c.t.TempDir(), "MILLRACE_DATA_DIR=" + dir}
	onFreePorts(c)
}

func TestStopWithoutAnInstance(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dir := t.TempDir()
	c.onDir(dir)
	require.Equal(t, exitOK, c.run("stop"), c.err.String())
	assert.Equal(t, "nothing to stop: no instance runs on "+dir+"\n", c.out.String())
	require.Equal(t, exitOK, c.run("stop", "-o", "json"))
	assert.JSONEq(t, `{"data_dir":"`+dir+`","pid":0,"millis":0}`, c.out.String())
	assert.Equal(t, exitUsage, c.run("stop", "--timeout", "0s"))
}

// A process that does not stop is waited for, and then told about.
func TestStopGivesUp(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dir := t.TempDir()
	c.onDir(dir)
	// A shell that holds the lock, as an instance does, and ignores SIGTERM.
	holder := exec.Command("sh", "-c", `exec 9>>"$1"; flock 9 || exit 1; trap '' TERM
set -- $(cat /proc/$$/stat); shift 21; printf '%s\n2026-03-01T12:00:00Z\n%s\n' $$ $1 >&9; echo held; while :; do sleep 600 9>&- & wait; done`,
		"sh", filepath.Join(dir, "millrace.pid"))
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("flock is not installed")
	}
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	_, err = out.Read(make([]byte, 5))
	require.NoError(t, err)

	assert.Equal(t, exitTimeout, c.run("stop", "--timeout", "200ms"), c.err.String())
	assert.Contains(t, c.err.String(), "has not stopped within 200ms")
	assert.Contains(t, c.err.String(), "kill -9")
	assert.Equal(t, exitFailure, c.run("clean", "--yes"))
	assert.Contains(t, c.err.String(), "stop it first")
}

func TestClean(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dir := t.TempDir()
	c.onDir(dir)
	require.Equal(t, exitOK, c.run("clean"))
	assert.Contains(t, c.out.String(), "nothing to delete")

	for name, text := range map[string]string{"kafka/lock": "", "kafka/log": "12345", "token": "abc", "mine": "x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, answer := range []string{"", "\n", "n\n", "yesterday\n"} {
		c.in = strings.NewReader(answer)
		assert.Equal(t, exitFailure, c.run("clean"), answer)
		assert.Contains(t, c.err.String(), "Go on? [y/N]")
		assert.Contains(t, c.err.String(), "kafka          5 B")
		assert.Contains(t, c.err.String(), "nothing was deleted")
		assert.NotContains(t, c.err.String(), "mine")
		assert.FileExists(t, filepath.Join(dir, "token"))
	}
	c.in = strings.NewReader("y\n")
	require.Equal(t, exitOK, c.run("clean"), c.err.String())
	assert.Equal(t, "deleted from "+dir+": kafka, token (8 B)\n", c.out.String())
	assert.NoDirExists(t, filepath.Join(dir, "kafka"))
	assert.FileExists(t, filepath.Join(dir, "mine"))
	require.Equal(t, exitOK, c.run("clean", "-y", "-o", "json"))
	assert.JSONEq(t, `{"data_dir":"`+dir+`","deleted":[]}`, c.out.String())
}

func TestReady(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dir := t.TempDir()
	c.onDir(dir)
	status, body := 200, `{"ready":true,"checks":[{"name":"kafka","ok":true,"millis":1}],"checked_at":"2026-03-01T12:00:00Z"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/readyz?verbose", r.URL.String())
		assert.Empty(t, r.Header.Get("Authorization"), "a token is not for everybody")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	require.Equal(t, exitOK, c.run("ready", "--admin-url", strings.TrimPrefix(server.URL, "http://")+"/"), c.err.String())
	assert.Equal(t, "ready\n", c.out.String())

	require.NoError(t, configs.WriteEndpoints(dir, configs.Endpoints{AdminURL: server.URL}))
	require.Equal(t, exitOK, c.run("ready", "-o", "json"), "found by the data directory")
	assert.Contains(t, c.out.String(), `"ready": true`)

	status, body = 503, `{"ready":false,"checks":[{"name":"postgres","ok":true},{"name":"kafka","ok":false,"cause":"connection\u001b refused"}],"checked_at":"2026-03-01T12:00:00Z"}`
	assert.Equal(t, exitFailure, c.run("ready"))
	assert.Equal(t, "kafka: connection? refused\n", c.out.String())
	assert.Contains(t, c.err.String(), "not ready: kafka")

	for _, other := range []string{"<html>", `{}`} {
		status, body = 200, other
		assert.Equal(t, exitFailure, c.run("ready"), other)
		assert.Contains(t, c.err.String(), "is this the listener for operators of Millrace?")
	}
	server.Close()
	assert.Equal(t, exitFailure, c.run("ready"))
	assert.Contains(t, c.err.String(), "nothing answers at "+server.URL)

	require.NoError(t, configs.RemoveEndpoints(dir))
	assert.Equal(t, exitUsage, c.run("ready"), "port 0 says nothing")
	c.environ = append(c.environ, "MILLRACE_ADMIN_LISTEN=0.0.0.0:1", "MILLRACE_INSECURE_ALLOW_REMOTE=true")
	assert.Equal(t, exitFailure, c.run("ready"))
	assert.Contains(t, c.err.String(), "http://127.0.0.1:1")
}

// The whole life of an instance: it starts and shows what it can, a second one is
// refused, it is ready, stops when it is told to, and what it kept is deleted.
func TestTheLifeOfAnInstance(t *testing.T) {
	t.Parallel()
	dir := testenv.DataDir(t)
	up := newConsole(t)
	up.onDir(dir)
	// SIGTERM would end the tests: the instance is a process of its own.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append([]string{asCommandEnv + "=up --demo", "PATH=" + os.Getenv("PATH")}, up.environ...)
	out, errs := &transcript.Text{}, &transcript.Text{}
	cmd.Stdout, cmd.Stderr = out, errs
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", out, errs)
		}
	})
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "Stop with") }, time.Minute, 50*time.Millisecond)
	assert.Contains(t, out.String(), "All as intended.")
	assert.Regexp(t, `\nCOMPLETED +fail once, then succeed +2 +\w+ +succeeded at attempt 2\n`, out.String())
	assert.Regexp(t, `\nFAILED +fail with a message +1 +\w+ +exit code 3: no grain left\n`, out.String())
	assert.Regexp(t, `\nTIMED_OUT +run past`, out.String())
	assert.Regexp(t, `\nCANCELLED +`, out.String())
	assert.Contains(t, out.String(), "--data-dir "+dir+" submit --wait -- echo hello\n")
	assert.NotContains(t, out.String()+errs.String(), "\x1b", "no colours off a terminal")
	assert.Regexp(t, `(?m)^ ?\d+/\d+  COMPLETED  `, errs.String(), "plain lines in place of a bar")

	c := newConsole(t)
	c.onDir(dir)
	require.Equal(t, exitOK, c.run("ready"), c.err.String())
	assert.Equal(t, exitFailure, c.run("up"))
	assert.Contains(t, c.err.String(), "is in use by process ")
	assert.Equal(t, exitFailure, c.run("clean", "--yes"))
	require.Equal(t, exitOK, c.run("executions", "list", "--label", "demo=true", "-o", "name"), c.err.String())
	assert.Greater(t, strings.Count(c.out.String(), "\n"), 10)

	require.Equal(t, exitOK, c.run("stop", "-o", "json"), c.err.String())
	var result stopped
	require.NoError(t, json.Unmarshal([]byte(c.out.String()), &result))
	assert.Equal(t, cmd.Process.Pid, result.PID)
	require.NoError(t, <-ended)
	_, found, err := instance.Find(dir)
	require.NoError(t, err)
	assert.False(t, found)
	require.Equal(t, exitOK, c.run("clean", "--yes"), c.err.String())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
