package query

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/execution"
)

// Execution is a row of the list of executions, built from their events.
type Execution struct {
	ID     string
	Tenant *string
	User   *string
	// Name is the label "name", else the program or function that the spec names.
	Name           *string
	Executor       *string
	ResourceClass  *string
	Priority       *int
	ConcurrencyKey *string
	// Labels is a JSON object of texts; nil when there are none.
	Labels     json.RawMessage
	OriginKind *string
	RerunOf    *string
	NotBefore  *time.Time

	// State is nil for a moment when later events have overtaken the first.
	State   *execution.State
	Version int64
	Attempt int
	// Worker is the last one that ran it.
	Worker *string

	// Times are nil where the execution has not come so far. Those of queueing,
	// scheduling and starting are of the current attempt.
	RequestedAt, QueuedAt, ReadyAt, ScheduledAt, StartedAt, FinishedAt, CancelRequestedAt *time.Time
	// WaitedMillis is how long the current attempt waited in the queue, and
	// DurationMillis how long the last one ran.
	WaitedMillis, DurationMillis *int64
	// ExitCode, Signal, Reason and Message say how it ended, or why its last attempt
	// came to nothing.
	ExitCode                *int
	Signal, Reason, Message *string
	// StdoutBytes and StderrBytes are what the last attempt wrote.
	StdoutBytes, StderrBytes *int64
}

// Pod is what runs an execution in a cluster.
type Pod struct {
	ID          string
	ExecutionID *string
	Namespace   *string
	Name        *string
	Attempt     *int
	Phase       *string
	Node        *string
	Reason      *string
	Message     *string
	ExitCode    *int
	Version     int64

	CreatedTime, ScheduledTime, StartedTime, FinishedTime, DeletedTime *time.Time
}

// Saga is a multi-step process.
type Saga struct {
	ID          string
	Name        *string
	BusinessKey *string
	Status      *string
	// Step is the current one.
	Step    *string
	Reason  *string
	Message *string
	// Steps is a JSON object, one entry per step: {"<step>": {"at": <version>, "value": {...}}}.
	Steps   json.RawMessage
	Version int64

	StartedTime, FinishedTime *time.Time
}
