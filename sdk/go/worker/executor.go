package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// Executor runs the handlers of jobs that somebody has leased, keeps their leases alive
// and reports their results. Runner and the Runner of the package kafka are made of it;
// it is here for those who get jobs in yet another way.
type Executor struct {
	engine   client.JobClient
	registry *Registry
	cfg      Config
	slots    *slots
	beats    *heartbeats
	reports  *reporter

	// handlers is the parent of every handler's context, calls of every call of the
	// engine that outlives the stop.
	handlers    context.Context
	stopHandler context.CancelCauseFunc
	calls       context.Context
	stopCalls   context.CancelFunc

	running    sync.WaitGroup // handlers and the reports of their results
	background sync.WaitGroup // heartbeats
}

var errNoEngine = errors.New("worker needs an engine and a registry")

// NewExecutor returns an Executor, whose handlers inherit the values of ctx, but not its
// end. Drain stops it.
func NewExecutor(ctx context.Context, engine client.JobClient, registry *Registry, cfg Config) (*Executor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if engine == nil || registry == nil {
		return nil, errNoEngine
	}
	if len(registry.JobTypes()) == 0 {
		return nil, errors.New("worker has no handlers: register them before it runs")
	}
	e := &Executor{engine: engine, registry: registry, cfg: cfg, slots: newSlots(cfg.Parallelism)}
	root := context.WithoutCancel(ctx)
	e.handlers, e.stopHandler = context.WithCancelCause(root)
	e.calls, e.stopCalls = context.WithCancel(root)
	e.beats = newHeartbeats(engine, cfg)
	e.reports = newReporter(engine, cfg)
	e.background.Go(func() { e.beats.run(e.calls) })
	return e, nil
}

// Config returns the configuration with its defaults filled in.
func (e *Executor) Config() Config { return e.cfg }

// Reserve waits until a handler more may run, and reserves places for up to n. Each is
// used up by Execute or given back by Release.
func (e *Executor) Reserve(ctx context.Context, n int) (int, error) { return e.slots.take(ctx, n) }

// Release gives places back.
func (e *Executor) Release(n int) { e.slots.give(n) }

// Execute runs the handler of a job on a reserved place and returns at once. The job was
// leased at the given time or later; done, which may be nil, is called when its result was
// reported, or will not be.
func (e *Executor) Execute(job client.Job, leased time.Time, done func(Outcome)) {
	e.running.Go(func() {
		defer e.slots.give(1)
		outcome := e.execute(job, leased)
		if done != nil {
			done(outcome)
		}
	})
}

// Drain waits until all handlers are done, for as long as the configuration allows; then
// it cancels them, and waits a little for them to return. It returns an error when some
// did not: their goroutines are still there.
func (e *Executor) Drain() error {
	done := make(chan struct{})
	go func() {
		e.running.Wait()
		close(done)
	}()
	err := e.waitDone(done)
	e.stopHandler(ErrStopping)
	e.stopCalls()
	e.background.Wait()
	return err
}

// graceAfterCancel is what a handler has to return after its context was cancelled, and
// its result to be reported.
const graceAfterCancel = 5 * time.Second

func (e *Executor) waitDone(done <-chan struct{}) error {
	limit := time.NewTimer(e.cfg.DrainTimeout)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
	}
	e.cfg.Logger.Warn("drain is over: handlers are cancelled", "drain_timeout", e.cfg.DrainTimeout)
	e.stopHandler(ErrStopping)
	grace := time.NewTimer(graceAfterCancel)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
		return errors.New("drain: handlers did not return after their contexts were cancelled")
	}
}

func (e *Executor) execute(job client.Job, leased time.Time) Outcome {
	j := JobContext{
		JobID: job.ID, InstanceID: job.InstanceID, StepID: job.StepID, StepExecutionID: job.StepExecutionID, JobType: job.JobType,
		Attempt: job.Attempt, RetriesRemaining: job.RetriesRemaining, RawVariables: job.Variables, WorkerID: e.cfg.WorkerID,
		LockExpiresAt: job.LockExpiresAt, token: job.Token,
	}
	ctx, held := e.beats.hold(e.handlers, job, leased)
	defer held.release()
	began := time.Now()
	if e.cfg.Hooks.Started != nil {
		e.cfg.Hooks.Started(j)
	}
	result, err := e.handle(withJob(ctx, j), j)
	f := Finish{Took: time.Since(began), Err: err}
	f.Outcome, f.Err = e.report(ctx, held, j, result, err)
	if e.cfg.Hooks.Finished != nil {
		e.cfg.Hooks.Finished(j, f)
	}
	e.log(j, f)
	return f.Outcome
}

// handle calls the handler. A panic is its failure.
func (e *Executor) handle(ctx context.Context, j JobContext) (result Result, err error) {
	h, known := e.registry.handler(j.JobType)
	if !known {
		return Result{}, &NonRetryable{Fail(codeNoHandler, fmt.Errorf("no handler registered for job type %q", j.JobType))}
	}
	if j.Variables, err = decodeVariables(j.RawVariables); err != nil {
		return Result{}, &NonRetryable{Fail(codeBadVariables, err)}
	}
	for i := len(e.cfg.Middleware) - 1; i >= 0; i-- {
		h = e.cfg.Middleware[i](h)
	}
	defer func() {
		if v := recover(); v != nil {
			result, err = Result{}, &NonRetryable{Fail(codePanic, &PanicError{Value: v, Stack: debug.Stack()})}
		}
	}()
	return h(ctx, j)
}

// report tells the engine what the handler returned.
func (e *Executor) report(ctx context.Context, held *hold, j JobContext, result Result, err error) (Outcome, error) {
	if held.lost() {
		return Lost, errors.Join(err, ErrLeaseLost)
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrStopping) {
			return Abandoned, err
		}
		return e.fail(held, j, err)
	}
	vars, err := encodeVariables(result.VariablesToSet)
	if err != nil {
		return e.fail(held, j, &NonRetryable{Fail(codeUnencodable, err)})
	}
	err = e.reports.complete(e.calls, held, client.Completion{JobID: j.JobID, WorkerID: j.WorkerID, Token: held.token(), Variables: vars})
	if errors.Is(err, client.ErrInvalid) {
		// It will never be taken: too large, for example. Leaving it to the lease would
		// run the handler over and over for the same refusal.
		return e.fail(held, j, &NonRetryable{Fail(codeResultTooLong, fmt.Errorf("the engine refused the result: %w", err))})
	}
	return outcomeOf(Completed, err), err
}

func (e *Executor) fail(held *hold, j JobContext, cause error) (Outcome, error) {
	err := e.reports.fail(e.calls, held, client.Failure{
		JobID: j.JobID, WorkerID: j.WorkerID, Token: held.token(), Retryable: !IsNonRetryable(cause), Code: Code(cause), Message: messageOf(cause),
		RetryAfter: retryAfter(cause),
	})
	return outcomeOf(Failed, err), errors.Join(cause, err)
}

// maxMessage bounds the text of a failure.
const maxMessage = 8 << 10

func messageOf(err error) string {
	text := err.Error()
	if len(text) > maxMessage {
		text = text[:maxMessage] + " ..."
	}
	return text
}

func outcomeOf(good Outcome, err error) Outcome {
	switch {
	case err == nil:
		return good
	case client.Retryable(err):
		return Unreported
	default:
		return Lost
	}
}

func encodeVariables(vars map[string]any) (json.RawMessage, error) {
	if len(vars) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(vars)
	if err != nil {
		return nil, fmt.Errorf("encode the variables: %w", err)
	}
	return text, nil
}

// log says what an operator should know. Failures of handlers are the engine's to show,
// so they are here for who looks closer.
func (e *Executor) log(j JobContext, f Finish) {
	attrs := []any{"job_id", j.JobID, "job_type", j.JobType, "instance_id", j.InstanceID, "took", f.Took, "error", f.Err}
	var p *PanicError
	switch {
	case errors.As(f.Err, &p):
		e.cfg.Logger.Error("handler panicked", append(attrs, "stack", string(p.Stack))...)
	case f.Outcome == Unreported:
		e.cfg.Logger.Error("result not reported: the engine gives the job out again", attrs...)
	case f.Outcome == Lost, f.Outcome == Abandoned:
		e.cfg.Logger.Warn("result dropped", append(attrs, "outcome", f.Outcome)...)
	case f.Outcome == Failed:
		e.cfg.Logger.Info("job failed", attrs...)
	default:
		e.cfg.Logger.Debug("job completed", attrs[:8]...)
	}
}
