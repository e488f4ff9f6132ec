package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

var update = flag.Bool("update", false, "write the golden files")

// asCommandEnv makes the test binary be the command, with the value as its
// arguments, for tests that need a process of its own.
const asCommandEnv = "MILLRACETEST_AS_COMMAND"

func TestMain(m *testing.M) {
	process.MaybeRunShim()
	if line, ok := os.LookupEnv(asCommandEnv); ok {
		_ = os.Unsetenv(asCommandEnv)
		os.Args = append(os.Args[:1], strings.Fields(line)...)
		os.Exit(start())
	}
	testenv.Run(m)
}

// noon is when the tests take place.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// console runs command lines against a fake API and remembers what they printed.
type console struct {
	t   *testing.T
	api *fakeAPI
	surroundings
	out, err *transcript.Text
	ctx      context.Context
}

func newConsole(t *testing.T) *console {
	t.Helper()
	c := &console{t: t, api: newFakeAPI(t), ctx: t.Context()}
	c.surroundings = surroundings{
		in: strings.NewReader(""), now: noon,
		environ: []string{"HOME=" + t.TempDir(), "MILLRACE_DATA_DIR=" + t.TempDir(), "MILLRACE_API_URL=" + c.api.url, "MILLRACE_TOKEN=" + canary},
	}
	return c
}

// run runs one command line and returns its exit code.
func (c *console) run(args ...string) int {
	c.out, c.err = &transcript.Text{}, &transcript.Text{}
	c.surroundings.out, c.surroundings.err = c.out, c.err
	code := run(c.ctx, args, c.surroundings)
	assert.NotContains(c.t, c.err.String(), canary)
	return code
}

// golden compares what was printed with a file.
func (c *console) golden(name string) {
	c.t.Helper()
	got := strings.ReplaceAll(c.out.String(), c.api.url, "http://api")
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(c.t, os.MkdirAll("testdata", 0o755))
		require.NoError(c.t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(c.t, err)
	assert.Equal(c.t, string(want), got, "run: go test ./cmd/millrace -update")
}

const canary = "canary-token"

// fakeAPI answers with what a test has put into it.
type fakeAPI struct {
	url string
	mux *http.ServeMux

	mu       sync.Mutex
	requests []string // method, path, query
	bodies   []string
	headers  []http.Header
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{mux: http.NewServeMux()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		f.mu.Lock()
		f.requests = append(f.requests, strings.TrimSuffix(r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery, "?"))
		f.bodies = append(f.bodies, body.String())
		f.headers = append(f.headers, r.Header)
		f.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+canary {
			problem(w, 401, "unauthorized", "A valid token is required")
			return
		}
		f.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fakeAPI) last() (request, body string, header http.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := len(f.requests) - 1
	return f.requests[i], f.bodies[i], f.headers[i]
}

// answers makes a route answer with a JSON text.
func (f *fakeAPI) answers(pattern string, status int, body string) {
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func problem(w http.ResponseWriter, status int, code, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "code": code, "title": title, "type": "urn:millrace:problem:" + code})
}
