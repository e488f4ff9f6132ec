package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Definition is a definition with its document.
type Definition struct {
	DefinitionSummary
	// Document is the definition as JSON.
	Document json.RawMessage
}

// DefinitionSummary names a version of a definition.
type DefinitionSummary struct {
	ID          string    `json:"id"`
	Version     int       `json:"version"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	UploadedAt  time.Time `json:"uploadedAt,omitzero"`
}

// ListDefinitionsRequest chooses definitions.
type ListDefinitionsRequest struct {
	// Keyword is looked for in ids and names; empty: all.
	Keyword string
	// Page counts from 0; PageSize 0 is the engine's default of 20.
	Page, PageSize int
}

// DefinitionPage is a page of definitions.
type DefinitionPage struct {
	Items []DefinitionSummary `json:"items"`
	Total int                 `json:"total"`
}

// Status is where an instance is.
type Status string

// The statuses of an instance. An engine may know more.
const (
	StatusActive         Status = "ACTIVE"
	StatusWaiting        Status = "WAITING"
	StatusSuspended      Status = "SUSPENDED"
	StatusCompensating   Status = "COMPENSATING"
	StatusNeedsAttention Status = "NEEDS_ATTENTION"
	StatusCompleted      Status = "COMPLETED"
	StatusFailed         Status = "FAILED"
	StatusCancelled      Status = "CANCELLED"
	StatusCompensated    Status = "COMPENSATED"
)

// Ended says whether nothing more happens to an instance by itself.
func (s Status) Ended() bool {
	switch s {
	case StatusCompleted, StatusFailed, StatusCancelled, StatusCompensated:
		return true
	default:
		return false
	}
}

// Instance is an execution of a workflow.
type Instance struct {
	ID                string          `json:"id"`
	DefinitionID      string          `json:"definitionId"`
	DefinitionVersion int             `json:"definitionVersion"`
	Status            Status          `json:"status"`
	CurrentStepIDs    []string        `json:"currentStepIds"`
	Variables         json.RawMessage `json:"variables,omitempty"`
	BusinessKey       string          `json:"businessKey,omitempty"`
	FailureReason     string          `json:"failureReason,omitempty"`
	StartedAt         time.Time       `json:"startedAt,omitzero"`
	CompletedAt       time.Time       `json:"completedAt,omitzero"`
}

// Bind decodes the instance's variables into a struct or map.
func (i Instance) Bind(into any) error {
	if len(i.Variables) == 0 {
		return nil
	}
	if err := json.Unmarshal(i.Variables, into); err != nil {
		return fmt.Errorf("decode the variables of instance %s: %w", i.ID, err)
	}
	return nil
}

// StartInstanceRequest asks for an instance.
type StartInstanceRequest struct {
	DefinitionID string
	// DefinitionVersion 0 is the latest.
	DefinitionVersion int
	// Variables is a map, a struct or a json.RawMessage that is an object, or nil.
	Variables   any
	BusinessKey string
	// ID, a UUID, makes the call repeatable: the engine starts one instance under it,
	// however often it is asked. Empty: the engine chooses.
	ID string
}

// ListInstancesRequest chooses instances.
type ListInstancesRequest struct {
	// Empty fields choose all.
	DefinitionID, BusinessKey string
	Status                    Status
	// Page counts from 0; PageSize 0 is the engine's default of 20.
	Page, PageSize int
}

// InstancePage is a page of instances.
type InstancePage struct {
	Items []Instance `json:"items"`
	Total int        `json:"total"`
}

// StepExecution is a step that an instance has taken.
type StepExecution struct {
	ID            string    `json:"id"`
	InstanceID    string    `json:"instanceId"`
	StepID        string    `json:"stepId"`
	StepType      string    `json:"stepType"`
	AttemptNumber int       `json:"attemptNumber"`
	Status        string    `json:"status"`
	StartedAt     time.Time `json:"startedAt,omitzero"`
	EndedAt       time.Time `json:"endedAt,omitzero"`
	FailureReason string    `json:"failureReason,omitempty"`
}

// CompleteUserTaskRequest completes the task of a person.
type CompleteUserTaskRequest struct {
	InstanceID, StepID string
	CompletedBy        string
	// Variables are merged into the instance's: a map, a struct, a json.RawMessage or nil.
	Variables any
}

// WaitForEnd asks for an instance until it has ended, every 100 ms and less often as time
// goes by (2 s at most), or until the context is done.
func WaitForEnd(ctx context.Context, engine WorkflowClient, id string) (Instance, error) {
	return WaitFor(ctx, engine, id, func(i Instance) bool { return i.Status.Ended() })
}

// WaitFor asks for an instance until it is as the caller wants it, or until the context is
// done. Calls that failed for a reason that may pass are repeated.
func WaitFor(ctx context.Context, engine WorkflowClient, id string, until func(Instance) bool) (Instance, error) {
	pause := 100 * time.Millisecond
	var last Instance
	for {
		instance, err := engine.GetInstance(ctx, id)
		switch {
		case err == nil && until(instance):
			return instance, nil
		case err == nil:
			last = instance
		case !Retryable(err):
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for instance %s, which is %s: %w", id, orUnknown(last.Status), errors.Join(context.Cause(ctx), err))
		case <-time.After(pause):
		}
		pause = min(pause*5/4, 2*time.Second)
	}
}

func orUnknown(s Status) Status {
	if s == "" {
		return "unknown"
	}
	return s
}

// object makes a JSON object of what a caller gave as variables; nil stays nil.
func object(variables any) (json.RawMessage, error) {
	if variables == nil {
		return nil, nil
	}
	raw, isRaw := variables.(json.RawMessage)
	if !isRaw {
		text, err := json.Marshal(variables)
		if err != nil {
			return nil, fmt.Errorf("encode the variables: %w", err)
		}
		raw = text
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if first := firstByte(raw); first != '{' || !json.Valid(raw) {
		return nil, &Error{Op: "encode the variables", Kind: ErrInvalid, Message: "variables are a JSON object: a map with string keys or a struct"}
	}
	return raw, nil
}

func firstByte(raw []byte) byte {
	for _, b := range raw {
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return b
		}
	}
	return 0
}
