package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// StartInstance asks for an instance of a workflow.
type StartInstance struct {
	DefinitionID      string          `json:"definitionId"`
	DefinitionVersion int             `json:"definitionVersion,omitempty"`
	Variables         json.RawMessage `json:"variables,omitempty"`
	BusinessKey       string          `json:"businessKey,omitempty"`
	ID                string          `json:"id,omitempty"`
	Priority          int             `json:"priority,omitempty"`
	CorrelationID     string          `json:"correlationId,omitempty"`
}

// Instance is an instance of a workflow, as its engine has it.
type Instance struct {
	ID                string          `json:"id"`
	DefinitionID      string          `json:"definitionId"`
	DefinitionVersion int             `json:"definitionVersion"`
	Status            string          `json:"status"`
	CurrentStepIDs    []string        `json:"currentStepIds"`
	Variables         json.RawMessage `json:"variables,omitempty"`
	StartedAt         time.Time       `json:"startedAt"`
	CompletedAt       *time.Time      `json:"completedAt,omitempty"`
	FailureReason     string          `json:"failureReason,omitempty"`
	BusinessKey       string          `json:"businessKey,omitempty"`
	Kind              string          `json:"kind,omitempty"`
	Version           int64           `json:"version"`
	Priority          int             `json:"priority,omitempty"`
	Tenant            string          `json:"tenant,omitempty"`
	User              string          `json:"user,omitempty"`
	ParentInstanceID  string          `json:"parentInstanceId,omitempty"`
	NextInstanceID    string          `json:"nextInstanceId,omitempty"`
	Notice            string          `json:"notice,omitempty"`
	ExecutionID       string          `json:"executionId,omitempty"`
	CorrelationID     string          `json:"correlationId,omitempty"`
	UpdatedAt         *time.Time      `json:"updatedAt,omitempty"`
	Origin            *Origin         `json:"origin,omitempty"`
}

// InstanceStatuses are the statuses of instances; the last four are final.
func InstanceStatuses() []string {
	return []string{"ACTIVE", "WAITING", "SUSPENDED", "COMPENSATING", "NEEDS_ATTENTION", "COMPLETED", "FAILED", "CANCELLED", "COMPENSATED"}
}

// Ended says whether nothing leads the instance on by itself.
func (i Instance) Ended() bool { return slices.Index(InstanceStatuses(), i.Status) >= 5 }

// StepExecution is a step of an instance, entered once.
type StepExecution struct {
	ID              string          `json:"id"`
	InstanceID      string          `json:"instanceId"`
	StepID          string          `json:"stepId"`
	StepType        string          `json:"stepType"`
	AttemptNumber   int             `json:"attemptNumber"`
	Status          string          `json:"status"`
	StartedAt       time.Time       `json:"startedAt"`
	EndedAt         *time.Time      `json:"endedAt,omitempty"`
	FailureReason   string          `json:"failureReason,omitempty"`
	Output          json.RawMessage `json:"output,omitempty"`
	CompensatesStep string          `json:"compensatesStep,omitempty"`
	JobAttempts     int             `json:"jobAttempts,omitempty"`
}

// AuditLine is a line of the audit log of an instance.
type AuditLine struct {
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor"`
	Kind       string          `json:"kind"`
	InstanceID string          `json:"instanceId"`
	Version    int64           `json:"version"`
	Detail     json.RawMessage `json:"detail,omitempty"`
}

// Start starts an instance. Under a key that was used before it returns the instance that
// was started then.
func (c *Client) Start(ctx context.Context, r StartInstance, key string) (Instance, error) {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var i Instance
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"instances"}, body: r, header: header}, &i)
	return i, err
}

// Instance returns an instance. With a wait, which is at most a minute, it returns once the
// instance has ended, or as it is when the time is over.
func (c *Client) Instance(ctx context.Context, id string, wait time.Duration) (Instance, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	var i Instance
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"instances", id}, query: q}, &i)
	return i, err
}

// InstanceQuery selects instances. Empty fields select all.
type InstanceQuery struct {
	DefinitionID, BusinessKey, Kind string
	Statuses                        []string
	PageSize                        int
}

// Instances returns instances, the youngest first.
func (c *Client) Instances(ctx context.Context, f InstanceQuery) iter.Seq2[Instance, error] {
	q := fields(map[string]string{
		"definitionId": f.DefinitionID, "businessKey": f.BusinessKey, "kind": f.Kind, "pageSize": size(f.PageSize, 200), "total": "false",
	})
	for _, s := range f.Statuses {
		q.Add("status", s)
	}
	return camelPages[Instance](ctx, c, []string{"instances"}, q)
}

// History returns the steps that an instance has been through.
func (c *Client) History(ctx context.Context, id string) ([]StepExecution, error) {
	var answer struct {
		Items []StepExecution `json:"items"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"instances", id, "history"}}, &answer)
	return answer.Items, err
}

// Audit returns the audit log of an instance, the oldest line first.
func (c *Client) Audit(ctx context.Context, id string, kinds []string) iter.Seq2[AuditLine, error] {
	q := url.Values{"pageSize": {"1000"}}
	for _, k := range kinds {
		q.Add("kind", k)
	}
	return camelPages[AuditLine](ctx, c, []string{"instances", id, "audit"}, q)
}

// InstanceAction is what somebody does to an instance.
type InstanceAction struct {
	Reason     string          `json:"reason,omitempty"`
	Compensate bool            `json:"compensate,omitempty"`
	StepID     string          `json:"stepId,omitempty"`
	Variables  json.RawMessage `json:"variables,omitempty"`
}

// ActOnInstance does something to an instance: the verbs are cancel, suspend, resume, retry
// and compensate.
func (c *Client) ActOnInstance(ctx context.Context, id, verb string, a InstanceAction) (Instance, error) {
	var i Instance
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"instances", id, verb}, body: a}, &i)
	return i, err
}

// SignalInstance signals a WAIT of an instance. Variables is an object, or nil.
func (c *Client) SignalInstance(ctx context.Context, id, step string, variables json.RawMessage) error {
	if variables == nil {
		variables = json.RawMessage("{}")
	}
	return c.do(ctx, call{method: http.MethodPost, path: []string{"instances", id, "signals", step}, body: variables}, nil)
}

// CorrelatedSignal is a signal for whichever instances wait for it.
type CorrelatedSignal struct {
	Signal         string          `json:"signal"`
	CorrelationKey string          `json:"correlationKey"`
	Variables      json.RawMessage `json:"variables,omitempty"`
	TTLSeconds     *float64        `json:"ttlSeconds,omitempty"`
	ID             string          `json:"id,omitempty"`
}

// Correlated is what became of a CorrelatedSignal.
type Correlated struct {
	ID          string   `json:"id"`
	InstanceIDs []string `json:"instanceIds"`
	Kept        bool     `json:"kept"`
}

// Correlate signals whichever instances wait for a signal.
func (c *Client) Correlate(ctx context.Context, s CorrelatedSignal) (Correlated, error) {
	var answer Correlated
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"signals"}, body: s}, &answer)
	return answer, err
}

// UserTask is a task for a person.
type UserTask struct {
	ID              string          `json:"id"`
	InstanceID      string          `json:"instanceId"`
	StepID          string          `json:"stepId"`
	Name            string          `json:"name"`
	Label           string          `json:"label,omitempty"`
	DefinitionID    string          `json:"definitionId"`
	BusinessKey     string          `json:"businessKey,omitempty"`
	Status          string          `json:"status"`
	Assignee        string          `json:"assignee,omitempty"`
	CandidateGroups []string        `json:"candidateGroups,omitempty"`
	DueAt           *time.Time      `json:"dueAt,omitempty"`
	CreatedAt       time.Time       `json:"createdAt"`
	ClaimedAt       *time.Time      `json:"claimedAt,omitempty"`
	CompletedAt     *time.Time      `json:"completedAt,omitempty"`
	CompletedBy     string          `json:"completedBy,omitempty"`
	Variables       json.RawMessage `json:"variables,omitempty"`
}

// UserTaskQuery selects user tasks. Empty fields select all that are open.
type UserTaskQuery struct {
	InstanceID, DefinitionID, Assignee, Group string
	Statuses                                  []string
	Overdue, Unassigned                       bool
	PageSize                                  int
}

// UserTasks returns user tasks, the oldest first.
func (c *Client) UserTasks(ctx context.Context, f UserTaskQuery) iter.Seq2[UserTask, error] {
	q := fields(map[string]string{
		"instanceId": f.InstanceID, "definitionId": f.DefinitionID, "assignee": f.Assignee, "group": f.Group, "pageSize": size(f.PageSize, 1000),
	})
	for _, s := range f.Statuses {
		q.Add("status", s)
	}
	for name, set := range map[string]bool{"overdue": f.Overdue, "unassigned": f.Unassigned} {
		if set {
			q.Set(name, "true")
		}
	}
	return camelPages[UserTask](ctx, c, []string{"user-tasks"}, q)
}

// ClaimUserTask takes a task for a user, or, by the verb unclaim, gives it back.
func (c *Client) ClaimUserTask(ctx context.Context, instanceID, step, verb, user string) (UserTask, error) {
	body := struct {
		User string `json:"user,omitempty"`
	}{user}
	var t UserTask
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"instances", instanceID, "user-tasks", step, verb}, body: body}, &t)
	return t, err
}

// CompleteUserTask completes a task. Variables is an object, or nil.
func (c *Client) CompleteUserTask(ctx context.Context, instanceID, step, by string, variables json.RawMessage) error {
	body := struct {
		CompletedBy string          `json:"completedBy,omitempty"`
		Variables   json.RawMessage `json:"variables,omitempty"`
	}{by, variables}
	return c.do(ctx, call{method: http.MethodPost, path: []string{"instances", instanceID, "user-tasks", step, "complete"}, body: body}, nil)
}

// Job is a job of a service task.
type Job struct {
	ID               string          `json:"id"`
	JobType          string          `json:"jobType"`
	InstanceID       string          `json:"instanceId"`
	StepID           string          `json:"stepId"`
	StepExecutionID  string          `json:"stepExecutionId"`
	Status           string          `json:"status"`
	WorkerID         string          `json:"workerId,omitempty"`
	LockedAt         *time.Time      `json:"lockedAt,omitempty"`
	LockExpiresAt    *time.Time      `json:"lockExpiresAt,omitempty"`
	RetriesRemaining int             `json:"retriesRemaining"`
	Variables        json.RawMessage `json:"variables,omitempty"`
	CreatedAt        time.Time       `json:"createdAt"`
	Attempt          int             `json:"attempt"`
	Token            int64           `json:"token"`
	Priority         int             `json:"priority,omitempty"`
	RunAt            *time.Time      `json:"runAt,omitempty"`
	OnHold           bool            `json:"onHold,omitempty"`
	ExpiredLeases    int             `json:"expiredLeases,omitempty"`
	FinishedAt       *time.Time      `json:"finishedAt,omitempty"`
}

// JobStatuses are the statuses of jobs; the last three are final.
func JobStatuses() []string {
	return []string{"UNLOCKED", "LOCKED", "COMPLETED", "FAILED", "CANCELLED"}
}

// JobQuery selects jobs. Empty fields select all.
type JobQuery struct {
	JobType, InstanceID, WorkerID string
	Statuses                      []string
	PageSize                      int
}

// Jobs returns jobs, those of the youngest instances first.
func (c *Client) Jobs(ctx context.Context, f JobQuery) iter.Seq2[Job, error] {
	q := fields(map[string]string{
		"jobType": f.JobType, "instanceId": f.InstanceID, "workerId": f.WorkerID, "pageSize": size(f.PageSize, 1000),
	})
	for _, s := range f.Statuses {
		q.Add("status", s)
	}
	return camelPages[Job](ctx, c, []string{"jobs"}, q)
}

// Job returns a job with what its worker gets.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"jobs", id}}, &j)
	return j, err
}

// fields makes a query of names and values, without those that are empty.
func fields(pairs map[string]string) url.Values {
	q := url.Values{}
	for name, value := range pairs {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

func size(n, most int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(min(n, most))
}

// camelPages is pages of the routes of workflows, whose names are camelCase.
func camelPages[T any](ctx context.Context, c *Client, path []string, q url.Values) iter.Seq2[T, error] {
	return pagesBy(ctx, c, "pageToken", path, q, func(p struct {
		Items         []T    `json:"items"`
		NextPageToken string `json:"nextPageToken"`
	}) ([]T, string) {
		return p.Items, p.NextPageToken
	})
}
