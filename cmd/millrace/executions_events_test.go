package main

import (
	"encoding/json"
	"strings"
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
		"pod.created":      "attempt 1, @pod",
		"pod.scheduled":    "attempt 1, @pod, on node-3",
		"pod.running":      "attempt 1, @pod, on node-3",
		"pod.succeeded":    "attempt 1, @pod, on node-3",
		"pod.failed":       "attempt 1, @pod, on node-3, the container used more than 256Mi",
		"pod.deleted":      "attempt 1, @pod, finished",
	}
	for _, typ := range topics.Types() {
		if typ.Topic != topics.ExecutionEvents {
			continue // not an event of the history
		}
		name := shortType(typ.Name)
		data, err := json.Marshal(typ.Example)
		require.NoError(t, err)
		var pod struct {
			Name string `json:"name"`
		}
		require.NoError(t, json.Unmarshal(data, &pod))
		assert.Equal(t, strings.ReplaceAll(want[name], "@pod", pod.Name), eventDetail(client.Event{Type: typ.Name, Data: data}), name)
	}
}

// Events of workflows read alike, whichever engine wrote them.
func TestLifecycleEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, data, subject, short, detail string }{
		{"io.serverlessworkflow.task.faulted.v1",
			`{"instanceId":"i1","taskPosition":"do/0/pay","taskName":"pay","attempt":1,"error":{"type":"u","title":"Gone","detail":"no money"}}`,
			"i1", "task.faulted", "do/0/pay, attempt 1, FAULTED, no money"},
		{"io.serverlessworkflow.workflow.started.v1",
			`{"name":"i1","definition":{"namespace":"shop","name":"order","version":"1.0"},"startedAt":1767225600.5}`,
			"i1", "workflow.started", "shop/order, version 1.0, RUNNING"},
		{"io.serverlessworkflow.workflow.started.v1", `[]`, "-", "workflow.started", ""},
	} {
		e := client.Event{ID: "1", Source: "/x", Type: c.kind, Time: noon(), Data: json.RawMessage(c.data)}
		assert.Equal(t, c.subject, eventSubject(e))
		assert.Equal(t, c.short, shortType(e.Type))
		assert.Equal(t, c.detail, eventDetail(e))
	}
}
