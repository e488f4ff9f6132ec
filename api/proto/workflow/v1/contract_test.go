package workflowv1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
)

// contract is what clients were built against: the fields of each message with their
// numbers and types.
const contract = `
WorkflowDefinition: 1 id string; 2 version int32; 3 name string; 4 description string; 5 auto_start_next_workflow bool; 6 next_workflow_id string; 7 steps repeated WorkflowStep; 8 metadata google.protobuf.Struct
WorkflowStep: 1 id string; 2 name string; 3 type StepType; 4 description string; 10 next_step string; 11 parallel_next_steps repeated string; 12 join_step string; 20 conditional_next_steps map string; 30 transformations map google.protobuf.Value; 40 job_type string; 41 delegate_class string; 42 retry_count int32; 50 boundary_events repeated BoundaryEvent
BoundaryEvent: 1 type BoundaryEventType; 2 duration string; 3 interrupting bool; 4 target_step_id string
WorkflowInstance: 1 id string; 2 definition_id string; 3 definition_version int32; 4 status InstanceStatus; 5 current_step_ids repeated string; 6 variables google.protobuf.Struct; 7 started_at google.protobuf.Timestamp; 8 completed_at google.protobuf.Timestamp; 9 failure_reason string; 10 business_key string
StepExecution: 1 id string; 2 instance_id string; 3 step_id string; 4 step_type StepType; 5 attempt_number int32; 6 status StepExecutionStatus; 7 started_at google.protobuf.Timestamp; 8 ended_at google.protobuf.Timestamp; 9 failure_reason string
Job: 1 id string; 2 job_type string; 3 instance_id string; 4 step_id string; 5 step_execution_id string; 6 retries_remaining int32; 7 variables google.protobuf.Struct; 8 lock_expires_at google.protobuf.Timestamp
JobDispatchEvent: 1 schema_version uint32; 2 dedup_id string; 10 job_id string; 11 instance_id string; 12 step_execution_id string; 13 job_type string; 20 retries_remaining int32; 30 job_payload bytes; 40 created_at google.protobuf.Timestamp
UploadDefinitionRequest: 1 definition WorkflowDefinition
UploadDefinitionResponse: 1 id string; 2 version int32; 3 uploaded_at google.protobuf.Timestamp
GetDefinitionRequest: 1 id string; 2 version int32
GetDefinitionResponse: 1 definition WorkflowDefinition
ListDefinitionsRequest: 1 keyword string; 2 page int32; 3 page_size int32
ListDefinitionsResponse: 1 definitions repeated WorkflowDefinition; 2 total int32
StartInstanceRequest: 1 definition_id string; 2 definition_version int32; 3 variables google.protobuf.Struct; 4 business_key string
StartInstanceResponse: 1 instance WorkflowInstance
GetInstanceRequest: 1 id string
GetInstanceResponse: 1 instance WorkflowInstance
GetInstanceHistoryRequest: 1 id string
GetInstanceHistoryResponse: 1 executions repeated StepExecution
CancelInstanceRequest: 1 id string; 2 reason string
CancelInstanceResponse: 1 instance WorkflowInstance
ListInstancesRequest: 1 definition_id string; 2 status InstanceStatus; 3 business_key string; 4 page int32; 5 page_size int32
ListInstancesResponse: 1 instances repeated WorkflowInstance; 2 total int32
PollJobsRequest: 1 worker_id string; 2 job_types repeated string; 3 max_jobs int32; 4 lease_seconds int32
PollJobsResponse: 1 jobs repeated Job
CompleteJobRequest: 1 job_id string; 2 worker_id string; 3 variables_to_set google.protobuf.Struct
CompleteJobResponse:
FailJobRequest: 1 job_id string; 2 worker_id string; 3 retryable bool; 4 error_message string
FailJobResponse:
CompleteUserTaskRequest: 2 completed_by string; 3 result google.protobuf.Struct; 4 instance_id string; 5 user_task_step_id string
CompleteUserTaskResponse:
SignalWaitRequest: 1 instance_id string; 2 wait_step_id string; 3 variables google.protobuf.Struct
SignalWaitResponse:
`

// enums are the values that clients were built against.
const enums = `
StepType: STEP_TYPE_UNSPECIFIED STEP_TYPE_SERVICE_TASK STEP_TYPE_USER_TASK STEP_TYPE_DECISION STEP_TYPE_TRANSFORMATION STEP_TYPE_WAIT STEP_TYPE_PARALLEL_GATEWAY STEP_TYPE_JOIN_GATEWAY STEP_TYPE_END
InstanceStatus: INSTANCE_STATUS_UNSPECIFIED INSTANCE_STATUS_ACTIVE INSTANCE_STATUS_WAITING INSTANCE_STATUS_COMPLETED INSTANCE_STATUS_FAILED INSTANCE_STATUS_CANCELLED
StepExecutionStatus: STEP_EXECUTION_STATUS_UNSPECIFIED STEP_EXECUTION_STATUS_RUNNING STEP_EXECUTION_STATUS_COMPLETED STEP_EXECUTION_STATUS_FAILED STEP_EXECUTION_STATUS_SKIPPED
BoundaryEventType: BOUNDARY_EVENT_TYPE_UNSPECIFIED BOUNDARY_EVENT_TYPE_TIMER
`

// calls are the calls that clients were built against. Each has a request and a response
// of its name.
const calls = `UploadDefinition GetDefinition ListDefinitions StartInstance GetInstance GetInstanceHistory CancelInstance
	ListInstances PollJobs CompleteJob FailJob CompleteUserTask SignalWait`

// firstOwn is the number from which on fields and values are Millrace's.
const firstOwn = 100

func file() protoreflect.FileDescriptor { return workflowv1.File_workflow_v1_engine_proto }

func lines(table string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		out[name] = strings.TrimSpace(rest)
	}
	return out
}

func TestMessagesKeepTheContract(t *testing.T) {
	t.Parallel()
	assert.EqualValues(t, "workflow.v1", file().Package())
	for name, want := range lines(contract) {
		m := file().Messages().ByName(protoreflect.Name(name))
		require.NotNil(t, m, name)
		var fields []string
		for i := range m.Fields().Len() {
			if fd := m.Fields().Get(i); fd.Number() < firstOwn {
				fields = append(fields, fmt.Sprintf("%d %s %s", fd.Number(), fd.Name(), typeOf(fd)))
			}
		}
		assert.Equal(t, want, strings.Join(fields, "; "), name)
	}
	task := (&workflowv1.CompleteUserTaskRequest{}).ProtoReflect().Descriptor()
	assert.True(t, task.ReservedRanges().Has(1), "an address that is gone is not given to anything else")
	assert.True(t, task.ReservedNames().Has("user_task_id"))
}

func typeOf(fd protoreflect.FieldDescriptor) string {
	of := func(fd protoreflect.FieldDescriptor) string {
		switch {
		case fd.Message() != nil:
			return strings.TrimPrefix(string(fd.Message().FullName()), "workflow.v1.")
		case fd.Enum() != nil:
			return strings.TrimPrefix(string(fd.Enum().FullName()), "workflow.v1.")
		}
		return fd.Kind().String()
	}
	switch {
	case fd.IsMap():
		return "map " + of(fd.MapValue())
	case fd.IsList():
		return "repeated " + of(fd)
	}
	return of(fd)
}

func TestEnumsKeepTheContract(t *testing.T) {
	t.Parallel()
	for name, want := range lines(enums) {
		e := file().Enums().ByName(protoreflect.Name(name))
		require.NotNil(t, e, name)
		for n, value := range strings.Fields(want) {
			found := e.Values().ByNumber(protoreflect.EnumNumber(n))
			require.NotNil(t, found, "%s %d", name, n)
			assert.EqualValues(t, value, found.Name())
		}
		for i := range e.Values().Len() {
			n := int(e.Values().Get(i).Number())
			assert.True(t, n < len(strings.Fields(want)) || n >= firstOwn, "%s: %d is not ours to give", name, n)
		}
	}
}

func TestCallsKeepTheContract(t *testing.T) {
	t.Parallel()
	service := file().Services().ByName("WorkflowEngine")
	require.NotNil(t, service)
	for _, name := range strings.Fields(calls) {
		m := service.Methods().ByName(protoreflect.Name(name))
		require.NotNil(t, m, name)
		assert.EqualValues(t, "workflow.v1."+name+"Request", m.Input().FullName())
		assert.EqualValues(t, "workflow.v1."+name+"Response", m.Output().FullName())
		assert.False(t, m.IsStreamingClient() || m.IsStreamingServer(), name)
	}
}

// TestAnOldClientReadsANewAnswer: what it does not know it passes over, and keeps.
func TestAnOldClientReadsANewAnswer(t *testing.T) {
	t.Parallel()
	job := &workflowv1.Job{
		Id: "j", JobType: "charge", RetriesRemaining: 2, VariablesJson: []byte(`{"n":9007199254740993}`), Attempt: 3, Token: 7,
	}
	wire, err := proto.Marshal(job)
	require.NoError(t, err)
	// Of the same numbers GetDefinitionRequest knows the first as it is, the second as
	// another type, and none of the others.
	var other workflowv1.GetDefinitionRequest
	require.NoError(t, proto.Unmarshal(wire, &other), "a message that knows one of the fields only")
	assert.Equal(t, "j", other.GetId())
	again, err := proto.Marshal(&other)
	require.NoError(t, err)
	var back workflowv1.Job
	require.NoError(t, proto.Unmarshal(again, &back))
	assert.True(t, proto.Equal(job, &back))
}
