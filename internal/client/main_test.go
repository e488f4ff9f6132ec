package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "canary-token"

// serve starts an API and returns a client of it, whose pauses are short.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(Options{URL: server.URL, Token: secret.New(token)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	c.watch = watchTimes{first: time.Millisecond, longest: 2 * time.Millisecond, silence: 10 * time.Second}
	return c
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
