package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
)

const oneStep = `{"id":"streamed","name":"Streamed","steps":[
	{"id":"charge","name":"Charge","type":"SERVICE_TASK","jobType":"streamed-charge","nextStep":"end"},
	{"id":"end","name":"End","type":"END"}]}`

// TestAWorkerDiesInItsStream: the leases of its jobs run out, another worker gets them with
// new tokens, and what the first one still says of them is refused.
func TestAWorkerDiesInItsStream(t *testing.T) {
	t.Parallel()
	const runs = 5
	b := newBoth(t)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := b.flows.UploadDefinition(ctx, &workflowv1.UploadDefinitionRequest{Document: []byte(oneStep)})
	require.NoError(t, err)
	var requests []*workflowv1.StartInstanceRequest
	for n := range runs {
		requests = append(requests, &workflowv1.StartInstanceRequest{DefinitionId: "streamed", VariablesJson: fmt.Appendf(nil, `{"n":%d}`, n)})
	}
	requests = append(requests, &workflowv1.StartInstanceRequest{DefinitionId: "nobody"})
	started, err := b.flows.StartInstances(ctx, &workflowv1.StartInstancesRequest{Requests: requests})
	require.NoError(t, err)
	require.Len(t, started.GetResults(), runs+1)
	assert.Equal(t, "WORKFLOW_NOT_FOUND", started.GetResults()[runs].GetError().GetReason(), "one that is refused is no matter of the others")

	open := func(ctx context.Context, worker string) workflowv1.WorkflowEngine_StreamJobsClient {
		stream, err := b.flows.StreamJobs(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&workflowv1.StreamJobsRequest{
			Open:    &workflowv1.StreamJobsOpen{WorkerId: worker, JobTypes: []string{"streamed-charge"}, LeaseSeconds: 1},
			Credits: runs,
		}))
		return stream
	}
	take := func(stream workflowv1.WorkflowEngine_StreamJobsClient) map[string]*workflowv1.Job {
		taken := map[string]*workflowv1.Job{}
		for len(taken) < runs {
			in, err := stream.Recv()
			require.NoError(t, err)
			for _, j := range in.GetJobs() {
				taken[j.GetId()] = j
			}
		}
		return taken
	}
	life, die := context.WithCancel(ctx)
	first := take(open(life, "first"))
	die()

	second := open(ctx, "second")
	var done, late []*workflowv1.JobCompletion
	for id, j := range take(second) {
		require.Contains(t, first, id)
		assert.Greater(t, j.GetToken(), first[id].GetToken())
		done = append(done, &workflowv1.JobCompletion{JobId: id, Token: j.GetToken(), VariablesJson: []byte(`{"by":"second"}`)})
		late = append(late, &workflowv1.JobCompletion{JobId: id, Token: first[id].GetToken(), VariablesJson: []byte(`{"by":"first"}`)})
	}
	require.NoError(t, second.Send(&workflowv1.StreamJobsRequest{Completions: done}))
	for results := 0; results < runs; {
		in, err := second.Recv()
		require.NoError(t, err)
		for _, r := range in.GetResults() {
			assert.Nil(t, r.GetError(), "%v", r)
		}
		results += len(in.GetResults())
	}
	refusals, err := b.flows.CompleteJobs(ctx, &workflowv1.CompleteJobsRequest{WorkerId: "first", Completions: late})
	require.NoError(t, err)
	for _, r := range refusals.GetResults() {
		assert.Equal(t, "JOB_CONFLICT", r.GetError().GetReason())
	}
	for _, r := range started.GetResults()[:runs] {
		out, err := b.flows.WaitInstance(ctx, &workflowv1.WaitInstanceRequest{Id: r.GetInstance().GetId(), Timeout: durationpb.New(patience)})
		require.NoError(t, err)
		assert.Equal(t, workflowv1.InstanceStatus_INSTANCE_STATUS_COMPLETED, out.GetInstance().GetStatus())
		assert.Equal(t, "second", out.GetInstance().GetVariables().GetFields()["by"].GetStringValue())
	}
	require.NoError(t, second.CloseSend())
}
