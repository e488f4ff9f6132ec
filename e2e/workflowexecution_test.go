package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
)

// approval waits for a person, and undoes nothing.
const approval = `{"id": "approval", "name": "Approval", "steps": [
	{"id": "approve", "name": "Approve", "type": "USER_TASK", "nextStep": "decide"},
	{"id": "decide", "name": "Decide", "type": "DECISION", "conditionalNextSteps": {"approved": "end"}},
	{"id": "end", "name": "End", "type": "END"}]}`

// instanceOf waits for the instance of an execution that waits for a person, and returns its id.
func (in *installation) instanceOf(execution string) (id string) {
	t := in.t
	t.Helper()
	await(t, stuckAfter, "the execution has an instance that waits", func() bool {
		err := in.db.QueryRow(t.Context(), `SELECT id::text FROM wf_instances WHERE execution_id = $1::uuid AND status = 'WAITING'`, execution).Scan(&id)
		return err == nil
	})
	return id
}

func (in *installation) becomes(c *client.Client, execution, state string) (e client.Execution) {
	t := in.t
	t.Helper()
	await(t, stuckAfter, "execution "+execution+" is "+state, func() bool {
		var err error
		e, err = c.Get(t.Context(), execution)
		return err == nil && e.State == state
	})
	return e
}

// An instance of a workflow as an execution: the coordinator admits it under its limits, a
// worker waits for it and may die over that, and its end, its variables and a cancel are
// those of the execution.
func TestWorkflowsAsExecutions(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t, append(quickLeases(), "coordinator.limits.flows.per=key", "coordinator.limits.flows.key=executor",
		"coordinator.limits.flows.concurrency=1")...)
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	front := in.serve("front", "workflows,"+frontRoles).ready()
	workers := map[string]*process{"worker-1": in.worker("worker-1", "4").ready()}
	api := front.client()
	_, err = api.PutDefinition(t.Context(), []byte(approval))
	require.NoError(t, err)
	flow := func(key, spec string) client.Request {
		return client.Request{Executor: "workflow", Spec: json.RawMessage(spec), IdempotencyKey: key, Priority: 4}
	}
	first := in.submit(api, []client.Request{
		flow("first", `{"definition_id": "approval", "business_key": "a-1", "variables": {"amount": 9007199254740993}}`),
	})[0]
	instance := in.instanceOf(first)

	// The worker dies; the next one waits for the same instance.
	held := in.becomes(api, first, client.Running)
	require.Equal(t, "worker-1", held.Worker)
	workers["worker-1"].sigkill()
	evict(t, kafka, func(group string) bool { return strings.Contains(group, "worker") })
	workers["worker-2"] = in.worker("worker-2", "4").ready()
	await(t, stuckAfter, "another worker waits", func() bool {
		e, err := api.Get(t.Context(), first)
		return err == nil && e.State == client.Running && e.Worker == "worker-2"
	})
	// One that the limit allows no room has no instance.
	second := in.submit(api, []client.Request{flow("second", `{"definition_id": "approval", "business_key": "a-2"}`)})[0]
	in.becomes(api, second, client.Queued)
	assert.Equal(t, 1, in.count(`SELECT count(*) FROM wf_instances`))

	require.NoError(t, api.CompleteUserTask(t.Context(), instance, "approve", "ada", json.RawMessage(`{"approved": true}`)))
	done := in.becomes(api, first, client.Completed)
	var value strings.Builder
	_, err = api.Result(t.Context(), first, &value)
	require.NoError(t, err)
	assert.JSONEq(t, `{"amount": 9007199254740993, "approved": true}`, value.String())
	assert.Contains(t, value.String(), "9007199254740993", "numbers stay as they were")
	assert.Equal(t, 2, done.Attempt)

	// Now there is room for the second one, and it is cancelled with its instance.
	instance = in.instanceOf(second)
	assert.Equal(t, "a-2 4", in.texts(`SELECT business_key || ' ' || priority FROM wf_instances WHERE id = '` + instance + `'`)[0])
	_, err = api.Cancel(t.Context(), second, "not needed any more")
	require.NoError(t, err)
	in.becomes(api, second, client.Cancelled)
	assert.Equal(t, []string{"CANCELLED"}, in.texts(`SELECT status FROM wf_instances WHERE id = '`+instance+`'`))

	// One that fails, and one that there is no definition of.
	ids := in.submit(api, []client.Request{flow("third", `{"definition_id": "approval"}`), flow("fourth", `{"definition_id": "nothing"}`)})
	require.NoError(t, api.CompleteUserTask(t.Context(), in.instanceOf(ids[0]), "approve", "ada", json.RawMessage(`{"approved": false}`)))
	assert.Equal(t, "workflow_failed", in.becomes(api, ids[0], client.Failed).Result.Reason)
	assert.Equal(t, "unknown_workflow", in.becomes(api, ids[1], client.Failed).Result.Reason)
	in.stopAll()
}
