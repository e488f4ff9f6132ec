package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

// instanceColumns are those that scanRow reads, in its order.
const instanceColumns = `i.id, i.kind, i.definition_id, i.definition_version, i.status, i.version, i.lifecycle_version, i.saga_version,
	i.business_key, i.tenant, i.user_id, i.priority, i.variables::text, i.state::text, i.failure_reason,
	i.parent_instance_id, i.parent_activity, i.parent_attempt, i.depth, i.execution_id, i.previous_instance_id, i.next_instance_id,
	i.correlation_id, i.started_at, i.updated_at, i.ended_at, i.origin::text`

// row is an instance as it is stored.
type row struct {
	id                            uuid.UUID
	kind, definition              string
	definitionVersion             int
	lifecycleVersion, sagaVersion int64
	businessKey                   string
	tenant, user                  string
	priority                      int
	failureReason                 string
	parent                        uuid.UUID
	parentActivity, parentAttempt int
	depth                         int
	execution, previous, next     uuid.UUID
	correlation                   string
	// origin is a topics.Origin as JSON, or nil.
	origin    json.RawMessage
	updatedAt time.Time
	// state has the status, the version, the variables and the times as well.
	state workflow.State
}

// scanRow reads instanceColumns.
func scanRow(r pgx.CollectableRow) (*row, error) {
	var (
		x                                       row
		status, variables, state                string
		businessKey, failureReason, correlation *string
		origin                                  *string
		parent, execution, previous, next       *uuid.UUID
		parentActivity, parentAttempt           *int
		ended                                   *time.Time
	)
	s := &x.state
	err := r.Scan(&x.id, &x.kind, &x.definition, &x.definitionVersion, &status, &s.Version, &x.lifecycleVersion, &x.sagaVersion,
		&businessKey, &x.tenant, &x.user, &x.priority, &variables, &state, &failureReason,
		&parent, &parentActivity, &parentAttempt, &x.depth, &execution, &previous, &next,
		&correlation, &s.StartedAt, &x.updatedAt, &ended, &origin)
	if err != nil {
		return nil, err
	}
	started := s.StartedAt
	version := s.Version
	if err := json.Unmarshal([]byte(state), s); err != nil {
		return nil, fmt.Errorf("state of instance %s: %w", x.id, err)
	}
	s.Status, s.Version, s.Variables = workflow.Status(status), version, json.RawMessage(variables)
	s.StartedAt, s.EndedAt = started, deref(ended)
	x.businessKey, x.failureReason, x.correlation = deref(businessKey), deref(failureReason), deref(correlation)
	x.parent, x.execution, x.previous, x.next = deref(parent), deref(execution), deref(previous), deref(next)
	x.parentActivity, x.parentAttempt = deref(parentActivity), deref(parentAttempt)
	if origin != nil {
		x.origin = json.RawMessage(*origin)
	}
	return &x, nil
}

// deref returns the zero value for null.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// null is the inverse of deref.
func null[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// instance is the row as callers see it.
func (x *row) instance() Instance {
	s := &x.state
	return Instance{
		ID: x.id, Kind: x.kind, DefinitionID: x.definition, DefinitionVersion: x.definitionVersion,
		Status: s.Status, Version: s.Version, CurrentStepIDs: currentSteps(s), Variables: s.Variables,
		BusinessKey: x.businessKey, FailureReason: x.failureReason, Notice: notice(s), Tenant: x.tenant, User: x.user, Priority: x.priority,
		ParentInstanceID: x.parent, ExecutionID: x.execution, PreviousInstanceID: x.previous, NextInstanceID: x.next,
		CorrelationID: x.correlation, Origin: x.origin, StartedAt: s.StartedAt, UpdatedAt: x.updatedAt, EndedAt: s.EndedAt,
	}
}

// currentSteps are the ids of the open steps, oldest first, each once.
func currentSteps(s *workflow.State) []string {
	ids := make([]string, 0, len(s.Open))
	seen := make(map[string]bool, len(s.Open))
	for _, o := range s.Open {
		if !seen[o.StepID] {
			seen[o.StepID] = true
			ids = append(ids, o.StepID)
		}
	}
	return ids
}

// notice words what is owed.
func notice(s *workflow.State) string {
	if s.Owed == "" {
		return ""
	}
	return fmt.Sprintf("the next workflow, %s, could not be started: that is tried again until it is there", s.Owed)
}

// reason words a failure for lists.
func reason(f *workflow.Failure) string {
	switch {
	case f == nil:
		return ""
	case f.Message == "":
		return f.Code
	}
	return f.Message
}

// trouble is the status when it is one that somebody may have to look at.
func trouble(s workflow.Status) *string {
	switch s {
	case workflow.Active, workflow.Waiting, workflow.Completed:
		return nil
	default:
		return null(string(s))
	}
}
