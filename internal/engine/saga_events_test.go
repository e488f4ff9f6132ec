package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// A workflow in JSON that can undo something is told of like a saga; one that cannot is not.
func TestWorkflowsThatCanUndoAreToldOfAsSagas(t *testing.T) {
	t.Parallel()
	in := Instance{ID: uuid.New(), Kind: "workflow", DefinitionID: "loan", Variables: []byte(`{"a":1}`)}
	entries := []workflow.Entry{
		{Kind: workflow.InstanceStarted},
		{Kind: workflow.JobDispatched, Step: 1, StepID: "pay", StepType: workflow.ServiceTask, Activity: 1, Attempt: 1},
	}
	plain := &workflow.Definition{Steps: []workflow.Step{{ID: "pay", Type: workflow.ServiceTask}, {ID: "which", Type: workflow.Decision}}}
	assert.Empty(t, sagaEvents(in, plain, nil, entries, time.Now()))
	plain.Steps[0].Compensation = &workflow.Compensation{JobType: "refund"}
	at := time.Now()
	assert.Equal(t, []topics.Event{
		topics.SagaStarted{SagaID: in.ID.String(), Name: "loan", Steps: []string{"pay"}, Input: in.Variables, StartedAt: at},
		topics.SagaStepStarted{SagaStep: topics.SagaStep{SagaID: in.ID.String(), Step: "pay", Attempt: 1}, StartedAt: at},
	}, sagaEvents(in, plain, nil, entries, at), "a job has no command")
}

func TestCommandsAreNamedByTheirStep(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	open := func(n, undoes, activity int) workflow.OpenStep {
		return workflow.OpenStep{N: n, Compensates: undoes, Activities: []workflow.OpenActivity{{N: activity, Kind: workflow.CommandActivity}}}
	}
	state := workflow.State{Open: []workflow.OpenStep{open(3, 0, 7), open(5, 2, 9)}}
	for command, want := range map[uuid.UUID]int{commandID(id, 3): 7, compensationID(id, 2): 9} {
		number, found := commandActivity(id, state, command)
		require.True(t, found)
		assert.Equal(t, want, number)
	}
	for _, command := range []uuid.UUID{commandID(id, 2), compensationID(id, 3), commandID(uuid.New(), 3), {}} {
		_, found := commandActivity(id, state, command)
		assert.False(t, found, "its step is not open")
	}
	assert.Equal(t, "lease_expired", sagaCode("Lease expired"))
	assert.Equal(t, "failed", sagaCode("42"))
}
