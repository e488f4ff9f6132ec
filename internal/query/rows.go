package query

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WorkflowInstance is a row of the data index. A nil field: no event has told of
// it. A row without a name and a status is a placeholder, see Placeholder.
type WorkflowInstance struct {
	ID        string
	Namespace *string
	Name      *string
	Version   *string
	// Status is CREATED, RUNNING, SUSPENDED, WAITING, COMPLETED, FAULTED or CANCELLED.
	Status     *string
	Start      *time.Time
	End        *time.Time
	LastUpdate *time.Time
	// Input and Output are JSON documents.
	Input, Output json.RawMessage
	Error         Error
	History
}

// Placeholder reports whether events of tasks have come, but none of the workflow
// itself.
func (w WorkflowInstance) Placeholder() bool { return w.Name == nil && w.Status == nil }

// TaskInstance is a task of a workflow instance.
type TaskInstance struct {
	TaskKey
	// ExecutionID is what the engine calls this execution of the task.
	ExecutionID   *string
	Name          *string
	Status        *string
	Start         *time.Time
	End           *time.Time
	LastUpdate    *time.Time
	Input, Output json.RawMessage
	Error         Error
	History
}

// TaskKey names a task instance: a place in a workflow instance, in a turn of the
// loop around it and an attempt. The last two are 0 where the engine does not tell
// them apart.
type TaskKey struct {
	InstanceID string
	Position   string
	Iteration  int
	Attempt    int
}

// String returns the key as one text that may stand in a URL as it is.
func (k TaskKey) String() string {
	return url.QueryEscape(k.InstanceID) + ":" + url.QueryEscape(k.Position) + ":" +
		strconv.Itoa(k.Iteration) + ":" + strconv.Itoa(k.Attempt)
}

// ParseTaskKey reads what String made. The error wraps ErrNotFound: a text of
// another form is the key of nothing.
func ParseTaskKey(text string) (TaskKey, error) {
	wrong := fmt.Errorf("task instance %q: %w", clip(text), ErrNotFound)
	parts := strings.Split(text, ":")
	if len(parts) != 4 {
		return TaskKey{}, wrong
	}
	instance, err1 := url.QueryUnescape(parts[0])
	position, err2 := url.QueryUnescape(parts[1])
	iteration, err3 := strconv.ParseInt(parts[2], 10, 32)
	attempt, err4 := strconv.ParseInt(parts[3], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return TaskKey{}, wrong
	}
	k := TaskKey{instance, position, int(iteration), int(attempt)}
	if !storable(k.InstanceID) || !storable(k.Position) {
		return TaskKey{}, wrong
	}
	return k, nil
}

func (k TaskKey) values() []any { return []any{k.InstanceID, k.Position, k.Iteration, k.Attempt} }

// Error is why a workflow or a task is FAULTED, in the terms of RFC 9457. All
// fields are nil for others.
type Error struct {
	Type, Title, Detail *string
	Status              *int
	Instance            *string
}

// IsZero reports whether there is no error.
func (e Error) IsZero() bool { return e == Error{} }

// History says where a row of the data index comes from.
type History struct {
	// LastEventTime is the time that the newest event claims for itself, and From that
	// of the earliest.
	LastEventTime *time.Time
	From          *time.Time
	// Future: one of its events claimed to come from the future.
	Future bool
	// CreatedAt and UpdatedAt are times of arrival.
	CreatedAt, UpdatedAt time.Time
}
