package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/health"
)

func ask(h *health.Health, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.Ready(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func TestReadyNamesWhatFailsAndVerboseSaysWhy(t *testing.T) {
	t.Parallel()
	h := health.New(
		health.Check{Name: "postgres", Run: func(context.Context) error { return nil }},
		health.Check{Name: "kafka", Run: func(context.Context) error { return errors.New("dial 127.0.0.1:9092: refused") }},
	)
	w := ask(h, "/readyz")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "not ready: kafka\n", w.Body.String())

	w = ask(h, "/readyz?verbose")
	assert.Equal(t, 503, w.Code)
	var report health.Report
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &report))
	assert.False(t, report.Ready)
	assert.True(t, report.Checks[0].OK)
	assert.Equal(t, "dial 127.0.0.1:9092: refused", report.Checks[1].Cause)
}

func TestADrainingProcessIsAliveButNotReady(t *testing.T) {
	t.Parallel()
	h := health.New()
	assert.Equal(t, 200, ask(h, "/readyz").Code)
	h.Drain()
	w := ask(h, "/readyz")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "not ready: shutdown\n", w.Body.String())
	live := httptest.NewRecorder()
	h.Live(live, httptest.NewRequest(http.MethodGet, "/livez", nil))
	assert.Equal(t, 200, live.Code)
}

func TestChecksAreNotRunMoreOftenThanNeeded(t *testing.T) {
	t.Parallel()
	runs := 0
	h := health.New(health.Check{Name: "x", Run: func(ctx context.Context) error {
		runs++
		_, limited := ctx.Deadline()
		assert.True(t, limited)
		return nil
	}})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	assert.True(t, h.Report(gone).Ready, "a caller that went away says nothing about the checks")
	for range 10 {
		ask(h, "/readyz")
	}
	assert.Less(t, runs, 11)
}
