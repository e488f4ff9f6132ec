package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/topics"
)

// Every event reads as a few words that say why.
func TestEventDetail(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"requested":        "-",
		"queued":           "attempt 1, ready",
		"rejected":         "more than 100 executions per minute, ask again in 20s",
		"reprioritized":    "attempt 1, priority 5 instead of 3, the customer waits for it, by ada",
		"scheduled":        "attempt 1, after 12ms, in turn",
		"started":          "attempt 1, on worker-1, after 8ms",
		"output":           "attempt 1, 6 bytes of stdout",
		"requeued":         "attempt 2, exit status 3",
		"cancel_requested": "attempt 1, wrong input, by ada",
		"lease_expired":    "attempt 1, on worker-1",
		"completed":        "attempt 1, on worker-1",
		"failed":           "attempt 3, on worker-1, exit status 3",
		"timed_out":        "attempt 1, on worker-1, ran longer than 30s",
		"cancelled":        "attempt 1, wrong input, by ada",
		"quarantined":      "attempt 5, its lease expired 5 times",
	}
	for _, typ := range topics.Types() {
		name := shortType(typ.Name)
		if name == "task" {
			continue // not an event of the history
		}
		data, err := json.Marshal(typ.Example)
		require.NoError(t, err)
		assert.Equal(t, want[name], eventDetail(client.Event{Type: typ.Name, Data: data}), name)
	}
}
