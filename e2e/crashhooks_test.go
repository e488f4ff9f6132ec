package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/crash"
)

// A process that serves webhooks is killed at each point of the creation, with a request in
// hand. Its sender has no answer and sends it again: one execution or instance is made of it,
// and the second answer tells which.
func TestWebhookCrashPoints(t *testing.T) {
	t.Parallel()
	c := newTriggerCrasher(installEmbedded(t, crashSettings()...))
	in := c.in
	_, err := c.front.client().PutDefinition(t.Context(), []byte(`{"id": "kept", "name": "Kept", "steps": [
		{"id": "w", "name": "W", "type": "WAIT", "signalName": "go", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`))
	require.NoError(t, err)
	workflow := map[string]any{"target": map[string]any{"workflow": map[string]any{"id": "kept", "business_key": "of-a-hook", "input": map[string]any{"n": "${body.n}"}}}}
	functions, instances := in.webhook(c.front.client(), "functions", nil), in.webhook(c.front.client(), "instances", workflow)
	for _, point := range crash.Points() {
		switch {
		case !ofTriggers(point) || !isSelected(point.Name):
		case point.Name == "ingest.letters": // a webhook has no letters: who calls it is told
		case point.Name == "ingest.promised" || point.Name == "ingest.started":
			c.crashHook(point, instances, `SELECT count(*) FROM wf_instances WHERE business_key = 'of-a-hook'`)
		default:
			c.crashHook(point, functions, `SELECT count(*) FROM executions WHERE request->'origin'->>'trigger' = 'functions'`)
		}
	}
	functions.done()
	assert.Zero(t, in.count(`SELECT count(*) FROM processed_events WHERE target LIKE 'starting/%'`), "promises")
	in.stopAll()
}

// crashHook has the process that serves a webhook die at the point, and sends the request
// until it is accepted, and once more.
func (c triggerCrasher) crashHook(point crash.Point, w *webhook, made string) {
	t, in := c.in.t, c.in
	defer c.blame(point.Name)
	began := time.Now()
	c.arm(point.Name, 1)
	status, _, body := w.post(c.front, w.next)
	require.Zero(t, status, "%s: %s", point.Name, body)
	require.Equal(t, c.front, c.awaitDeath(point))
	reached := time.Since(began)
	c.front = in.serve("front", "api").ready()

	var first, again string
	c.in.await("it is accepted", func() bool {
		status, _, first = w.post(c.front, w.next)
		return status == http.StatusAccepted || status == http.StatusOK
	})
	status, _, again = w.post(c.front, w.next)
	assert.Equal(t, http.StatusOK, status, point.Name)
	assert.Equal(t, idIn(t, first), idIn(t, again), point.Name)
	w.next++
	assert.Equal(t, w.next, in.count(made), "%s: lost, or doubled", point.Name)
	c.sound(point, began, reached)
}
