package engine

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// Instance is a workflow instance as callers see it.
type Instance struct {
	ID                uuid.UUID
	Kind              string
	DefinitionID      string
	DefinitionVersion int
	Status            workflow.Status
	Version           int64
	CurrentStepIDs    []string
	Variables         json.RawMessage
	BusinessKey       string
	FailureReason     string
	Tenant, User      string
	Priority          int
	ParentInstanceID  uuid.UUID
	ExecutionID       uuid.UUID
	// PreviousInstanceID is the instance whose end started this one, NextInstanceID the one
	// that its own end has started.
	PreviousInstanceID, NextInstanceID uuid.UUID
	// Notice, when it is not empty, is something that somebody should know of an instance
	// that is not in trouble: the one that is to follow it could not be started yet.
	Notice        string
	CorrelationID string
	// Origin is what started it, a topics.Origin as JSON; nil where that was not said.
	Origin    json.RawMessage
	StartedAt time.Time
	UpdatedAt time.Time
	EndedAt   time.Time
}

// StartRequest asks for an instance.
type StartRequest struct {
	// ID makes the call repeatable: an instance that exists under it, of the same
	// definition, is returned. Zero: a new one.
	ID           uuid.UUID
	DefinitionID string
	// Version of the definition; 0: the latest.
	Version int
	// Variables is a JSON object or nil.
	Variables   json.RawMessage
	BusinessKey string
	// Priority is 1 to 5, the most urgent; 0 means 3.
	Priority      int
	Tenant, User  string
	CorrelationID string
	ExecutionID   uuid.UUID
	// Origin is kept with the instance, for people: what started it, and of what message.
	Origin *topics.Origin
}

// StepExecution is a step of an instance's history.
type StepExecution struct {
	// ID is "<instance id>.<number of the step>".
	ID            string
	InstanceID    uuid.UUID
	StepID        string
	StepType      workflow.StepType
	AttemptNumber int
	// Status is RUNNING, COMPLETED, FAILED or SKIPPED.
	Status           string
	StartedAt        time.Time
	EndedAt          time.Time
	FailureReason    string
	Output           json.RawMessage
	CompensatesStep  string
	ActivityAttempts int
}

// Filter chooses instances for a list. Empty fields choose all.
type Filter struct {
	DefinitionID, BusinessKey string
	Statuses                  []workflow.Status
	Kind                      string
	// ParentID chooses the instances that an activity of this one has started.
	ParentID uuid.UUID
	// Page (from 0) and PageSize (default 20, at most 200) as the public contract has
	// them; PageToken, opaque, takes the place of Page.
	Page, PageSize int
	PageToken      string
	// WithTotal counts all that match.
	WithTotal bool
}

// Page is a page of instances, the youngest first.
type Page struct {
	Items         []Instance
	Total         int
	NextPageToken string
}

// UserTask is a task for a person.
type UserTask struct {
	InstanceID                           uuid.UUID
	Activity                             int
	StepID, Name, Label                  string
	DefinitionID, BusinessKey            string
	Status                               string
	Assignee                             string
	Groups                               []string
	DueAt, CreatedAt, ClaimedAt, EndedAt time.Time
	EndedBy                              string
	Variables                            json.RawMessage
}

// UserTaskFilter chooses user tasks for a list, the oldest first.
type UserTaskFilter struct {
	InstanceID     uuid.UUID
	Assignee       string
	Group          string
	Statuses       []string // default: OPEN, CLAIMED
	Overdue        bool
	PageSize       int
	PageToken      string
	DefinitionID   string
	UnassignedOnly bool
}
