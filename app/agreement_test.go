package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/configs"
)

// both is a program that is asked the same over REST and over gRPC.
type both struct {
	t     *testing.T
	url   string
	token string
	ctx   context.Context //nolint:containedctx // with the token, for calls
	flows workflowv1.WorkflowEngineClient
	runs  millracev1.ExecutionServiceClient
	dead  millracev1.DeadLetterServiceClient
	again millracev1.ReplayServiceClient
}

func newBoth(t *testing.T) *both {
	t.Helper()
	p := start(t, sharedConfig(t))
	token, err := configs.ReadToken(p.cfg.API.Auth.TokenFile)
	require.NoError(t, err)
	conn, err := rpc.NewClient(p.running.GRPC, rpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &both{
		t: t, url: p.running.URL, token: token.Reveal(),
		ctx:   metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token.Reveal()),
		flows: workflowv1.NewWorkflowEngineClient(conn), runs: millracev1.NewExecutionServiceClient(conn),
		dead: millracev1.NewDeadLetterServiceClient(conn), again: millracev1.NewReplayServiceClient(conn),
	}
}

// answer is what came of an operation: a document, or the word for why not.
type answer struct {
	document map[string]any
	refused  string
}

// rest makes a request.
func (b *both) rest(method, path, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	var out answer
	if len(text) > 0 {
		require.NoError(b.t, json.Unmarshal(text, &out.document), string(text))
	}
	if resp.StatusCode >= 300 {
		out.refused = strings.ToUpper(fmt.Sprint(out.document["code"]))
	}
	return out
}

// grpc makes an answer of a call. The names of the documents of workflow.v1 are camelCase,
// those of millrace.v1 snake_case, as REST has them.
func (b *both) grpc(m proto.Message, err error) answer {
	b.t.Helper()
	if err != nil {
		st, _ := status.FromError(err)
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				return answer{refused: info.GetReason()}
			}
		}
		return answer{refused: st.String()}
	}
	names := protojson.MarshalOptions{UseProtoNames: m.ProtoReflect().Descriptor().ParentFile().Package() == "millrace.v1"}
	text, err := names.Marshal(m)
	require.NoError(b.t, err)
	var out answer
	require.NoError(b.t, json.Unmarshal(text, &out.document))
	return out
}

// part is the value at a path of a document as text, without the prefix of an enum. A time
// is written the same by both: the JSON of protobuf fills up its digits with zeros.
func (a answer) part(path string) string {
	var at any = a.document
	for name := range strings.SplitSeq(path, ".") {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	text := fmt.Sprint(at)
	for _, prefix := range []string{"INSTANCE_STATUS_", "EXECUTION_STATE_", "STEP_TYPE_", "USER_TASK_STATUS_"} {
		text = strings.TrimPrefix(text, prefix)
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		text = at.UTC().Format(time.RFC3339Nano)
	}
	return text
}

const agreed = `{"id":"agreed","name":"Agreed","steps":[
	{"id":"charge","name":"Charge","type":"SERVICE_TASK","jobType":"agreed-charge","nextStep":"wait"},
	{"id":"wait","name":"Wait","type":"WAIT","nextStep":"ask"},
	{"id":"ask","name":"Ask","type":"USER_TASK","nextStep":"end"},
	{"id":"end","name":"End","type":"END"}]}`

const broken = `{"id":"broken","name":"Broken","steps":[{"id":"a","name":"A","type":"SERVICE_TASK","nextStep":"nowhere"}]}`

// TestRESTAndGRPCAgree asks for the same over both, one after the other, and compares what
// comes of it: operations that can be repeated give the same twice, and what is refused is
// refused with the same word.
func TestRESTAndGRPCAgree(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	id, nobody := uuid.Must(uuid.NewV7()).String(), uuid.NewString()
	var execution, job string
	later := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	submit := `{"executor":"process","spec":{"command":["true"]},"not_before":"` + later + `","labels":{"a":"b"},"idempotency_key":"k","limits":{"run":"1m30s"}}`
	submitted := func() *millracev1.SubmitExecutionRequest {
		in := &millracev1.SubmitExecutionRequest{}
		require.NoError(t, protojson.Unmarshal([]byte(strings.Replace(submit, "1m30s", "90s", 1)), in))
		return in
	}
	other := submitted()
	other.Executor = "function"
	other.SpecJson = []byte(`{"name":"f"}`)
	start := `{"definitionId":"agreed","businessKey":"b-1","id":"` + id + `","variables":{"n":9007199254740993}}`
	started := &workflowv1.StartInstanceRequest{DefinitionId: "agreed", BusinessKey: "b-1", InstanceId: id, VariablesJson: []byte(`{"n":9007199254740993}`)}

	for _, op := range []struct {
		name string
		rest func() answer
		grpc func() answer
		// same are the parts that must be equal, "path in REST=path in gRPC".
		same []string
		// refused is the word for why not; empty: it is not.
		refused string
		then    func(rest, grpc answer)
	}{
		{name: "submit", same: []string{"id=execution.id", "executor=execution.executor", "spec=execution.spec", "labels=execution.labels"},
			rest: func() answer { return b.rest("POST", "/v1/executions", submit) },
			grpc: func() answer { return b.grpc(b.runs.SubmitExecution(b.ctx, submitted())) },
			then: func(r, g answer) {
				execution = r.part("id")
				assert.Equal(t, "true", g.part("replayed"), "one key, one execution, whichever way it comes")
			}},
		{name: "submit another under the key", refused: "IDEMPOTENCY_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/executions", strings.Replace(submit, "true", "false", 1)) },
			grpc: func() answer { return b.grpc(b.runs.SubmitExecution(b.ctx, other)) }},
		{name: "submit nothing", refused: "VALIDATION_FAILED",
			rest: func() answer { return b.rest("POST", "/v1/executions", `{"priority":9}`) },
			grpc: func() answer {
				return b.grpc(b.runs.SubmitExecution(b.ctx, &millracev1.SubmitExecutionRequest{Priority: proto.Int32(9)}))
			}},
		{name: "get", same: []string{"id=execution.id", "user=execution.user", "origin.kind=execution.origin.kind", "priority=execution.priority"},
			rest: func() answer { return b.rest("GET", "/v1/executions/"+execution, "") },
			grpc: func() answer {
				return b.grpc(b.runs.GetExecution(b.ctx, &millracev1.GetExecutionRequest{Id: execution}))
			}},
		{name: "get nothing", refused: "EXECUTION_NOT_FOUND",
			rest: func() answer { return b.rest("GET", "/v1/executions/"+nobody, "") },
			grpc: func() answer { return b.grpc(b.runs.GetExecution(b.ctx, &millracev1.GetExecutionRequest{Id: nobody})) }},
		{name: "explain", same: []string{"execution_id=execution_id"},
			rest: func() answer { return b.rest("GET", "/v1/executions/"+execution+"/explain", "") },
			grpc: func() answer {
				return b.grpc(b.runs.ExplainExecution(b.ctx, &millracev1.ExplainExecutionRequest{Id: execution}))
			}},
		{name: "rerun what has not ended", refused: "EXECUTION_NOT_ENDED",
			rest: func() answer { return b.rest("POST", "/v1/executions/"+execution+"/rerun", "") },
			grpc: func() answer {
				return b.grpc(b.runs.RerunExecution(b.ctx, &millracev1.RerunExecutionRequest{Id: execution}))
			}},
		{name: "list with a token that is none", refused: "INVALID_PAGE_TOKEN",
			rest: func() answer { return b.rest("GET", "/v1/executions?page_token=x", "") },
			grpc: func() answer {
				return b.grpc(b.runs.ListExecutions(b.ctx, &millracev1.ListExecutionsRequest{PageToken: "x"}))
			}},
		{name: "list dead letters",
			rest: func() answer { return b.rest("GET", "/v1/dead-letters?status=OPEN", "") },
			grpc: func() answer {
				return b.grpc(b.dead.ListDeadLetters(b.ctx, &millracev1.ListDeadLettersRequest{Status: []millracev1.DeadLetterStatus{millracev1.DeadLetterStatus_DEAD_LETTER_STATUS_OPEN}}))
			}},
		{name: "get no dead letter", refused: "DEAD_LETTER_NOT_FOUND",
			rest: func() answer { return b.rest("GET", "/v1/dead-letters/"+nobody, "") },
			grpc: func() answer {
				return b.grpc(b.dead.GetDeadLetter(b.ctx, &millracev1.GetDeadLetterRequest{Id: nobody}))
			}},
		{name: "redrive no dead letter", refused: "DEAD_LETTER_NOT_FOUND",
			rest: func() answer { return b.rest("POST", "/v1/dead-letters/"+nobody+"/redrive", "") },
			grpc: func() answer {
				return b.grpc(b.dead.RedriveDeadLetter(b.ctx, &millracev1.RedriveDeadLetterRequest{Id: nobody}))
			}},
		{name: "redrive nobody's", refused: "VALIDATION_FAILED",
			rest: func() answer { return b.rest("POST", "/v1/dead-letters:redrive", "{}") },
			grpc: func() answer {
				return b.grpc(b.dead.RedriveDeadLetters(b.ctx, &millracev1.RedriveDeadLettersRequest{}))
			}},
		{name: "plan a replay", same: []string{"target.topic=plan.target.topic"},
			rest: func() answer {
				return b.rest("POST", "/v1/replays", `{"target":{"topic":"flow-lifecycle-out"},"dry_run":true}`)
			},
			grpc: func() answer {
				return b.grpc(b.again.CreateReplay(b.ctx, &millracev1.CreateReplayRequest{Target: &millracev1.ReplayTarget{Topic: "flow-lifecycle-out"}, DryRun: true}))
			}},
		{name: "get no replay", refused: "REPLAY_NOT_FOUND",
			rest: func() answer { return b.rest("GET", "/v1/replays/"+nobody, "") },
			grpc: func() answer { return b.grpc(b.again.GetReplay(b.ctx, &millracev1.GetReplayRequest{Id: nobody})) }},
		{name: "replay to nobody", refused: "VALIDATION_FAILED",
			rest: func() answer { return b.rest("POST", "/v1/replays", `{"target":{}}`) },
			grpc: func() answer {
				return b.grpc(b.again.CreateReplay(b.ctx, &millracev1.CreateReplayRequest{Target: &millracev1.ReplayTarget{}}))
			}},
		{name: "upload", same: []string{"id=id", "version=version"},
			rest: func() answer { return b.rest("POST", "/v1/definitions", agreed) },
			grpc: func() answer {
				return b.grpc(b.flows.UploadDefinition(b.ctx, &workflowv1.UploadDefinitionRequest{Document: []byte(agreed)}))
			}},
		{name: "upload what is broken", refused: "DEFINITION_INVALID",
			rest: func() answer { return b.rest("POST", "/v1/definitions", broken) },
			grpc: func() answer {
				return b.grpc(b.flows.UploadDefinition(b.ctx, &workflowv1.UploadDefinitionRequest{Document: []byte(broken)}))
			}},
		{name: "get the definition", same: []string{"id=definition.id", "name=definition.name", "version=definition.version"},
			rest: func() answer { return b.rest("GET", "/v1/definitions/agreed", "") },
			grpc: func() answer {
				return b.grpc(b.flows.GetDefinition(b.ctx, &workflowv1.GetDefinitionRequest{Id: "agreed"}))
			}},
		{name: "get no definition", refused: "WORKFLOW_NOT_FOUND",
			rest: func() answer { return b.rest("GET", "/v1/definitions/nobody", "") },
			grpc: func() answer {
				return b.grpc(b.flows.GetDefinition(b.ctx, &workflowv1.GetDefinitionRequest{Id: "nobody"}))
			}},
		{name: "start", same: []string{"id=instance.id", "definitionVersion=instance.definitionVersion", "status=instance.status", "currentStepIds=instance.currentStepIds", "businessKey=instance.businessKey"},
			rest: func() answer { return b.rest("POST", "/v1/instances", start) },
			grpc: func() answer { return b.grpc(b.flows.StartInstance(b.ctx, started)) }},
		{name: "start another under the id", refused: "IDEMPOTENCY_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/instances", strings.Replace(start, "b-1", "b-2", 1)) },
			grpc: func() answer {
				return b.grpc(b.flows.StartInstance(b.ctx, &workflowv1.StartInstanceRequest{DefinitionId: "agreed", InstanceId: id}))
			}},
		{name: "start what is not there", refused: "WORKFLOW_NOT_FOUND",
			rest: func() answer { return b.rest("POST", "/v1/instances", `{"definitionId":"nobody"}`) },
			grpc: func() answer {
				return b.grpc(b.flows.StartInstance(b.ctx, &workflowv1.StartInstanceRequest{DefinitionId: "nobody"}))
			}},
		{name: "start with a list", refused: "BAD_REQUEST",
			rest: func() answer { return b.rest("POST", "/v1/instances", `{"definitionId":"agreed","variables":[1]}`) },
			grpc: func() answer {
				return b.grpc(b.flows.StartInstance(b.ctx, &workflowv1.StartInstanceRequest{DefinitionId: "agreed", VariablesJson: []byte(`[1]`)}))
			}},
		{name: "get the instance", same: []string{"status=instance.status", "startedAt=instance.startedAt", "version=instance.stateVersion"},
			rest: func() answer { return b.rest("GET", "/v1/instances/"+id, "") },
			grpc: func() answer { return b.grpc(b.flows.GetInstance(b.ctx, &workflowv1.GetInstanceRequest{Id: id})) }},
		{name: "get no instance", refused: "WORKFLOW_NOT_FOUND",
			rest: func() answer { return b.rest("GET", "/v1/instances/"+nobody, "") },
			grpc: func() answer { return b.grpc(b.flows.GetInstance(b.ctx, &workflowv1.GetInstanceRequest{Id: nobody})) }},
		{name: "poll for nothing", refused: "BAD_REQUEST",
			rest: func() answer { return b.rest("POST", "/v1/jobs/poll", `{"workerId":"w"}`) },
			grpc: func() answer { return b.grpc(b.flows.PollJobs(b.ctx, &workflowv1.PollJobsRequest{WorkerId: "w"})) }},
		{name: "poll", // REST takes the only job, gRPC finds none
			rest: func() answer {
				return b.rest("POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["agreed-charge"],"maxJobs":5,"wait":"20s"}`)
			},
			grpc: func() answer {
				return b.grpc(b.flows.PollJobs(b.ctx, &workflowv1.PollJobsRequest{WorkerId: "w2", JobTypes: []string{"agreed-charge"}}))
			},
			then: func(r, g answer) {
				taken, _ := r.document["jobs"].([]any)
				require.Len(t, taken, 1)
				one, _ := taken[0].(map[string]any)
				job = fmt.Sprint(one["id"])
				assert.Empty(t, g.document)
			}},
		{name: "complete as somebody else", refused: "JOB_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/jobs/"+job+"/complete", `{"workerId":"w2"}`) },
			grpc: func() answer {
				return b.grpc(b.flows.CompleteJob(b.ctx, &workflowv1.CompleteJobRequest{JobId: job, WorkerId: "w2"}))
			}},
		{name: "complete", // and again, by the other way: no error
			rest: func() answer {
				return b.rest("POST", "/v1/jobs/"+job+"/complete", `{"workerId":"w","variables":{"paid":true}}`)
			},
			grpc: func() answer {
				return b.grpc(b.flows.CompleteJob(b.ctx, &workflowv1.CompleteJobRequest{JobId: job, WorkerId: "w"}))
			}},
		{name: "fail what is done", refused: "JOB_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/jobs/"+job+"/fail", `{"workerId":"w","errorMessage":"no"}`) },
			grpc: func() answer {
				return b.grpc(b.flows.FailJob(b.ctx, &workflowv1.FailJobRequest{JobId: job, WorkerId: "w"}))
			}},
		{name: "complete no job", refused: "JOB_NOT_FOUND",
			rest: func() answer { return b.rest("POST", "/v1/jobs/"+nobody+"/complete", `{"workerId":"w"}`) },
			grpc: func() answer {
				return b.grpc(b.flows.CompleteJob(b.ctx, &workflowv1.CompleteJobRequest{JobId: nobody, WorkerId: "w"}))
			}},
		{name: "signal what is no WAIT", refused: "BAD_REQUEST",
			rest: func() answer { return b.rest("POST", "/v1/instances/"+id+"/signals/charge", "") },
			grpc: func() answer {
				return b.grpc(b.flows.SignalWait(b.ctx, &workflowv1.SignalWaitRequest{InstanceId: id, WaitStepId: "charge"}))
			}},
		{name: "complete a task that is not there yet", refused: "WORKFLOW_NOT_FOUND",
			rest: func() answer { return b.rest("POST", "/v1/instances/"+id+"/user-tasks/ask/complete", "") },
			grpc: func() answer {
				return b.grpc(b.flows.CompleteUserTask(b.ctx, &workflowv1.CompleteUserTaskRequest{InstanceId: id, UserTaskStepId: "ask"}))
			}},
		{name: "history",
			rest: func() answer { return b.rest("GET", "/v1/instances/"+id+"/history", "") },
			grpc: func() answer {
				return b.grpc(b.flows.GetInstanceHistory(b.ctx, &workflowv1.GetInstanceHistoryRequest{Id: id}))
			},
			then: func(r, g answer) {
				left, _ := r.document["items"].([]any)
				right, _ := g.document["executions"].([]any)
				assert.Len(t, right, len(left))
				require.Len(t, left, 2)
			}},
		{name: "cancel", same: []string{"status=instance.status", "failureReason=instance.failureReason"},
			rest: func() answer { return b.rest("POST", "/v1/instances/"+id+"/cancel", `{"reason":"enough"}`) },
			grpc: func() answer { // one of its own: what has ended cannot be cancelled
				another := b.rest("POST", "/v1/instances", `{"definitionId":"agreed"}`).part("id")
				return b.grpc(b.flows.CancelInstance(b.ctx, &workflowv1.CancelInstanceRequest{Id: another, Reason: "enough"}))
			}},
		{name: "cancel what has ended", refused: "WORKFLOW_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/instances/"+id+"/cancel", "") },
			grpc: func() answer {
				return b.grpc(b.flows.CancelInstance(b.ctx, &workflowv1.CancelInstanceRequest{Id: id}))
			}},
		{name: "suspend what has ended", refused: "WORKFLOW_CONFLICT",
			rest: func() answer { return b.rest("POST", "/v1/instances/"+id+"/suspend", "") },
			grpc: func() answer {
				return b.grpc(b.flows.SuspendInstance(b.ctx, &workflowv1.SuspendInstanceRequest{Id: id}))
			}},
	} {
		left, right := op.rest(), op.grpc()
		assert.Equal(t, op.refused, left.refused, "%s over REST: %v", op.name, left.document)
		assert.Equal(t, op.refused, right.refused, "%s over gRPC: %v", op.name, right.document)
		for _, pair := range op.same {
			of, as, _ := strings.Cut(pair, "=")
			assert.Equal(t, left.part(of), right.part(as), "%s: %s", op.name, pair)
			assert.NotEqual(t, "<nil>", left.part(of), "%s: %s is there", op.name, of)
		}
		if op.then != nil {
			op.then(left, right)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
