package lifecycle

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// Kind says what an event is about.
type Kind uint8

// The kinds. The zero value is none of them.
const (
	Workflow Kind = iota + 1
	Task
)

// Change is what happened: the part of the event's type behind the prefix.
type Change string

// The changes.
const (
	Created       Change = "created"
	Started       Change = "started"
	Suspended     Change = "suspended"
	Resumed       Change = "resumed"
	Completed     Change = "completed"
	Faulted       Change = "faulted"
	Cancelled     Change = "cancelled"
	Retried       Change = "retried"
	StatusChanged Change = "status-changed"
)

// Skip says why an event is none of this package's business; empty when it is.
type Skip string

const (
	// SkipOtherType: the type begins with neither prefix.
	SkipOtherType Skip = "other_type"
	// SkipUnknownChange: something else is told of workflows or tasks than a change of
	// their status.
	SkipUnknownChange Skip = "unknown_change"
)

// Shape says which of the two shapes the data had.
type Shape string

// The shapes.
const (
	Flat   Shape = "flat"
	Nested Shape = "nested"
)

// Event is what one event tells of a workflow or a task. Empty texts, zero times and
// nil documents are what it does not tell. All times are UTC, rounded to microseconds.
type Event struct {
	Kind   Kind
	Change Change
	Shape  Shape
	// InstanceID is the id of the workflow instance, also for a task. Never empty.
	InstanceID string
	// Status is what the event leads to, one of the Lifecycle constants of package
	// topics. Never empty.
	Status string

	// Of a workflow: the definition.
	Namespace, Name, Version string

	// Of a task: where it stands, never empty and without a slash in front; which turn
	// of a loop and which attempt, both 0 where the engine does not say.
	TaskPosition       string
	Iteration, Attempt int
	TaskName           string
	TaskExecutionID    string

	Start, End, LastUpdate time.Time
	// Input and Output are such that PostgreSQL can store them as jsonb.
	Input, Output json.RawMessage
	// Error is nil when the event tells of none.
	Error *topics.LifecycleError
	// Altered says that Input or Output are not what the event carried, since that could
	// not be stored.
	Altered bool
}

// Reopens reports whether the event leads out of a final status.
func (e Event) Reopens() bool { return e.Change == Resumed || e.Change == Retried }

// Final reports whether a status is the end of a workflow or a task, unless it is
// reopened.
func Final(status string) bool {
	switch status {
	case topics.LifecycleCompleted, topics.LifecycleFaulted, topics.LifecycleCancelled:
		return true
	}
	return false
}

// statusOf returns what a change leads to; empty where the data says it.
func statusOf(c Change) string {
	switch c {
	case Created:
		return topics.LifecycleCreated
	case Started, Resumed, Retried:
		return topics.LifecycleRunning
	case Suspended:
		return topics.LifecycleSuspended
	case Completed:
		return topics.LifecycleCompleted
	case Faulted:
		return topics.LifecycleFaulted
	case Cancelled:
		return topics.LifecycleCancelled
	case StatusChanged:
		return ""
	}
	return ""
}

// ParseStatus returns the status that an engine's word stands for: its own names, those
// of the CNCF specification (pending, running, waiting, ...) and those of Millrace's
// engine (ACTIVE, FAILED), in upper or lower case. Who waits is RUNNING.
func ParseStatus(word string) (string, bool) {
	switch strings.ToUpper(word) {
	case "CREATED", "PENDING":
		return topics.LifecycleCreated, true
	case "RUNNING", "ACTIVE", "WAITING":
		return topics.LifecycleRunning, true
	case "SUSPENDED":
		return topics.LifecycleSuspended, true
	case "COMPLETED":
		return topics.LifecycleCompleted, true
	case "FAULTED", "FAILED":
		return topics.LifecycleFaulted, true
	case "CANCELLED", "CANCELED":
		return topics.LifecycleCancelled, true
	}
	return "", false
}
