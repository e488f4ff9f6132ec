package client

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/graphql", r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		assert.JSONEq(t, `{"query": "query A($n: Int) { a }", "operationName": "A", "variables": {"n": 1}}`, string(body))
		answer(w, 200, map[string]any{"data": map[string]any{"a": nil}, "errors": []any{map[string]any{
			"message": "no", "path": []any{"a", 3, "b"}, "extensions": map[string]any{"code": "limit_exceeded", "limit": "graphql.max_depth"}}}})
	})
	a, err := c.Query(t.Context(), Query{Text: "query A($n: Int) { a }", Operation: "A", Variables: map[string]json.RawMessage{"n": json.RawMessage("1")}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"a": null}`, string(a.Data))
	require.Len(t, a.Errors, 1)
	assert.Equal(t, "a.3.b: no", a.Errors[0].Error())
	assert.Equal(t, "graphql.max_depth", a.Errors[0].Extensions.Limit)
}

func TestQueryWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"title": "A valid token is required", "code": "unauthorized"}`))
		},
		"another program": func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{"hello": "world"}) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("<html>"))
		},
	} {
		c := serve(t, handler)
		_, err := c.Query(t.Context(), Query{Text: "{ a }"})
		require.Error(t, err, name)
		assert.Equal(t, name == "refused", HasCode(err, "unauthorized"), name)
	}
}
