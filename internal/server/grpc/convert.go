package grpc

import (
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// The names of the enums are those of the engine with a prefix.
const (
	statusPrefix     = "INSTANCE_STATUS_"
	stepTypePrefix   = "STEP_TYPE_"
	stepStatusPrefix = "STEP_EXECUTION_STATUS_"
	boundaryPrefix   = "BOUNDARY_EVENT_TYPE_"
	taskStatusPrefix = "USER_TASK_STATUS_"
)

func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func optionalID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// fromInstance is an instance with its variables in both forms.
func fromInstance(i engine.Instance) *workflowv1.WorkflowInstance {
	out := bareInstance(i)
	out.Variables, out.VariablesJson = structOf(i.Variables), i.Variables
	return out
}

// bareInstance is an instance without its variables.
func bareInstance(i engine.Instance) *workflowv1.WorkflowInstance {
	return &workflowv1.WorkflowInstance{
		Id: i.ID.String(), DefinitionId: i.DefinitionID, DefinitionVersion: int32(i.DefinitionVersion), Status: statusOfInstance(i.Status),
		CurrentStepIds: i.CurrentStepIDs, StartedAt: moment(i.StartedAt), CompletedAt: moment(i.EndedAt), FailureReason: i.FailureReason,
		BusinessKey: i.BusinessKey, Kind: i.Kind, StateVersion: i.Version, Tenant: i.Tenant, User: i.User, Priority: int32(i.Priority),
		ParentInstanceId: optionalID(i.ParentInstanceID), ExecutionId: optionalID(i.ExecutionID), NextInstanceId: optionalID(i.NextInstanceID),
		CorrelationId: i.CorrelationID, UpdatedAt: moment(i.UpdatedAt), Notice: i.Notice,
	}
}

func statusOfInstance(s workflow.Status) workflowv1.InstanceStatus {
	return workflowv1.InstanceStatus(workflowv1.InstanceStatus_value[statusPrefix+string(s)])
}

// instanceStatus is a status to filter by.
func instanceStatus(s workflowv1.InstanceStatus) (workflow.Status, error) {
	name, known := workflowv1.InstanceStatus_name[int32(s)]
	if !known || s == workflowv1.InstanceStatus_INSTANCE_STATUS_UNSPECIFIED {
		return "", invalid("status", "invalid", "is not known: "+strconv.Itoa(int(s)))
	}
	return workflow.Status(name[len(statusPrefix):]), nil
}

func fromStep(s engine.StepExecution) *workflowv1.StepExecution {
	return &workflowv1.StepExecution{
		Id: s.ID, InstanceId: s.InstanceID.String(), StepId: s.StepID, StepType: typeOfStep(s.StepType),
		AttemptNumber: int32(s.AttemptNumber),
		Status:        workflowv1.StepExecutionStatus(workflowv1.StepExecutionStatus_value[stepStatusPrefix+s.Status]),
		StartedAt:     moment(s.StartedAt), EndedAt: moment(s.EndedAt), FailureReason: s.FailureReason,
		OutputJson: s.Output, CompensatesStep: s.CompensatesStep, ActivityAttempts: int32(s.ActivityAttempts),
	}
}

func typeOfStep(t workflow.StepType) workflowv1.StepType {
	return workflowv1.StepType(workflowv1.StepType_value[stepTypePrefix+string(t)])
}

func fromAudit(e engine.AuditEntry) *workflowv1.AuditEntry {
	return &workflowv1.AuditEntry{At: moment(e.At), Actor: e.Actor, Kind: e.Kind, StateVersion: e.Version, DetailJson: e.Detail}
}

// fromJob is a job with variables_json only: making a Struct of it costs more than all
// the rest.
func fromJob(j *jobs.Job) *workflowv1.Job {
	instance := j.InstanceID.String()
	return &workflowv1.Job{
		Id: j.ID.String(), JobType: j.JobType, InstanceId: instance, StepId: j.StepID,
		StepExecutionId: instance + "." + strconv.Itoa(j.Step), RetriesRemaining: int32(j.RetriesRemaining),
		LockExpiresAt: moment(j.LockExpiresAt), VariablesJson: j.Variables, Attempt: int32(j.Attempt), Priority: int32(j.Priority),
		Token: j.Token, CreatedAt: moment(j.CreatedAt), LockedAt: moment(j.LockedAt),
	}
}

func fromTask(t engine.UserTask) *workflowv1.UserTask {
	return &workflowv1.UserTask{
		InstanceId: t.InstanceID.String(), StepId: t.StepID, Name: t.Name, Label: t.Label, DefinitionId: t.DefinitionID,
		BusinessKey: t.BusinessKey, Status: workflowv1.UserTaskStatus(workflowv1.UserTaskStatus_value[taskStatusPrefix+t.Status]),
		Assignee: t.Assignee, CandidateGroups: t.Groups, DueAt: moment(t.DueAt), CreatedAt: moment(t.CreatedAt),
		ClaimedAt: moment(t.ClaimedAt), EndedAt: moment(t.EndedAt), EndedBy: t.EndedBy, VariablesJson: t.Variables,
	}
}
