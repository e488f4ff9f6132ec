package workflow_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

func TestJobTypes(t *testing.T) {
	t.Parallel()
	d, err := workflow.Parse([]byte(`{"id":"x","name":"x","steps":[
		{"id":"b","type":"SERVICE_TASK","nextStep":"a"},
		{"id":"a","type":"SERVICE_TASK","jobType":"charge","compensation":{"jobType":"refund"},"nextStep":"each"},
		{"id":"each","type":"FOREACH","items":"${list}","nextStep":"all"},
		{"id":"all","type":"FOREACH","items":"${list}","workflowId":"other","nextStep":"ask"},
		{"id":"ask","type":"USER_TASK","jobType":"label","nextStep":"again"},
		{"id":"again","type":"SERVICE_TASK","jobType":"charge","nextStep":"end"},
		{"id":"end","type":"END"}]}`))
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "charge", "each", "refund"}, d.JobTypes())
}
