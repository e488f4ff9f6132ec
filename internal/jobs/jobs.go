package jobs

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Status is where a job is.
type Status string

// The statuses; the last three are final.
const (
	Unlocked  Status = "UNLOCKED"
	Locked    Status = "LOCKED"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// Job is a job as the worker that holds it sees it.
type Job struct {
	ID         uuid.UUID
	JobType    string
	InstanceID uuid.UUID
	// Activity and Step are its numbers in the instance, StepID the step's id.
	Activity, Step int
	StepID         string
	Status         Status
	Priority       int
	// Attempt counts from 1; RetriesRemaining is how many failures are left.
	Attempt, RetriesRemaining int
	// Token is the fencing token of the lease.
	Token    int64
	WorkerID string
	// Variables is what the handler gets: a JSON object.
	Variables                          json.RawMessage
	LockedAt, LockExpiresAt, CreatedAt time.Time
}

// ClaimRequest asks for jobs.
type ClaimRequest struct {
	WorkerID string
	Types    []string
	// Max is how many at most: 1 to 1000.
	Max int
	// Lease is for how long they are held; 0 means the default of 30 s.
	Lease time.Duration
	// Wait is how long to wait for the first job when there is none; 0: not at all.
	Wait time.Duration
}

// Holder says who speaks of a job: the worker, and the token of its lease when it knows
// it (0: it does not, and WorkerID decides).
type Holder struct {
	JobID    uuid.UUID
	WorkerID string
	Token    int64
}

// Completion reports that a job is done.
type Completion struct {
	Holder
	// Variables are merged into those of the instance: a JSON object, or nil.
	Variables json.RawMessage
}

// Failure reports that an attempt did not succeed.
type Failure struct {
	Holder
	Retryable bool
	// Code is a stable word for policies and error boundaries; empty means "failed".
	Code, Message string
	// Variables, when set, are merged into those of the instance all the same.
	Variables json.RawMessage
	// RetryAfter, when it is not 0, is when to try again: it takes the place of the backoff
	// that the step's policy has, and says nothing about how often. At most RetryAfterMax.
	RetryAfter time.Duration
}

// RetryAfterMax is the longest Failure.RetryAfter.
const RetryAfterMax = 24 * time.Hour

// Refusal is the error of a report of a job that is not accepted. It wraps ErrLeaseLost or
// ErrFinished.
type Refusal struct {
	// Status is where the job is.
	Status Status
	why    error
}

// Error says where the job is, and why that does not fit.
func (r *Refusal) Error() string { return r.why.Error() }

// Unwrap returns what is wrapped.
func (r *Refusal) Unwrap() error { return r.why }

// Errors of a report. Their text says where the job is.
var (
	// ErrNotFound: there is no such job.
	ErrNotFound = errors.New("job not found")
	// ErrLeaseLost: somebody else holds the job, or a later attempt of it is on its way.
	ErrLeaseLost = errors.New("the lease of the job is lost")
	// ErrFinished: the job has ended, otherwise than reported.
	ErrFinished = errors.New("the job has ended")
	// ErrPollingOff: jobs are dispatched over Kafka, so there is nothing to claim.
	ErrPollingOff = errors.New("jobs are dispatched over Kafka: polling is off")
)
