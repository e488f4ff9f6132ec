package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// Without an audit log less is written, and the history and the timeline of sagas tell
// the same.
func TestWithoutAnAuditLog(t *testing.T) {
	t.Parallel()
	kinds, told := map[bool][]string{}, map[bool][]string{}
	for _, off := range []bool{false, true} {
		w := newWorld(t, func(c *engine.Config) { c.NoAudit = off })
		w.define(`{"id": "x", "name": "x", "steps": [
			{"id": "a", "name": "A", "type": "SERVICE_TASK", "retryCount": 1, "nextStep": "b"},
			{"id": "b", "name": "B", "type": "USER_TASK", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
		i := w.start("x", `{}`)
		require.NoError(t, w.FailJob(t.Context(), jobs.Failure{Holder: holder(w.claimOne("a")), Retryable: true, Code: "x"}))
		w.complete(w.claimOne("a"), `{"y": 1}`)
		require.NoError(t, w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: i.ID, StepID: "b", Actor: "ada"}))
		w.ends(i.ID, workflow.Completed)
		w.sound()
		kinds[off] = w.kinds(i.ID)
		steps, err := w.History(t.Context(), i.ID)
		require.NoError(t, err)
		for _, s := range steps {
			told[off] = append(told[off], fmt.Sprintf("%s %s %s %s %d", s.StepID, s.StepType, s.Status, s.Output, s.ActivityAttempts))
		}
	}
	assert.Equal(t, told[false], told[true])
	assert.Subset(t, kinds[false], kinds[true])
	assert.Subset(t, kinds[false], []string{string(workflow.JobRetried), string(workflow.JobCompleted), string(workflow.UserTaskDone)})
	assert.Equal(t, []string{"instance-started", "step-entered", "job-dispatched", "job-dispatched", "step-completed", "step-entered", "user-task-created", "step-completed", "step-completed", "instance-completed"}, kinds[true])

	w := newWorld(t, func(c *engine.Config) { c.NoAudit = true })
	w.define(`{"id": "s", "name": "x", "steps": [
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "compensation": {"jobType": "undo"}, "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("s", `{}`)
	w.complete(w.claimOne("a"), `{}`)
	assert.Contains(t, w.kinds(i.ID), string(workflow.JobCompleted), "sagas are told by all of it")
}
