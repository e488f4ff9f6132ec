package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/workflow"
)

const (
	endStep     = `{"id": "end", "name": "End", "type": "END"}`
	commandStep = `{"id": "pay", "name": "Pay", "type": "COMMAND", "participant": "bank", "commandType": "charge", "nextStep": "end"}, ` + endStep
)

// Without anybody who carries commands, nothing is started that would wait for them.
func TestWhatSendsCommandsIsNotStartedWithoutKafka(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(`{"id": "order", "name": "x", "steps": [` + commandStep + `]}`)
	w.define(`{"id": "undone", "name": "x", "steps": [{"id": "a", "name": "x", "type": "SERVICE_TASK",
		"nextStep": "end",
		"compensation": {"participant": "bank", "commandType": "refund"}}, ` + endStep + `]}`)
	w.define(`{"id": "jobs", "name": "x", "steps": [{"id": "a", "name": "x", "type": "SERVICE_TASK", "nextStep": "end", "compensation": {"jobType": "undo"}}, ` + endStep + `]}`)
	w.define(`{"id": "above", "name": "x", "steps": [{"id": "a", "name": "x", "type": "SUBWORKFLOW", "workflowId": "order", "nextStep": "end"}, ` + endStep + `]}`)
	for _, definition := range []string{"order", "undone"} {
		_, err := w.Start(t.Context(), engine.StartRequest{DefinitionID: definition, ID: uuid.New()})
		require.ErrorIs(t, err, engine.ErrWithoutKafka)
		require.ErrorContains(t, err, definition+", version 1, cannot be started: there is no Kafka for its commands: set kafka.brokers")
	}
	w.start("jobs", `{}`)
	above := w.start("above", `{}`)
	above = w.ends(above.ID, workflow.Failed)
	assert.Contains(t, above.FailureReason, "there is no Kafka")
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM wf_instances WHERE definition_id IN ('order', 'undone')`))

	// Others of the same transaction are not concerned, and with Kafka it is started.
	found, errs := w.StartMany(t.Context(), []engine.StartRequest{{DefinitionID: "order"}, {DefinitionID: "jobs"}})
	require.ErrorIs(t, errs[0], engine.ErrWithoutKafka)
	require.NoError(t, errs[1])
	assert.Equal(t, workflow.Active, found[1].Status)
	with := worldOn(t, w.dsn, w.plans, func(c *engine.Config) { c.Sagas = engine.SagaTopics{} })
	with.start("order", `{}`)
}

// attention is the gauge of instances that need attention, by kind; nil before it was counted.
func (w *world) attention() map[string]float64 {
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "millrace_engine_instances_needing_attention" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return counts
}

func TestInstancesThatNeedAttentionAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *engine.Config) { c.Sagas = engine.SagaTopics{} })
	w.define(`{"id": "order", "name": "x", "steps": [` + commandStep + `]}`)
	for range 2 {
		i := w.start("order", `{}`)
		_, err := w.pool.Exec(t.Context(), `UPDATE wf_instances SET status = 'NEEDS_ATTENTION', trouble = 'NEEDS_ATTENTION' WHERE id = $1`, i.ID)
		require.NoError(t, err)
	}
	assert.Empty(t, w.attention())
	leases := lease.NewManager(w.pool, "test", time.Minute, nil)
	stop := w.run(func(ctx context.Context) error { return w.RunHousekeeping(ctx, leases) })
	require.Eventually(t, func() bool { return w.attention()["saga"] == 2 }, patience, 10*time.Millisecond)
	assert.Equal(t, map[string]float64{"saga": 2, "workflow": 0}, w.attention())
	stop()
	assert.Empty(t, w.attention(), "somebody else counts")
}
