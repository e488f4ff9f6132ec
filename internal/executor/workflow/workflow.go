// Package workflow is the executor whose attempts are instances of workflows: it starts
// one, waits for its end, and makes its variables the result of the execution.
//
// The instance belongs to the execution and not to the worker: it is found by the
// execution's id, starting it is idempotent, and a worker that stops, dies or loses its
// lease leaves it running. The next attempt waits for the same instance, or takes the
// result of one that has completed meanwhile; only after one that has failed it starts
// another. A cancel and the run limit of the execution cancel the instance, which undoes
// what it has done where its definition says how; Run waits for that.
//
// Attempts have no output of their own: the instance has its history.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/workflow"
)

// Engine runs instances; *engine.Engine is one.
type Engine interface {
	Start(ctx context.Context, r engine.StartRequest) (engine.Instance, error)
	Get(ctx context.Context, id uuid.UUID) (engine.Instance, error)
	// Wait returns the instance once it has ended, or as it is after the timeout.
	Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (engine.Instance, error)
	Cancel(ctx context.Context, id uuid.UUID, r engine.CancelRequest) (engine.Instance, error)
}

// Executor runs instances of workflows. It is safe for concurrent use.
type Executor struct{ engine Engine }

var _ executor.Executor = (*Executor)(nil)

// New returns the executor over an engine that runs.
func New(e Engine) *Executor { return &Executor{engine: e} }

// Name returns "workflow".
func (e *Executor) Name() string { return spec.ExecutorWorkflow }

// waitAtMost is how long one call of Engine.Wait takes at most; it is asked again.
const waitAtMost = 30 * time.Second

// pauseAfterFault is how long a database that does not answer is left alone.
const pauseAfterFault = 500 * time.Millisecond

// actor is who cancels instances.
const actor = "execution"

// InstanceID is the id of the instance that an attempt of an execution starts.
func InstanceID(execution string, attempt int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:millrace:execution:"+execution+":"+strconv.Itoa(attempt)))
}

// Run runs one attempt. See executor.Executor and the package doc.
func (e *Executor) Run(ctx context.Context, task executor.Task, lease executor.Lease, _ executor.Sink) (executor.Result, error) {
	s, err := spec.ParseWorkflow(task.Spec)
	if err != nil {
		return executor.InvalidSpec(err), nil
	}
	if ctx.Err() != nil {
		return executor.Stopped(context.Cause(ctx)), nil
	}
	held, release := executor.Held(lease)
	defer release()
	a := &attempt{engine: e.engine, task: task, spec: s, stop: ctx, held: held}
	return a.run(), nil
}

// attempt is one call of Run.
type attempt struct {
	engine Engine
	task   executor.Task
	spec   spec.Workflow
	// asked is set once the engine was asked for a new instance, which it may have made
	// whatever it answered.
	asked bool
	// stop ends when the attempt is to stop, held when the lease is over.
	stop, held context.Context //nolint:containedctx // both live as long as the call
}

func (a *attempt) run() executor.Result {
	// Either of the two ends what waits for the engine.
	ctx, cancel := context.WithCancelCause(a.held)
	defer cancel(nil)
	defer context.AfterFunc(a.stop, func() { cancel(context.Cause(a.stop)) })()

	instance, refused, err := a.find(ctx)
	if refused != nil {
		return *refused
	}
	for err == nil && !instance.Status.Final() {
		instance, err = a.persist(ctx, func() (engine.Instance, error) { return a.engine.Wait(ctx, instance.ID, waitAtMost) })
	}
	if err == nil {
		return conclude(instance)
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, executor.ErrCancelled) && !errors.Is(cause, executor.ErrRunLimit) {
		return executor.Stopped(cause) // the instance goes on; the next attempt waits for it
	}
	return a.cancel(cause)
}

// find returns the instance of the execution: the last one that an attempt started, unless
// it has failed, or a new one.
func (a *attempt) find(ctx context.Context) (found engine.Instance, refused *executor.Result, err error) {
	for n := a.task.Attempt; n >= 1; n-- {
		id := InstanceID(a.task.ExecutionID, n)
		found, err = a.persist(ctx, func() (engine.Instance, error) { return a.engine.Get(ctx, id) })
		switch {
		case errors.Is(err, engine.ErrNotFound):
			continue
		case err != nil:
			return found, nil, err
		case n == a.task.Attempt || !found.Status.Final() || found.Status == workflow.Completed:
			return found, nil, nil
		}
		break // the attempt before has failed: this is another try
	}
	a.asked = true
	found, err = a.persist(ctx, func() (engine.Instance, error) { return a.engine.Start(ctx, a.request()) })
	if reason := refusal(err); reason != "" {
		return found, &executor.Result{Outcome: executor.Failed, Reason: reason, Message: err.Error()}, nil
	}
	return found, nil, err
}

// refusal is why the engine will not start an instance, however often it is asked; empty for
// errors that say nothing of that.
func refusal(err error) string {
	switch {
	case errors.Is(err, definitions.ErrNotFound), errors.Is(err, engine.ErrNotFound):
		return "unknown_workflow"
	case errors.Is(err, engine.ErrInvalid), errors.Is(err, workflow.ErrTooLarge), errors.Is(err, workflow.ErrBadInput):
		return "invalid_spec"
	case errors.Is(err, engine.ErrWithoutKafka):
		return "kafka_off"
	}
	return ""
}

func (a *attempt) request() engine.StartRequest {
	r := engine.StartRequest{
		ID: InstanceID(a.task.ExecutionID, a.task.Attempt), DefinitionID: a.spec.DefinitionID, Version: a.spec.DefinitionVersion,
		Variables: a.spec.Variables, BusinessKey: a.spec.BusinessKey, Tenant: a.task.Tenant, User: a.task.User,
		CorrelationID: a.task.ExecutionID,
	}
	if p := a.task.Priority; p >= 1 && p <= 5 {
		r.Priority = p
	}
	if id, err := uuid.Parse(a.task.ExecutionID); err == nil {
		r.ExecutionID = id
	}
	return r
}

// cancel ends the instance, and waits until it has, or the lease is over.
func (a *attempt) cancel(cause error) executor.Result {
	stopped := executor.Stopped(cause)
	id, ok := a.newest()
	if !ok {
		return stopped // none was started
	}
	request := engine.CancelRequest{Reason: stopped.Message, Actor: actor, Compensate: true}
	instance, err := a.persist(a.held, func() (engine.Instance, error) { return a.engine.Cancel(a.held, id, request) })
	if errors.Is(err, engine.ErrConflict) || err == nil && !instance.Status.Final() {
		err = nil
		for instance.Status = ""; err == nil && !instance.Status.Final(); {
			instance, err = a.persist(a.held, func() (engine.Instance, error) { return a.engine.Wait(a.held, id, waitAtMost) })
		}
	}
	switch {
	case err != nil && a.held.Err() != nil:
		return executor.Stopped(executor.ErrLeaseLost)
	case err == nil && instance.Status == workflow.Completed:
		return conclude(instance) // it was quicker
	}
	return stopped
}

// newest returns the last instance that an attempt started. One that is in doubt is
// started for sure, so that it can be cancelled.
func (a *attempt) newest() (uuid.UUID, bool) {
	if a.asked {
		started, err := a.persist(a.held, func() (engine.Instance, error) { return a.engine.Start(a.held, a.request()) })
		return started.ID, err == nil
	}
	for n := a.task.Attempt; n >= 1; n-- {
		id := InstanceID(a.task.ExecutionID, n)
		if _, err := a.persist(a.held, func() (engine.Instance, error) { return a.engine.Get(a.held, id) }); err == nil {
			return id, true
		}
	}
	return uuid.Nil, false
}

// persist calls fn again while the engine cannot answer, until ctx ends. Answers that say
// something of the instance are final.
func (a *attempt) persist(ctx context.Context, fn func() (engine.Instance, error)) (engine.Instance, error) {
	for {
		instance, err := fn()
		if err == nil || refusal(err) != "" || errors.Is(err, engine.ErrConflict) {
			return instance, err
		}
		select {
		case <-ctx.Done():
			return engine.Instance{}, fmt.Errorf("ask the engine: %w", context.Cause(ctx))
		case <-time.After(pauseAfterFault):
		}
	}
}

// conclude is the result of an instance that has ended.
func conclude(i engine.Instance) executor.Result {
	switch i.Status {
	case workflow.Completed:
		return executor.Result{Outcome: executor.Completed, Value: i.Variables}
	case workflow.Cancelled:
		return executor.Result{Outcome: executor.Failed, Reason: "workflow_cancelled", Message: "the instance was cancelled: " + i.FailureReason}
	case workflow.Compensated:
		return executor.Result{
			Outcome: executor.Failed, Reason: "workflow_compensated", Retryable: true,
			Message: "the instance was given up and has undone what it did: " + i.FailureReason,
		}
	default:
		return executor.Result{Outcome: executor.Failed, Reason: "workflow_failed", Retryable: true, Message: "the instance failed: " + i.FailureReason}
	}
}
