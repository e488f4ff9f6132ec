package grpc

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Engine runs workflow instances; *engine.Engine implements it.
type Engine interface {
	Start(ctx context.Context, r engine.StartRequest) (engine.Instance, error)
	StartMany(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error)
	Get(ctx context.Context, id uuid.UUID) (engine.Instance, error)
	List(ctx context.Context, f engine.Filter) (engine.Page, error)
	History(ctx context.Context, id uuid.UUID) ([]engine.StepExecution, error)
	Audit(ctx context.Context, f engine.AuditFilter) (engine.AuditPage, error)
	Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (engine.Instance, error)
	Cancel(ctx context.Context, id uuid.UUID, r engine.CancelRequest) (engine.Instance, error)
	Suspend(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Resume(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Retry(ctx context.Context, id uuid.UUID, r engine.RetryRequest) (engine.Instance, error)
	Compensate(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	SkipCompensation(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Resolve(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	Signal(ctx context.Context, id uuid.UUID, stepOrSignal string, variables json.RawMessage, actor string) error
	Correlate(ctx context.Context, r engine.CorrelateRequest) (engine.CorrelateResult, error)
	UserTasks(ctx context.Context, f engine.UserTaskFilter) (engine.UserTaskPage, error)
	ClaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error)
	UnclaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (engine.UserTask, error)
	CompleteUserTask(ctx context.Context, r engine.CompleteUserTaskRequest) error
	CompleteJob(ctx context.Context, c jobs.Completion) error
	CompleteJobs(ctx context.Context, cs []jobs.Completion) []error
	FailJob(ctx context.Context, f jobs.Failure) error
	FailJobs(ctx context.Context, fs []jobs.Failure) []error
}

// Jobs hands jobs to workers; *jobs.Store implements it.
type Jobs interface {
	Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error)
	Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error)
	Release(ctx context.Context, holders []jobs.Holder) error
}

// workflows is workflow.v1.WorkflowEngine.
type workflows struct {
	workflowv1.UnimplementedWorkflowEngineServer
	server *Server
}

func (s *workflows) engine() Engine { return s.server.deps.Engine }

// Bounds of requests; those of REST are the same.
const (
	maxNameBytes    = 256
	maxReasonBytes  = 1000
	maxCodeBytes    = 128
	maxMessageBytes = 8 << 10
	maxBatch        = 1000
	maxJobTypes     = 256
	maxWait         = time.Minute
	maxLease        = time.Hour
	maxTTL          = 30 * 24 * time.Hour
)

// patience is how long a request may wait for something to happen.
func patience(req any) time.Duration {
	switch req := req.(type) {
	case *workflowv1.PollJobsRequest:
		return waitOf(req.GetWait().AsDuration())
	case *workflowv1.WaitInstanceRequest:
		return waitOf(req.GetTimeout().AsDuration())
	}
	return 0
}

func waitOf(d time.Duration) time.Duration { return min(max(d, 0), maxWait) }

// instanceID reads the id of an instance. What is no UUID names nothing that exists.
func instanceID(text string) (uuid.UUID, error) {
	if text == "" {
		return uuid.Nil, invalid("id", "required", "is required")
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fmt.Errorf("there is no instance %q: %w", clip(text), engine.ErrNotFound)
	}
	return id, nil
}

// visible reads the id of an instance that has to exist for whoever calls.
func (s *workflows) visible(ctx context.Context, text string) (uuid.UUID, error) {
	id, err := instanceID(text)
	if err != nil || auth.From(ctx).Tenant == "" {
		return id, err
	}
	i, err := s.engine().Get(ctx, id)
	if err == nil {
		err = seen(ctx, i)
	}
	return id, err
}

// seen refuses an instance of another tenant: it does not exist for those of this one.
func seen(ctx context.Context, i engine.Instance) error {
	if auth.From(ctx).Sees(i.Tenant) {
		return nil
	}
	return fmt.Errorf("there is no instance %s: %w", i.ID, engine.ErrNotFound)
}

// seesAll refuses to those of a tenant what is not told apart by tenants.
func seesAll(ctx context.Context, what string) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With(what + " are not told apart by tenants: a token of a tenant has no access")
	}
	return nil
}

// name checks a name or key that the caller chose.
func name(field, text string, required bool) error {
	switch {
	case text == "" && required:
		return invalid(field, "required", "is required")
	case len(text) > maxNameBytes:
		return invalid(field, "too_long", fmt.Sprintf("has more than %d bytes", maxNameBytes))
	}
	return words(field, text)
}

// words refuses control characters.
func words(field, text string) error {
	for _, c := range text {
		if c < 0x20 || c == 0x7f {
			return invalid(field, "invalid", "contains control characters")
		}
	}
	return nil
}

// why checks the reason that somebody gives.
func why(text string) error {
	if len(text) > maxReasonBytes {
		return invalid("reason", "too_long", fmt.Sprintf("has more than %d bytes", maxReasonBytes))
	}
	return words("reason", text)
}

func batch(field string, n int) error {
	if n == 0 || n > maxBatch {
		return invalid(field, "out_of_range", fmt.Sprintf("must have between 1 and %d items, not %d", maxBatch, n))
	}
	return nil
}

func clip(text string) string {
	if len(text) <= 64 {
		return text
	}
	for n := 64; ; n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n] + "..."
		}
	}
}
