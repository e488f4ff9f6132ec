package rest

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// SubmitRequest is the body of a submit. Fields that are left out have the
// defaults named. Durations are texts such as "1m30s".
type SubmitRequest struct {
	Executor       string              `json:"executor" doc:"What runs the work" example:"process"`
	Spec           json.RawMessage     `json:"spec" doc:"The executor's own part: for a process its command, env and stdin; for a function its name and args"`
	Priority       *int                `json:"priority,omitempty" minimum:"1" maximum:"5" default:"3" doc:"1 to 5; 5 is the most urgent"`
	ResourceClass  string              `json:"resource_class,omitempty" default:"default" doc:"The pool of workers"`
	Requirements   *SubmitRequirements `json:"requirements,omitempty" doc:"The capacity that it holds while it runs"`
	ConcurrencyKey string              `json:"concurrency_key,omitempty" doc:"Executions with the same key run one after the other, in the order of submission"`
	NotBefore      *time.Time          `json:"not_before,omitempty" doc:"The earliest time to start"`
	Limits         *SubmitLimits       `json:"limits,omitempty" doc:"How long it may take"`
	Retry          *SubmitRetry        `json:"retry,omitempty" doc:"What happens after an attempt that failed"`
	Labels         map[string]string   `json:"labels,omitempty" doc:"For finding and grouping; the label \"name\" names it in lists"`
	User           string              `json:"user,omitempty" doc:"On whose behalf; defaults to the owner of the token"`
	IdempotencyKey string              `json:"idempotency_key,omitempty" doc:"The same as the header Idempotency-Key, for the items of a batch"`
}

// SubmitRequirements is part of SubmitRequest.
type SubmitRequirements struct {
	Slots       *int  `json:"slots,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"Places at a worker"`
	CPUMillis   int64 `json:"cpu_millis,omitempty" minimum:"0" doc:"Processor time in thousandths of a core"`
	MemoryBytes int64 `json:"memory_bytes,omitempty" minimum:"0" doc:"Main memory"`
	GPUs        int   `json:"gpus,omitempty" minimum:"0" doc:"Whole graphics processors"`
}

// SubmitLimits is part of SubmitRequest.
type SubmitLimits struct {
	Queue *topics.Duration `json:"queue,omitempty" doc:"From being asked for to being scheduled; no limit by default"`
	Start *topics.Duration `json:"start,omitempty" doc:"From being scheduled to being started"`
	Run   *topics.Duration `json:"run,omitempty" doc:"How long one attempt may run; 1h by default"`
	Total *topics.Duration `json:"total,omitempty" doc:"From being asked for to the end; no limit by default"`
}

// SubmitRetry is part of SubmitRequest.
type SubmitRetry struct {
	MaxAttempts *int             `json:"max_attempts,omitempty" minimum:"1" maximum:"100" default:"1" doc:"The first attempt counts too"`
	Backoff     *topics.Duration `json:"backoff,omitempty" doc:"Wait before the second attempt, doubled for each further one; 1s by default"`
	MaxBackoff  *topics.Duration `json:"max_backoff,omitempty" doc:"Bound of the wait; 1m by default"`
	Jitter      float64          `json:"jitter,omitzero" minimum:"0" maximum:"1" doc:"The part of the wait that is left to chance"`
	MaxAge      *topics.Duration `json:"max_age,omitempty" doc:"From being asked for to the start of a retry at the latest; no limit by default"`
	RetryOn     []string         `json:"retry_on,omitempty" maxItems:"32" doc:"Failures that are retried, by reason, as exit_code, exit_code:64-78, signal:SIGSEGV, function_error, run_limit; all but run_limit by default" example:"[\"exit_code:75\",\"run_limit\"]"`
	NeverOn     []string         `json:"never_on,omitempty" maxItems:"32" doc:"Failures that are never retried; with lease_expired or shutdown it is not run again after it has lost its worker" example:"[\"exit_code:64-78\"]"`
}

// BatchRequest is the body of a batch.
type BatchRequest struct {
	Executions []json.RawMessage `json:"executions" doc:"Up to 1000 requests, each as for a single submit"`
}

// BatchResponse is the answer to a batch: one outcome per request, in order.
type BatchResponse struct {
	Accepted int           `json:"accepted" doc:"How many were accepted, repeated ones included"`
	Refused  int           `json:"refused"`
	Results  []BatchResult `json:"results"`
}

// BatchResult is what became of one request of a batch: an execution or a problem.
type BatchResult struct {
	Index     int              `json:"index" doc:"Place in the request, from 0"`
	Status    int              `json:"status" doc:"The status that a single submit would have been answered with" example:"202"`
	ID        string           `json:"id,omitempty"`
	Replayed  bool             `json:"replayed,omitempty" doc:"The idempotency key had led to this execution before"`
	Execution *Execution       `json:"execution,omitempty"`
	Problem   *problem.Problem `json:"problem,omitempty" doc:"Pointers begin at the body of the batch"`
}

// CancelRequest is the body of a cancel. The body may be missing.
type CancelRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words"`
}

// RerunOneRequest is the body of a rerun. The body may be missing.
type RerunOneRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words"`
}

// RerunRequest is the body of a rerun of several executions.
type RerunRequest struct {
	IDs    []string     `json:"ids,omitempty" maxItems:"1000" doc:"These executions"`
	Filter *RerunFilter `json:"filter,omitempty" doc:"All ended executions that it selects; {} selects those that did not succeed"`
	Max    int          `json:"max,omitempty" minimum:"1" maximum:"10000" default:"1000" doc:"Of a filter: at most so many, the newest first"`
	DryRun bool         `json:"dry_run,omitempty" doc:"Count and change nothing"`
	Again  bool         `json:"again,omitempty" doc:"Of a filter: also those that were rerun by a filter before"`
	Reason string       `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words"`
}

// RerunFilter selects executions that have ended. Everything that is given must
// hold.
type RerunFilter struct {
	States          []execution.State `json:"states,omitempty" doc:"Any of these; FAILED, TIMED_OUT and QUARANTINED by default"`
	User            string            `json:"user,omitempty"`
	Executor        string            `json:"executor,omitempty"`
	ResourceClass   string            `json:"resource_class,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	NamePrefix      string            `json:"name_prefix,omitempty"`
	RequestedAfter  *time.Time        `json:"requested_after,omitempty" doc:"RFC 3339, exclusive"`
	RequestedBefore *time.Time        `json:"requested_before,omitempty" doc:"RFC 3339, exclusive"`
}

// RerunResponse is the answer to a rerun of several executions.
type RerunResponse struct {
	DryRun   bool          `json:"dry_run,omitempty"`
	Matched  int           `json:"matched" doc:"How many executions were asked for"`
	Accepted int           `json:"accepted" doc:"How many have a new execution, those rerun before included"`
	Refused  int           `json:"refused"`
	Results  []RerunResult `json:"results" doc:"One per execution; empty in a dry run"`
}

// RerunResult is what became of one execution of a rerun.
type RerunResult struct {
	RerunOf  string           `json:"rerun_of"`
	Status   int              `json:"status" doc:"The status that a single rerun would have been answered with" example:"202"`
	ID       string           `json:"id,omitempty" doc:"The new execution"`
	Replayed bool             `json:"replayed,omitempty" doc:"It had been rerun under this key before"`
	Problem  *problem.Problem `json:"problem,omitempty"`
}

// Execution is one execution.
type Execution struct {
	ID      string          `json:"id" format:"uuid"`
	State   execution.State `json:"state" doc:"REQUESTED, QUEUED, SCHEDULED, RUNNING, COMPLETED, FAILED, TIMED_OUT, CANCELLED, REJECTED or QUARANTINED" example:"RUNNING"`
	Version int64           `json:"version" doc:"How many events it has"`
	Attempt int             `json:"attempt" doc:"Counts from 1; 0 before it was queued"`
	Tenant  string          `json:"tenant"`
	User    string          `json:"user"`
	Name    string          `json:"name,omitempty" doc:"In lists: the label \"name\", else the program or function"`

	Executor       string               `json:"executor"`
	Spec           json.RawMessage      `json:"spec,omitempty" doc:"Not in lists"`
	Priority       int                  `json:"priority"`
	ResourceClass  string               `json:"resource_class"`
	Requirements   *topics.Requirements `json:"requirements,omitempty" doc:"Not in lists"`
	ConcurrencyKey string               `json:"concurrency_key,omitempty"`
	NotBefore      *time.Time           `json:"not_before,omitempty"`
	Limits         *topics.Limits       `json:"limits,omitempty" doc:"Not in lists"`
	Retry          *topics.Retry        `json:"retry,omitempty" doc:"Not in lists"`
	Labels         map[string]string    `json:"labels,omitempty"`
	IdempotencyKey string               `json:"idempotency_key,omitempty" doc:"Not in lists"`
	Origin         topics.Origin        `json:"origin"`

	Worker      string     `json:"worker,omitempty" doc:"The last worker that ran it"`
	RequestedAt time.Time  `json:"requested_at"`
	QueuedAt    *time.Time `json:"queued_at,omitempty"`
	ReadyAt     *time.Time `json:"ready_at,omitempty" doc:"When it may be admitted at the earliest"`
	ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	FinishedAt  *time.Time `json:"finished_at,omitempty"`

	Progress   *Progress   `json:"progress,omitempty" doc:"Of a single execution: how far it says that it has come"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty" doc:"Of a single execution: what the next attempt would be given"`

	Cancel *Cancel `json:"cancel,omitempty" doc:"Set once a cancel was asked for"`
	Result *Result `json:"result,omitempty" doc:"How it ended"`
	// LastFailure has no more than reason and message in a single execution: the write
	// model keeps no history.
	LastFailure *Result `json:"last_failure,omitempty" doc:"Why the last attempt of an execution that has not ended came to nothing"`
}

// Progress is how far an attempt has come, as it said itself. It is stored with the
// worker's heartbeats.
type Progress struct {
	Attempt  int       `json:"attempt"`
	Done     float64   `json:"done"`
	Total    float64   `json:"total,omitzero" doc:"Missing when it is not known"`
	Fraction *float64  `json:"fraction,omitempty" minimum:"0" maximum:"1" doc:"Done of total"`
	Message  string    `json:"message,omitempty"`
	At       time.Time `json:"at"`
}

// Checkpoint says what an attempt has kept for the next one.
type Checkpoint struct {
	Attempt int       `json:"attempt"`
	Bytes   int       `json:"bytes"`
	At      time.Time `json:"at"`
}

// fromProgress shows what an execution has told of itself, which may be nothing.
func fromProgress(p *store.Progress) (*Progress, *Checkpoint) {
	if p == nil {
		return nil, nil
	}
	var progress *Progress
	var checkpoint *Checkpoint
	if p.Attempt > 0 {
		progress = &Progress{Attempt: p.Attempt, Done: p.Done, Total: p.Total, Message: p.Message, At: p.At}
		if p.Total > 0 {
			progress.Fraction = new(p.Done / p.Total)
		}
	}
	if p.CheckpointAttempt > 0 {
		checkpoint = &Checkpoint{Attempt: p.CheckpointAttempt, Bytes: p.CheckpointBytes, At: p.CheckpointAt}
	}
	return progress, checkpoint
}

// Cancel says who asked to cancel.
type Cancel struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Result is how an execution or an attempt ended.
type Result struct {
	Reason         string                 `json:"reason,omitempty" doc:"Stable code; empty when COMPLETED" example:"exit_code"`
	Message        string                 `json:"message,omitempty"`
	Limit          string                 `json:"limit,omitempty" doc:"The limit that passed: queue, start, run or total"`
	RetryAfter     topics.Duration        `json:"retry_after,omitzero" doc:"How long after the rejection the same request may be accepted; missing when it would be rejected again. Not in lists" example:"20s"`
	ExitCode       *int                   `json:"exit_code,omitempty"`
	Signal         string                 `json:"signal,omitempty" example:"SIGKILL"`
	Value          json.RawMessage        `json:"value,omitempty" doc:"What a function returned"`
	ValueRef       *topics.ValueReference `json:"value_ref,omitempty" doc:"Stands for a value that is too long to be here: GET /v1/executions/{id}/result"`
	DurationMillis *int64                 `json:"duration_millis,omitempty"`
	Stdout         *topics.StreamSummary  `json:"stdout,omitempty" doc:"Not in lists"`
	Stderr         *topics.StreamSummary  `json:"stderr,omitempty" doc:"Not in lists"`
}

// ExecutionList is one page of executions.
type ExecutionList struct {
	Executions    []Execution `json:"executions"`
	NextPageToken string      `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters; missing on the last"`
}

// EventList is one page of a history. Events are CloudEvents in their JSON form.
type EventList struct {
	Events        []json.RawMessage `json:"events"`
	NextPageToken string            `json:"next_page_token,omitempty"`
}

// OutputDocument is the captured output of an attempt as JSON.
type OutputDocument struct {
	ExecutionID string        `json:"execution_id"`
	Attempt     int           `json:"attempt"`
	Final       bool          `json:"final" doc:"The attempt has ended and no more comes"`
	Chunks      []OutputChunk `json:"chunks" doc:"In order per stream, stdout before stderr"`
}

// OutputChunk is a piece of output.
type OutputChunk struct {
	Stream string `json:"stream" enum:"stdout,stderr"`
	Index  int    `json:"index"`
	Offset int64  `json:"offset" doc:"Where it begins in the stream, in bytes"`
	Data   []byte `json:"data" doc:"Any bytes, in base64"`
}

// Topic is a topic of the pipeline.
type Topic struct {
	Topic      string          `json:"topic" doc:"Logical name" example:"execution_events"`
	Name       string          `json:"name" doc:"Name at the broker"`
	Partitions int32           `json:"partitions"`
	Retention  topics.Duration `json:"retention" example:"2160h0m0s"`
	Key        string          `json:"key" doc:"What the key of a record is"`
	Purpose    string          `json:"purpose"`
}

// TopicList is the answer to GET /v1/topics.
type TopicList struct {
	Topics []Topic `json:"topics"`
}

// fromExecution shows the write model.
func fromExecution(e *execution.Execution) *Execution {
	r := &e.Request
	out := &Execution{
		ID: e.ID, State: e.State, Version: e.Version, Attempt: e.Attempt, Tenant: r.Tenant, User: r.User,
		Executor: r.Executor, Spec: r.Spec, Priority: r.Priority, ResourceClass: r.ResourceClass,
		Requirements: &r.Requirements, ConcurrencyKey: r.ConcurrencyKey, NotBefore: r.NotBefore,
		Limits: &r.Limits, Retry: &r.Retry, Labels: r.Labels, IdempotencyKey: r.IdempotencyKey, Origin: r.Origin,
		Worker: e.Worker, RequestedAt: e.RequestedAt.UTC(), QueuedAt: moment(e.QueuedAt), ReadyAt: moment(e.ReadyAt),
		ScheduledAt: moment(e.ScheduledAt), StartedAt: moment(e.StartedAt), FinishedAt: moment(e.FinishedAt),
	}
	if e.Cancel != nil {
		out.Cancel = &Cancel{By: e.Cancel.By, Reason: e.Cancel.Reason, At: e.Cancel.At.UTC()}
	}
	if b := e.Setback; b != nil {
		out.LastFailure = &Result{Reason: cmp.Or(b.Reason, b.Cause), Message: b.Message}
	}
	if res := e.Result; res != nil {
		out.Result = &Result{
			Reason: res.Reason, Message: res.Message, Limit: res.Limit, RetryAfter: res.RetryAfter, ExitCode: res.ExitCode, Signal: res.Signal,
			Value: res.Value, ValueRef: res.ValueRef, Stdout: &res.Stdout, Stderr: &res.Stderr,
		}
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
