package engine

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

// CancelRequest ends an instance.
type CancelRequest struct {
	// Reason and Actor are told to whoever looks.
	Reason, Actor string
	// Compensate undoes what the instance has done before it ends.
	Compensate bool
}

// RetryRequest lets an instance go on that has failed, or whose compensation needs
// attention.
type RetryRequest struct {
	// StepID is the step to go on from; empty: the one that failed.
	StepID string
	// Variables, when set, are merged into those of the instance before: a JSON object.
	Variables json.RawMessage
	// Reason and Actor are told to whoever looks.
	Reason, Actor string
}

// CorrelateRequest signals whichever instances wait for a signal of that name under that
// key.
type CorrelateRequest struct {
	// ID makes the call repeatable for at least a day: the same one is delivered once.
	// Zero: a new one.
	ID uuid.UUID
	// Signal and Key are required.
	Signal, Key string
	// Variables are merged into those of each instance: a JSON object, or nil.
	Variables json.RawMessage
	// TTL is how long the signal is kept for the first instance that asks for it, when
	// none waits yet. 0 means an hour, less than 0 not at all; at most 30 days.
	TTL time.Duration
	// Actor is who sent it.
	Actor string
}

// CorrelateResult is what became of a CorrelateRequest.
type CorrelateResult struct {
	// ID is that of the signal.
	ID uuid.UUID
	// Instances are those that took it.
	Instances []uuid.UUID
	// Kept is true when nobody waited and the signal is kept.
	Kept bool
}

// CompleteUserTaskRequest reports that a person has done what a step asks for.
type CompleteUserTaskRequest struct {
	InstanceID uuid.UUID
	StepID     string
	// Actor is who did it. When the task is claimed and Actor is set, they must agree.
	Actor string
	// Variables are merged into those of the instance: a JSON object, or nil.
	Variables json.RawMessage
}

// CommandReply tells what became of a command of a COMMAND step, or of a compensation
// that is a command.
type CommandReply struct {
	// InstanceID and CommandID identify the command, Attempt its attempt; 0: whichever is
	// open.
	InstanceID, CommandID uuid.UUID
	Attempt               int
	// Result is any JSON when the command succeeded, Failure says why it did not.
	Result  json.RawMessage
	Failure *workflow.Failure
	// Retryable says that another attempt may help.
	Retryable bool
	// Actor is the participant.
	Actor string
}

// AuditFilter chooses lines of the audit log, the oldest first.
type AuditFilter struct {
	// InstanceID is required.
	InstanceID uuid.UUID
	// Kinds are those to show; empty: all.
	Kinds []workflow.EntryKind
	// PageSize defaults to 100, at most 1000. PageToken, opaque, is where to go on.
	PageSize  int
	PageToken string
}

// AuditEntry is a line of the audit log.
type AuditEntry struct {
	At    time.Time
	Actor string
	Kind  string
	// InstanceID is the instance that it is about.
	InstanceID uuid.UUID
	// Version is the version of the instance that it led to.
	Version int64
	// Detail is the entry of the journal: a JSON object.
	Detail json.RawMessage
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Items         []AuditEntry
	NextPageToken string
}

// UserTaskPage is a page of user tasks.
type UserTaskPage struct {
	Items         []UserTask
	NextPageToken string
}

// UserTaskKey identifies a user task: the step of an instance, or one activity of it.
type UserTaskKey struct {
	InstanceID uuid.UUID
	StepID     string
}
