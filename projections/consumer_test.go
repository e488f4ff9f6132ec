package projections_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

func TestTheConsumerKeepsGoingPastABadEvent(t *testing.T) {
	t.Parallel()
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	h := pipelinetest.New(t, projections.Executions().Consumer(), pipelinetest.WithTx(tx))

	events := history(t, "e1")
	bad := events[3]
	bad.Data = []byte(`{"execution_id":"e1","attempt":-1}`)
	outcomes := h.FeedEnvelope(append(append([]topics.Envelope{}, events[:3]...), append([]topics.Envelope{bad}, events[3:]...)...)...)
	assert.Equal(t, pipelinetest.DeadLettered, outcomes[3])
	assert.Len(t, h.DeadLetters(), 1)

	found := list(t, tx)
	require.Len(t, found, 1)
	assert.Equal(t, execution.Cancelled, *found[0].State)
}
