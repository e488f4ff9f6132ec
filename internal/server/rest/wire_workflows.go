package rest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
)

// The documents of workflows keep the names of the contract of package workflow.v1:
// members are camelCase, and readers have to ignore those that they do not know.

// StartInstanceRequest is the body of POST /v1/instances.
type StartInstanceRequest struct {
	DefinitionID      string          `json:"definitionId" doc:"The definition" example:"LOS::loan-application-full"`
	DefinitionVersion int             `json:"definitionVersion,omitempty" minimum:"0" doc:"Its version; the latest without it"`
	Variables         json.RawMessage `json:"variables,omitempty" doc:"An object. Numbers stay as they are written" example:"{\"loanAmount\":200000000}"`
	BusinessKey       string          `json:"businessKey,omitempty" maxLength:"256" doc:"What the caller calls it" example:"APP-20240417-001"`
	ID                string          `json:"id,omitempty" format:"uuid" doc:"An id of the caller's making: the same request again gives the same instance. UUIDv7 is best"`
	Priority          int             `json:"priority,omitempty" minimum:"1" maximum:"5" default:"3" doc:"1 to 5; 5 is the most urgent"`
	CorrelationID     string          `json:"correlationId,omitempty" maxLength:"256" doc:"Carried by all events of the instance"`
}

// StartInstancesRequest is the body of POST /v1/instances:batch.
type StartInstancesRequest struct {
	Instances []json.RawMessage `json:"instances" doc:"Up to 1000 requests, each as for a single start"`
}

// WorkflowInstanceSummary is an instance of a workflow, as it is.
type WorkflowInstanceSummary struct {
	ID                string          `json:"id"`
	DefinitionID      string          `json:"definitionId"`
	DefinitionVersion int             `json:"definitionVersion"`
	Status            string          `json:"status" enum:"ACTIVE,WAITING,SUSPENDED,COMPENSATING,NEEDS_ATTENTION,COMPLETED,FAILED,CANCELLED,COMPENSATED" doc:"WAITING is ACTIVE with a user task or a WAIT open; the last four are final"`
	CurrentStepIDs    []string        `json:"currentStepIds" doc:"The steps that are open"`
	Variables         json.RawMessage `json:"variables,omitempty" doc:"An object"`
	StartedAt         time.Time       `json:"startedAt"`
	CompletedAt       *time.Time      `json:"completedAt,omitempty" doc:"When it ended, in whatever way"`
	FailureReason     string          `json:"failureReason,omitempty"`
	BusinessKey       string          `json:"businessKey,omitempty"`

	Kind             string     `json:"kind,omitempty" doc:"workflow, or saga for one that is defined in Go"`
	Version          int64      `json:"version" doc:"Counts the changes of the instance"`
	Priority         int        `json:"priority,omitempty" doc:"1 to 5; 5 is the most urgent"`
	Tenant           string     `json:"tenant,omitempty"`
	User             string     `json:"user,omitempty" doc:"Who started it"`
	ParentInstanceID string     `json:"parentInstanceId,omitempty" doc:"The instance that waits for this one"`
	NextInstanceID   string     `json:"nextInstanceId,omitempty" doc:"The instance of the next workflow that its end started"`
	Notice           string     `json:"notice,omitempty" doc:"Something to know of an instance that is not in trouble: the next workflow could not be started yet"`
	ExecutionID      string     `json:"executionId,omitempty" doc:"The execution that it is"`
	CorrelationID    string     `json:"correlationId,omitempty"`
	UpdatedAt        *time.Time `json:"updatedAt,omitempty"`
	// Origin is a topics.Origin.
	Origin json.RawMessage `json:"origin,omitempty" doc:"What started it, where that was a trigger: kind, trigger, and metadata of the message"`
}

// StartInstancesResponse is the answer to POST /v1/instances:batch.
type StartInstancesResponse struct {
	Results []StartInstanceResult `json:"results" doc:"One per request, in order"`
	Started int                   `json:"started"`
	Refused int                   `json:"refused"`
}

// StartInstanceResult is what became of one start of a batch.
type StartInstanceResult struct {
	Status   int                      `json:"status" doc:"The HTTP status that a single start would have had"`
	Instance *WorkflowInstanceSummary `json:"instance,omitempty"`
	Problem  *ItemProblem             `json:"problem,omitempty"`
}

// ItemProblem is why one item of a batch was refused.
type ItemProblem struct {
	Code   string `json:"code" doc:"Stable code of the kind of problem" example:"job_conflict"`
	Word   string `json:"error" doc:"The kind in the words of the contract" example:"conflict"`
	Reason string `json:"reason" doc:"What happened, in words"`
	State  string `json:"state,omitempty" doc:"The status that the thing has"`
}

// PageOfInstances is the answer to GET /v1/instances.
type PageOfInstances struct {
	Items         []WorkflowInstanceSummary `json:"items"`
	Total         int                       `json:"total" doc:"How many match, on all pages; with pageToken or total=false it is not counted and 0"`
	Page          int                       `json:"page"`
	PageSize      int                       `json:"pageSize"`
	NextPageToken string                    `json:"nextPageToken,omitempty" doc:"Leads to the next page, whatever is started meanwhile"`
}

// StepExecutionSummary is a step of an instance, entered once.
type StepExecutionSummary struct {
	ID              string          `json:"id"`
	InstanceID      string          `json:"instanceId"`
	StepID          string          `json:"stepId"`
	StepType        string          `json:"stepType"`
	AttemptNumber   int             `json:"attemptNumber" minimum:"1" doc:"Counts how often the step was entered"`
	Status          string          `json:"status" enum:"RUNNING,COMPLETED,FAILED,SKIPPED"`
	StartedAt       time.Time       `json:"startedAt"`
	EndedAt         *time.Time      `json:"endedAt,omitempty"`
	FailureReason   string          `json:"failureReason,omitempty"`
	Output          json.RawMessage `json:"output,omitempty" doc:"What the step gave"`
	CompensatesStep string          `json:"compensatesStep,omitempty" doc:"The step that this one undoes"`
	JobAttempts     int             `json:"jobAttempts,omitempty" doc:"Attempts at its jobs"`
}

// HistoryResponse is the answer to GET /v1/instances/{id}/history.
type HistoryResponse struct {
	Items []StepExecutionSummary `json:"items" doc:"In the order of their start"`
}

// AuditLine is a line of the audit log.
type AuditLine struct {
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor" doc:"Who did it; empty: the engine"`
	Kind       string          `json:"kind" example:"job-completed"`
	InstanceID string          `json:"instanceId"`
	Version    int64           `json:"version" doc:"The version of the instance that it led to"`
	Detail     json.RawMessage `json:"detail,omitempty" doc:"The entry of the journal"`
}

// AuditResponse is the answer to GET /v1/instances/{id}/audit.
type AuditResponse struct {
	Items         []AuditLine `json:"items" doc:"The oldest first"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

// InstanceActionRequest is the body of what people do to an instance.
type InstanceActionRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words, for the audit"`
	// Compensate is of cancel.
	Compensate bool `json:"compensate,omitempty" doc:"Of cancel: first undo what the instance has done"`
	// StepID and Variables are of retry.
	StepID    string          `json:"stepId,omitempty" doc:"Of retry: the step to go on from; the one that failed without it"`
	Variables json.RawMessage `json:"variables,omitempty" doc:"Of retry: an object that is merged into the variables before"`
}

// CorrelateSignalRequest is the body of POST /v1/signals.
type CorrelateSignalRequest struct {
	Signal         string          `json:"signal" doc:"The name of the signal" example:"payment-received"`
	CorrelationKey string          `json:"correlationKey" doc:"The value that the instance waits for" example:"ORDER-17"`
	Variables      json.RawMessage `json:"variables,omitempty" doc:"An object that is merged into the variables of each instance"`
	TTLSeconds     *float64        `json:"ttlSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long it is kept when nobody waits yet; an hour without it, 0: not at all"`
	ID             string          `json:"id,omitempty" format:"uuid" doc:"An id of the caller's making: the same signal again is delivered once"`
}

// CorrelateSignalResponse is the answer to POST /v1/signals.
type CorrelateSignalResponse struct {
	ID          string   `json:"id" doc:"That of the signal"`
	InstanceIDs []string `json:"instanceIds" doc:"The instances that took it"`
	Kept        bool     `json:"kept" doc:"Nobody waited for it, and it is kept for the first that will"`
}

// UserTaskSummary is a task for a person.
type UserTaskSummary struct {
	ID           string          `json:"id" doc:"The instance and the step" example:"0198c0de-0000-7000-8000-000000000001.manual-review"`
	InstanceID   string          `json:"instanceId"`
	StepID       string          `json:"stepId"`
	Name         string          `json:"name"`
	Label        string          `json:"label,omitempty" doc:"The jobType of the step"`
	DefinitionID string          `json:"definitionId"`
	BusinessKey  string          `json:"businessKey,omitempty"`
	Status       string          `json:"status" enum:"OPEN,CLAIMED,COMPLETED,CANCELLED"`
	Assignee     string          `json:"assignee,omitempty"`
	Groups       []string        `json:"candidateGroups,omitempty"`
	DueAt        *time.Time      `json:"dueAt,omitempty"`
	CreatedAt    time.Time       `json:"createdAt"`
	ClaimedAt    *time.Time      `json:"claimedAt,omitempty"`
	CompletedAt  *time.Time      `json:"completedAt,omitempty" doc:"When it ended, in whatever way"`
	CompletedBy  string          `json:"completedBy,omitempty"`
	Variables    json.RawMessage `json:"variables,omitempty" doc:"What the person gets to see"`
}

// UserTaskListResponse is the answer to GET /v1/user-tasks.
type UserTaskListResponse struct {
	Items         []UserTaskSummary `json:"items" doc:"The oldest first"`
	NextPageToken string            `json:"nextPageToken,omitempty"`
}

// UserTaskClaimRequest is the body of a claim or of giving a task back.
type UserTaskClaimRequest struct {
	User string `json:"user,omitempty" maxLength:"256" doc:"For whom; the owner of the token without it"`
}

// UserTaskCompletionRequest is the body of the completion of a user task. workerId and
// completedBy, variables and result are spellings of the same.
type UserTaskCompletionRequest struct {
	CompletedBy string          `json:"completedBy,omitempty" maxLength:"256" doc:"Who did it; the owner of the token without it"`
	WorkerID    string          `json:"workerId,omitempty" maxLength:"256" doc:"Another spelling of completedBy"`
	Variables   json.RawMessage `json:"variables,omitempty" doc:"An object that is merged into the variables of the instance"`
	Result      json.RawMessage `json:"result,omitempty" doc:"Another spelling of variables"`
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func optionalID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

func listOf[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

func fromInstance(i engine.Instance) *WorkflowInstanceSummary {
	return &WorkflowInstanceSummary{
		ID: i.ID.String(), DefinitionID: i.DefinitionID, DefinitionVersion: i.DefinitionVersion, Status: string(i.Status),
		CurrentStepIDs: listOf(i.CurrentStepIDs), Variables: i.Variables, StartedAt: i.StartedAt.UTC(), CompletedAt: optionalTime(i.EndedAt),
		FailureReason: i.FailureReason, BusinessKey: i.BusinessKey, Kind: i.Kind, Version: i.Version, Priority: i.Priority,
		Tenant: i.Tenant, User: i.User, ParentInstanceID: optionalID(i.ParentInstanceID), NextInstanceID: optionalID(i.NextInstanceID),
		ExecutionID: optionalID(i.ExecutionID), CorrelationID: i.CorrelationID, UpdatedAt: optionalTime(i.UpdatedAt), Notice: i.Notice, Origin: i.Origin,
	}
}

func fromStep(s engine.StepExecution) StepExecutionSummary {
	return StepExecutionSummary{
		ID: s.ID, InstanceID: s.InstanceID.String(), StepID: s.StepID, StepType: string(s.StepType), AttemptNumber: s.AttemptNumber,
		Status: s.Status, StartedAt: s.StartedAt.UTC(), EndedAt: optionalTime(s.EndedAt), FailureReason: s.FailureReason, Output: s.Output,
		CompensatesStep: s.CompensatesStep, JobAttempts: s.ActivityAttempts,
	}
}

func fromAudit(e engine.AuditEntry) AuditLine {
	return AuditLine{At: e.At.UTC(), Actor: e.Actor, Kind: e.Kind, InstanceID: e.InstanceID.String(), Version: e.Version, Detail: e.Detail}
}

func fromUserTask(t engine.UserTask) UserTaskSummary {
	return UserTaskSummary{
		ID: t.InstanceID.String() + "." + t.StepID, InstanceID: t.InstanceID.String(), StepID: t.StepID, Name: t.Name, Label: t.Label,
		DefinitionID: t.DefinitionID, BusinessKey: t.BusinessKey, Status: t.Status, Assignee: t.Assignee, Groups: t.Groups,
		DueAt: optionalTime(t.DueAt), CreatedAt: t.CreatedAt.UTC(), ClaimedAt: optionalTime(t.ClaimedAt), CompletedAt: optionalTime(t.EndedAt),
		CompletedBy: t.EndedBy, Variables: t.Variables,
	}
}
