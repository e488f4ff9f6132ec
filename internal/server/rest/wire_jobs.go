package rest

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/jobs"
)

// JobPollRequest asks for jobs.
type JobPollRequest struct {
	WorkerID     string          `json:"workerId" maxLength:"256" doc:"Who asks: it may complete, fail and keep what it gets" example:"worker-1"`
	JobTypes     []string        `json:"jobTypes" minItems:"1" maxItems:"256" doc:"The types of jobs that it can do" example:"[\"credit-score\"]"`
	MaxJobs      int             `json:"maxJobs,omitempty" minimum:"1" maximum:"1000" default:"10" doc:"How many at most"`
	LeaseSeconds *float64        `json:"leaseSeconds,omitempty" minimum:"1" maximum:"3600" default:"30" doc:"For how long they are held without a heartbeat"`
	Wait         json.RawMessage `json:"wait,omitempty" doc:"How long to wait for the first job when there is none: seconds, or a text such as \"20s\"; at most a minute. Without it the answer comes at once" example:"\"20s\""`
	WaitSeconds  *float64        `json:"waitSeconds,omitempty" minimum:"0" maximum:"60" doc:"The same in seconds"`
}

// Job is a job as the worker sees it that holds it.
type Job struct {
	ID               string          `json:"id"`
	JobType          string          `json:"jobType" example:"credit-score"`
	InstanceID       string          `json:"instanceId"`
	StepID           string          `json:"stepId"`
	StepExecutionID  string          `json:"stepExecutionId"`
	Status           string          `json:"status" enum:"UNLOCKED,LOCKED,COMPLETED,FAILED,CANCELLED"`
	WorkerID         string          `json:"workerId,omitempty"`
	LockedAt         *time.Time      `json:"lockedAt,omitempty"`
	LockExpiresAt    *time.Time      `json:"lockExpiresAt,omitempty" doc:"When somebody else may get it, unless a heartbeat comes before"`
	RetriesRemaining int             `json:"retriesRemaining" minimum:"0"`
	Variables        json.RawMessage `json:"variables,omitempty" doc:"What it is about: an object"`
	CreatedAt        time.Time       `json:"createdAt"`

	Attempt  int   `json:"attempt" doc:"Counts from 1"`
	Token    int64 `json:"token" doc:"That of the lease: who sends it back is told apart from earlier holders, even of the same workerId"`
	Priority int   `json:"priority,omitempty" doc:"1 to 5; 5 is the most urgent"`

	RunAt      *time.Time `json:"runAt,omitempty" doc:"When it may run at the earliest"`
	OnHold     bool       `json:"onHold,omitempty" doc:"Its instance is suspended"`
	Expired    int        `json:"expiredLeases,omitempty" doc:"Leases that ran out in this attempt"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// JobPollResponse is the answer to POST /v1/jobs/poll.
type JobPollResponse struct {
	Jobs []Job `json:"jobs" doc:"None when there are none, or others got them"`
}

// JobListResponse is the answer to GET /v1/jobs.
type JobListResponse struct {
	Items         []Job  `json:"items" doc:"Those of the youngest instances first; without their variables"`
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// JobCompletionRequest reports that a job is done, or, in completions, that several are.
type JobCompletionRequest struct {
	JobID       string            `json:"jobId,omitempty" format:"uuid" doc:"The job, where the path does not name it"`
	WorkerID    string            `json:"workerId,omitempty" maxLength:"256" doc:"Who holds it. Either this or token is needed; of a batch the default of its items"`
	Token       int64             `json:"token,omitempty" doc:"The token of the lease"`
	Variables   json.RawMessage   `json:"variables,omitempty" doc:"An object that is merged into the variables of the instance"`
	Completions []json.RawMessage `json:"completions,omitempty" maxItems:"1000" doc:"A batch: up to 1000 completions, each with a jobId"`
}

// JobFailureRequest reports that an attempt at a job failed, or, in failures, that several
// did.
type JobFailureRequest struct {
	JobID        string            `json:"jobId,omitempty" format:"uuid" doc:"The job, where the path does not name it"`
	WorkerID     string            `json:"workerId,omitempty" maxLength:"256" doc:"Who holds it. Either this or token is needed; of a batch the default of its items"`
	Token        int64             `json:"token,omitempty" doc:"The token of the lease"`
	ErrorMessage string            `json:"errorMessage,omitempty" doc:"Why, in words"`
	ErrorCode    string            `json:"errorCode,omitempty" maxLength:"128" doc:"A stable word that retry policies and error boundaries can name; failed without it" example:"card_declined"`
	Retryable    bool              `json:"retryable,omitempty" doc:"Whether another attempt may help. Without it the step fails"`
	RetryAfter   *float64          `json:"retryAfter,omitempty" minimum:"0" maximum:"86400" doc:"In how many seconds to try again: it takes the place of the backoff of the step for this attempt"`
	Variables    json.RawMessage   `json:"variables,omitempty" doc:"An object that is merged into the variables all the same"`
	Failures     []json.RawMessage `json:"failures,omitempty" maxItems:"1000" doc:"A batch: up to 1000 failures, each with a jobId"`
}

// JobHeartbeatRequest says that a holder is still at work, or, in beats, at several jobs.
type JobHeartbeatRequest struct {
	JobID        string            `json:"jobId,omitempty" format:"uuid" doc:"The job, where the path does not name it"`
	WorkerID     string            `json:"workerId,omitempty" maxLength:"256" doc:"Who holds it. Either this or token is needed; of a batch the default of its items"`
	Token        int64             `json:"token,omitempty" doc:"The token of the lease"`
	LeaseSeconds *float64          `json:"leaseSeconds,omitempty" minimum:"1" maximum:"3600" doc:"For how long it is held from now on; as long as at first without it"`
	Beats        []json.RawMessage `json:"beats,omitempty" maxItems:"1000" doc:"A batch: up to 1000 heartbeats, each with a jobId"`
}

// JobReportsResponse is the answer to a batch of reports.
type JobReportsResponse struct {
	Results  []JobReportResult `json:"results" doc:"One per report, in order"`
	Accepted int               `json:"accepted"`
	Refused  int               `json:"refused"`
}

// JobReportResult is what became of one report.
type JobReportResult struct {
	JobID         string       `json:"jobId,omitempty"`
	Status        int          `json:"status" doc:"The HTTP status that the report would have had by itself" example:"204"`
	LockExpiresAt *time.Time   `json:"lockExpiresAt,omitempty" doc:"Of a heartbeat: when the lease ends now"`
	Cancelled     bool         `json:"cancelled,omitempty" doc:"Of a heartbeat: nobody needs the job any more"`
	Problem       *ItemProblem `json:"problem,omitempty"`
}

func fromHeldJob(j jobs.Job) Job {
	return Job{
		ID: j.ID.String(), JobType: j.JobType, InstanceID: j.InstanceID.String(), StepID: j.StepID,
		StepExecutionID: stepExecutionID(j), Status: string(j.Status), WorkerID: j.WorkerID, LockedAt: optionalTime(j.LockedAt),
		LockExpiresAt: optionalTime(j.LockExpiresAt), RetriesRemaining: j.RetriesRemaining, Variables: j.Variables,
		CreatedAt: j.CreatedAt.UTC(), Attempt: j.Attempt, Token: j.Token, Priority: j.Priority,
	}
}

func fromJobRecord(r jobs.Record) Job {
	j := fromHeldJob(r.Job)
	j.RunAt, j.OnHold, j.Expired, j.FinishedAt = optionalTime(r.RunAt), r.OnHold, r.Expired, optionalTime(r.FinishedAt)
	return j
}
