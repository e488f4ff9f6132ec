package e2e

import (
	"context"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
)

func ofEngine(point crash.Point) bool { return strings.HasPrefix(point.Name, "engine.") }

// timed is a workflow that comes to its end by itself.
const timed = `{"id": "timed", "name": "Timed", "steps": [
	{"id": "set", "name": "Set", "type": "TRANSFORMATION", "transformations": {"set": true}, "nextStep": "pause"},
	{"id": "pause", "name": "Pause", "type": "TIMER", "duration": "PT0.2S", "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

// instance starts an instance of a workflow, once for each point, under a key.
func (c *crasher) instance(ctx context.Context, point crash.Point, api *client.Client) error {
	if _, err := api.PutDefinition(ctx, []byte(timed)); err != nil {
		return err
	}
	_, err := api.Start(ctx, client.StartInstance{DefinitionID: "timed", BusinessKey: point.Name}, point.Name)
	return err
}

// judgeInstance checks that there is one instance, and that it has gone its way once.
func (c *crasher) judgeInstance(point crash.Point) {
	t, in := c.in.t, c.in
	c.in.await("the instance is completed", func() bool {
		return in.count(`SELECT count(*) FROM wf_instances WHERE business_key = $1 AND status = 'COMPLETED' AND version = 2`, point.Name) == 1
	})
	assert.Equal(t, 1, in.count(`SELECT count(*) FROM wf_instances WHERE business_key = $1`, point.Name))
	assert.Equal(t, 2, in.count(`SELECT count(*) FROM wf_journal WHERE instance_id = (SELECT id FROM wf_instances WHERE business_key = $1)`, point.Name))
	require.Zero(t, in.count(`SELECT count(*) FROM wf_timers WHERE instance_id = (SELECT id FROM wf_instances WHERE business_key = $1)`, point.Name))
	c.in.await("the data index has it", func() bool {
		return in.count(`SELECT count(*) FROM workflow_instances v JOIN wf_instances i ON v.id = i.id::text
			WHERE i.business_key = $1 AND v.status = 'COMPLETED'`, point.Name) == 1
	})
}
