package rest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/results"
	"github.com/millrace/millrace/topics"
)

// kept are values by id.
type kept map[string]func() (io.Reader, error)

func (k kept) Open(_ context.Context, ref executor.ValueReference) (io.ReadCloser, error) {
	open, ok := k[ref.ID]
	if !ok {
		return nil, fmt.Errorf("result %s: %w", ref.ID, results.ErrNotFound)
	}
	r, err := open()
	return io.NopCloser(r), err
}

// finished makes an execution that has ended in this way, and returns its path.
func (b *bench) finished(r executor.Result) string {
	b.t.Helper()
	now, policy := time.Now(), execution.DefaultPolicy()
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	e := b.store.executions[strings.TrimPrefix(path, "/v1/executions/")]
	require.NoError(b.t, e.Queue(now, policy))
	_, err := e.Schedule(now, "admitter", topics.ScheduledInTurn, policy)
	require.NoError(b.t, err)
	require.NoError(b.t, e.Start(now, "w", 1, time.Minute))
	require.NoError(b.t, e.Finish(now, "w", 1, r, policy))
	return path
}

func referred(id string, size int) executor.Result {
	return executor.Result{Outcome: executor.Completed, ValueRef: &executor.ValueReference{
		ID: id, Bytes: int64(size), SHA256: strings.Repeat("ab", 32)}}
}

func TestResult(t *testing.T) {
	t.Parallel()
	long := []byte(`"` + strings.Repeat("long", 300_000) + `"`)
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Results = kept{
			"there": func() (io.Reader, error) { return bytes.NewReader(long), nil },
			"away":  func() (io.Reader, error) { return nil, fmt.Errorf("x: %w", results.ErrElsewhere) },
			"torn":  func() (io.Reader, error) { return iotest.ErrReader(results.ErrDamaged), nil },
		}
	})
	inline := b.finished(executor.Result{Outcome: executor.Completed, Value: []byte(`{"answer":42}`)})
	w := b.do("GET", inline+"/result", "")
	require.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"answer":42}`, w.Body.String())
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "13", w.Header().Get("Content-Length"))

	there := b.finished(referred("there", len(long)))
	w = b.do("GET", there+"/result", "")
	require.Equal(t, 200, w.Code)
	assert.True(t, bytes.Equal(long, w.Body.Bytes()))
	assert.Equal(t, `"`+strings.Repeat("ab", 32)+`"`, w.Header().Get("ETag"))
	got := decode[Execution](t, b.do("GET", there, ""))
	assert.Equal(t, "there", got.Result.ValueRef.ID)
	assert.EqualValues(t, len(long), got.Result.ValueRef.Bytes)
	assert.Nil(t, got.Result.Value)

	requireProblem(t, b.do("GET", b.finished(referred("gone", 10))+"/result", ""), 404, "result_not_found")
	requireProblem(t, b.do("GET", b.finished(referred("away", 10))+"/result", ""), 503, "result_elsewhere")
	requireProblem(t, b.do("GET", b.finished(referred("torn", 10))+"/result", ""), 500, "internal")
	requireProblem(t, b.do("GET", b.finished(executor.Result{Outcome: executor.Completed})+"/result", ""), 404, "result_not_found")
	requireProblem(t, b.do("GET", b.finished(executor.Result{Outcome: executor.Failed})+"/result", ""), 404, "result_not_found")
	requireProblem(t, b.do("GET", b.do("POST", "/v1/executions", echo).Header().Get("Location")+"/result", ""), 409, "execution_not_ended")
	requireProblem(t, b.do("GET", "/v1/executions/00000000-0000-7000-8000-999999999999/result", ""), 404, "execution_not_found")
	requireProblem(t, b.do("GET", inline+"/result?attempt=1", ""), 400, "invalid_parameter")
}

func TestAResultThatBreaksOffDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Results = kept{"torn": func() (io.Reader, error) {
			return io.MultiReader(strings.NewReader(`"part`), iotest.ErrReader(results.ErrDamaged)), nil
		}}
	})
	server := httptest.NewServer(b.handle)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+b.finished(referred("torn", 100))+"/result", nil)
	require.NoError(t, err)
	resp, err := server.Client().Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
	}
	require.Error(t, err, "what came so far is not the value")
}
