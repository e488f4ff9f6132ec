// Package client talks to a Millrace engine, over REST (NewREST) or gRPC (NewGRPC). Both
// do the same and answer the same errors; programs hold an EngineClient and do not know
// which one it is.
//
// A client is safe for use by several goroutines. It does not retry: whoever calls knows
// whether the call may be repeated. All calls of this package may be: a job that was
// completed by the same worker is completed again without effect, and StartInstance is
// repeatable when the request brings the instance's ID. Retryable tells errors that
// repeating can mend from those that it cannot.
//
// Numbers in variables stay as they were written wherever the transport allows it, so
// that 9007199254740993 is not 9007199254740992 on the other side.
package client

import (
	"context"
	"encoding/json"
	"time"
)

// EngineClient is what an engine does for workers and for those who start workflows.
type EngineClient interface {
	JobClient
	WorkflowClient
	// Close gives up the connections. Calls under way fail.
	Close() error
}

// JobClient is what workers need of an engine.
type JobClient interface {
	// PollJobs leases jobs to a worker. No jobs are no error. An engine that dispatches
	// over Kafka answers ErrPollingDisabled.
	PollJobs(ctx context.Context, req PollRequest) ([]Job, error)
	// CompleteJob reports that a job is done. Reporting again what was accepted is no
	// error; ErrConflict means that the job is somebody else's by now or has ended
	// otherwise, ErrNotFound that there is none.
	CompleteJob(ctx context.Context, c Completion) error
	// CompleteJobs reports several in one call. The answer has an error or nil for each,
	// in the order of cs; an error of the whole call is given for every one of them. An
	// engine that does not know the call answers ErrUnsupported.
	CompleteJobs(ctx context.Context, cs []Completion) []error
	// FailJob reports that an attempt did not succeed. Errors are those of CompleteJob.
	FailJob(ctx context.Context, f Failure) error
	// Heartbeat extends the leases of jobs that are still being worked on, and says for
	// each, in order, how it stands. An engine that does not know the call answers
	// ErrUnsupported.
	Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error)
}

// WorkflowClient uploads definitions and starts and steers instances.
type WorkflowClient interface {
	// UploadDefinition stores a definition, a JSON document. Content that is stored
	// already keeps its version; anything else becomes the next one.
	UploadDefinition(ctx context.Context, document []byte) (DefinitionSummary, error)
	// GetDefinition returns a definition; version 0 is the latest.
	GetDefinition(ctx context.Context, id string, version int) (Definition, error)
	// ListDefinitions returns a page of definitions.
	ListDefinitions(ctx context.Context, req ListDefinitionsRequest) (DefinitionPage, error)
	// StartInstance starts a workflow.
	StartInstance(ctx context.Context, req StartInstanceRequest) (Instance, error)
	// GetInstance returns an instance as it is now.
	GetInstance(ctx context.Context, id string) (Instance, error)
	// GetHistory returns the steps that an instance has taken, in order of their start.
	GetHistory(ctx context.Context, id string) ([]StepExecution, error)
	// ListInstances returns a page of instances, the youngest first.
	ListInstances(ctx context.Context, req ListInstancesRequest) (InstancePage, error)
	// CancelInstance ends an instance; ErrConflict when it has ended already.
	CancelInstance(ctx context.Context, id, reason string) (Instance, error)
	// SignalWait resumes the WAIT step with the given id, or hands the signal on to it
	// when the instance gets there. Variables, which may be nil, are merged.
	SignalWait(ctx context.Context, instanceID, waitStepID string, variables any) error
	// CompleteUserTask completes the USER_TASK step of an instance.
	CompleteUserTask(ctx context.Context, req CompleteUserTaskRequest) error
}

// Job is a job that is leased to a worker.
type Job struct {
	ID         string `json:"id"`
	JobType    string `json:"jobType"`
	InstanceID string `json:"instanceId"`
	// StepID is the step's id in the definition.
	StepID string `json:"stepId"`
	// StepExecutionID tells the executions of one step apart.
	StepExecutionID string `json:"stepExecutionId"`
	// Attempt counts from 1; 0 when the engine does not tell.
	Attempt int `json:"attempt,omitempty"`
	// RetriesRemaining is how many more retryable failures are forgiven.
	RetriesRemaining int `json:"retriesRemaining"`
	// Token fences the lease: a later lease of the same job has a larger one. 0 when the
	// engine does not tell, and then the worker's id is what counts.
	Token int64 `json:"token,omitempty"`
	// Variables is a JSON object, or empty.
	Variables json.RawMessage `json:"variables,omitempty"`
	// LockExpiresAt is the end of the lease by the engine's clock; zero when not told.
	LockExpiresAt time.Time `json:"lockExpiresAt,omitzero"`
}

// PollRequest asks for jobs.
type PollRequest struct {
	WorkerID string
	JobTypes []string
	// MaxJobs is how many at most.
	MaxJobs int
	// Lease is for how long; whole seconds; 0 is the engine's default (30 s).
	Lease time.Duration
	// Wait is how long the engine may wait for a job when there is none. Engines that
	// only know short polling ignore it.
	Wait time.Duration
}

// Completion reports that a job is done.
type Completion struct {
	JobID, WorkerID string
	Token           int64
	// Variables is a JSON object that is merged into the instance's variables, or nil.
	Variables json.RawMessage
}

// Failure reports that an attempt did not succeed.
type Failure struct {
	JobID, WorkerID string
	Token           int64
	// Retryable says whether another attempt may help.
	Retryable bool
	// Code is a word in snake_case for retry policies and error boundaries of the
	// definition; empty means "failed".
	Code    string
	Message string
	// RetryAfter is when to try again, in place of the backoff of the definition; 0 leaves it
	// to that. At most MaxRetryAfter. Engines that do not know it ignore it.
	RetryAfter time.Duration
}

// MaxRetryAfter is the longest Failure.RetryAfter that an engine takes; longer ones are sent
// as that.
const MaxRetryAfter = 24 * time.Hour

// Beat is a sign of life for a job.
type Beat struct {
	JobID, WorkerID string
	Token           int64
	// Lease is for how long from now; 0 is the engine's default.
	Lease time.Duration
}

// BeatResult says how a job stands after a Beat.
type BeatResult struct {
	// Err is nil when the lease was extended; ErrConflict or ErrNotFound when there is
	// no lease any more, and then nobody waits for the job's result.
	Err error
	// LockExpiresAt is the new end of the lease by the engine's clock.
	LockExpiresAt time.Time
	// Token is the lease's, for a holder who did not know it.
	Token int64
}
