package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/dataindex"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"give -brokers or -record": {},
		"give -brokers or":         {"-brokers", "b:1", "-record", "dir"},
		"not defined":              {"-nonsense"},
	} {
		_, err := parse(arguments, io.Discard)
		require.ErrorContains(t, err, want)
	}
	o, err := parse([]string{"-brokers", "b:1"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, dataindex.Publish{Encoding: dataindex.Bare, Brokers: "b:1", Topic: "flow-lifecycle-out", Rounds: 1}, o.publish)
}

// answering is an API whose data index has what it is given, in pages of one, and asks
// for a token.
func answering(t *testing.T, nodes ...map[string]any) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var query struct {
			Variables struct{ After *string }
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&query))
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		page := 0
		if query.Variables.After != nil {
			page = len(*query.Variables.After)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"workflowInstances": map[string]any{
			"nodes":    nodes[page : page+1],
			"pageInfo": map[string]any{"hasNextPage": page+1 < len(nodes), "endCursor": "xxxxxxxx"[:page+1]},
		}}})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestCompare(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	r := dataindex.Recording{Instances: []dataindex.Instance{
		{ID: "a", Name: "one", Status: "COMPLETED", Start: at, End: &at, Output: json.RawMessage(`{"n": 1}`)},
		{ID: "b", Name: "two", Status: "WAITING", Start: at, Tasks: []dataindex.Task{{Position: "do/0/t", Name: "t", Status: "RUNNING", Start: at}}},
	}}
	a := map[string]any{"id": "a", "name": "one", "status": "COMPLETED", "startDate": at, "endDate": at, "output": map[string]any{"n": 1}}
	task := map[string]any{"taskPosition": "do/0/t", "taskName": "t", "status": "RUNNING", "startDate": at}
	b := map[string]any{"id": "b", "name": "two", "status": "RUNNING", "startDate": at, "taskExecutions": []any{task}}
	var out bytes.Buffer
	o := options{url: answering(t, a, b), token: "secret", patience: time.Minute}
	require.NoError(t, compare(t.Context(), o, r, &out))
	assert.Equal(t, "AGREES: the data index says of all 2 instances what the SDK says\n", out.String())

	out.Reset()
	a["status"] = "FAULTED"
	o = options{url: answering(t, a), token: "secret"}
	require.ErrorIs(t, compare(t.Context(), o, r, &out), errDisagrees)
	assert.Equal(t, `  a (one): status is FAULTED, the SDK says COMPLETED
  b (two): not in the index
DISAGREES: in 2 places, after 0s
`, out.String())
}
