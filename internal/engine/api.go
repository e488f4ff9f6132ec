package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

var errNotYet = errors.New("not yet")

// Plans finds compiled definitions: definitions.Store.
type Plans interface {
	// Plan returns the plan of a definition, and which version it is. Version 0 means the
	// latest.
	Plan(ctx context.Context, id string, version int) (*workflow.Plan, int, error)
}

// Config is what an engine is made of.
type Config struct{}

// Engine runs workflow instances. It is safe for concurrent use.
type Engine struct{}

// New returns an engine. It takes requests once Run does.
func New(cfg Config) *Engine { _ = cfg; return &Engine{} }

// Run takes requests, fires timers and does the housekeeping that the configuration asks
// for, until ctx ends; it returns nil then, after all that was taken has its answer.
func (e *Engine) Run(ctx context.Context) error { return errNotYet }

// Start makes an instance of a definition and leads it as far as it goes without
// waiting. An ID that exists, of the same definition, gives the instance as it is.
func (e *Engine) Start(ctx context.Context, r StartRequest) (Instance, error) {
	return Instance{}, errNotYet
}

// StartMany is Start for several, with an outcome each in their order.
func (e *Engine) StartMany(ctx context.Context, rs []StartRequest) ([]Instance, []error) {
	return nil, nil
}

// Get returns an instance as it is.
func (e *Engine) Get(ctx context.Context, id uuid.UUID) (Instance, error) {
	return Instance{}, errNotYet
}

// List returns a page of instances, the youngest first.
func (e *Engine) List(ctx context.Context, f Filter) (Page, error) { return Page{}, errNotYet }

// History returns the steps of an instance in the order in which they began.
func (e *Engine) History(ctx context.Context, id uuid.UUID) ([]StepExecution, error) {
	return nil, errNotYet
}

// Audit returns a page of what happened to an instance, the oldest first.
func (e *Engine) Audit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	return AuditPage{}, errNotYet
}

// Wait returns the instance once it has ended, or as it is after the timeout: the status
// says which. It gives ctx's error when that ends first.
func (e *Engine) Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (Instance, error) {
	return Instance{}, errNotYet
}

// Cancel ends an instance, after it has undone what it did when Compensate is set. One
// that has ended is ErrConflict, unless it was cancelled.
func (e *Engine) Cancel(ctx context.Context, id uuid.UUID, r CancelRequest) (Instance, error) {
	return Instance{}, errNotYet
}

// Suspend keeps an instance from beginning anything until Resume.
func (e *Engine) Suspend(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return Instance{}, errNotYet
}

// Resume lets a suspended instance go on.
func (e *Engine) Resume(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return Instance{}, errNotYet
}

// Retry lets an instance go on that has failed or needs attention.
func (e *Engine) Retry(ctx context.Context, id uuid.UUID, r RetryRequest) (Instance, error) {
	return Instance{}, errNotYet
}

// Compensate undoes what an instance has done, whatever its status.
func (e *Engine) Compensate(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return Instance{}, errNotYet
}

// SkipCompensation takes the compensation that needs attention for done.
func (e *Engine) SkipCompensation(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return Instance{}, errNotYet
}

// Resolve ends an instance that needs attention as it is.
func (e *Engine) Resolve(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return Instance{}, errNotYet
}

// Signal signals a WAIT of an instance, by the id of its step or its signal's name. One
// that comes before the WAIT is reached is kept for it.
func (e *Engine) Signal(ctx context.Context, id uuid.UUID, stepOrSignal string, variables json.RawMessage, actor string) error {
	return errNotYet
}

// Correlate signals the instances that wait for a signal under a key, or keeps it for
// the first one that will.
func (e *Engine) Correlate(ctx context.Context, r CorrelateRequest) (CorrelateResult, error) {
	return CorrelateResult{}, errNotYet
}

// UserTasks returns a page of user tasks, the oldest first.
func (e *Engine) UserTasks(ctx context.Context, f UserTaskFilter) (UserTaskPage, error) {
	return UserTaskPage{}, errNotYet
}

// ClaimUserTask takes an open task for a user. Claiming what the user has already is no
// error; what somebody else has is ErrConflict.
func (e *Engine) ClaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (UserTask, error) {
	return UserTask{}, errNotYet
}

// UnclaimUserTask gives a task back, which only its user may; an empty user always may.
func (e *Engine) UnclaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (UserTask, error) {
	return UserTask{}, errNotYet
}

// CompleteUserTask ends a task and leads its instance on. Completing it again is no
// error; a step without a task is ErrNotFound, one that is not open ErrConflict.
func (e *Engine) CompleteUserTask(ctx context.Context, r CompleteUserTaskRequest) error {
	return errNotYet
}

// CompleteJob takes the result of a job and leads its instance on. Errors wrap
// jobs.ErrNotFound, jobs.ErrLeaseLost, jobs.ErrFinished, or those of this package.
func (e *Engine) CompleteJob(ctx context.Context, c jobs.Completion) error { return errNotYet }

// CompleteJobs is CompleteJob for several, with an outcome each in their order.
func (e *Engine) CompleteJobs(ctx context.Context, cs []jobs.Completion) []error { return nil }

// FailJob takes the failure of an attempt at a job: it is put up again, or its step has
// failed. Errors are those of CompleteJob.
func (e *Engine) FailJob(ctx context.Context, f jobs.Failure) error { return errNotYet }

// FailJobs is FailJob for several, with an outcome each in their order.
func (e *Engine) FailJobs(ctx context.Context, fs []jobs.Failure) []error { return nil }

// Reply takes the reply to a command. One that is not asked for (any more) is ErrConflict,
// and no reason to send it again.
func (e *Engine) Reply(ctx context.Context, r CommandReply) error { return errNotYet }

// ReplyIn is Reply for several within a transaction of the caller's, with an outcome each
// in their order. The second error is of the transaction, which then has to be given up.
// The function, which is not nil, is to be called after the commit.
func (e *Engine) ReplyIn(ctx context.Context, tx pgx.Tx, rs []CommandReply) ([]error, func(), error) {
	return nil, func() {}, errNotYet
}
