// Package function is the executor "function": Go functions that are registered
// in the worker.
//
// # Stopping
//
// A function is stopped by its context, and only by that: Go has no way to end
// a goroutine from outside. The context ends for the causes of package executor,
// and with ErrLeaseLost a little before the lease does (Config.Margin), so that
// a function that listens is gone when the lease is. A function that does not
// listen keeps Run until the lease ends; then Run gives it up: the Result is
// Abandoned, its output is cut off, and Stats counts it for as long as it goes
// on. It may then overlap with the next attempt, so a function with effects
// outside of the process must either listen to its context or use the attempt
// number of its Call as a fencing token. Code that cannot promise either belongs
// in the process executor, which kills.
//
// # Faults
//
// A panic ends the attempt and not the worker, with the stack in the captured
// standard error. A crash of the worker itself ends all its functions.
package function

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
	"github.com/millrace/millrace/internal/executor/spec"
)

// MarginDefault is how long before the end of the lease the context of a
// function ends.
const MarginDefault = 100 * time.Millisecond

// maxStackBytes caps the stack that a panic writes to the standard error.
const maxStackBytes = 16 << 10

// Call is one attempt, as the function sees it.
type Call struct {
	ExecutionID string
	// Attempt counts from 1. With ExecutionID it is a fencing token: a system
	// that remembers the highest number it has seen can refuse an older attempt.
	Attempt int
	// Args is the "args" of the spec, "null" when there are none.
	Args json.RawMessage
	// Stdout and Stderr are captured as a program's would be. They are safe for
	// concurrent use and fail once the attempt has ended.
	Stdout, Stderr io.Writer
	// Checkpoint is what the last attempt has kept by SaveCheckpoint, nil if none
	// has: where to go on from.
	Checkpoint []byte

	reporter executor.Reporter
}

// Progress says how far the function has come: done of total, or with a total of 0
// just so many, and a message of one line, which may be empty. It is cheap: call it
// as often as there is something to say. The error is about numbers that make no
// sense, and changes nothing about what was said before.
func (c Call) Progress(done, total float64, message string) error {
	p, err := executor.NewProgress(done, total, message)
	if err != nil || c.reporter == nil {
		return err
	}
	c.reporter.Progress(p)
	return nil
}

// SaveCheckpoint keeps data, at most executor.MaxCheckpointBytes, for the next
// attempt, if there is to be one. It is stored with the next heartbeat of the worker:
// after a crash of the worker an older one may be what the next attempt gets.
func (c Call) SaveCheckpoint(data []byte) error {
	if c.reporter == nil {
		return executor.Deaf{}.Checkpoint(data)
	}
	return c.reporter.Checkpoint(data)
}

// Func is a function that can be run. What it returns becomes Result.Value, as
// JSON. An error is a failure that is worth another attempt, unless
// executor.Permanent marks it; executor.WithReason tells kinds of failures apart. It must return soon after ctx ends; one that
// returns a nil error nevertheless has done its work, and that counts, except
// after a lost lease.
type Func func(ctx context.Context, call Call) (any, error)

// Config is what an Executor needs.
type Config struct {
	// Functions are the functions by name.
	Functions map[string]Func
	// Margin is how long before the end of the lease the context of a function
	// ends. Defaults to MarginDefault.
	Margin time.Duration
}

// Stats counts the functions that ignored the end of their context.
type Stats struct {
	// Abandoned is how many were given up since the start.
	Abandoned int64
	// Stray is how many of them are still running.
	Stray int64
}

// Executor runs registered functions. It is safe for concurrent use.
type Executor struct {
	functions        map[string]Func
	margin           time.Duration
	abandoned, stray atomic.Int64
}

var _ executor.Executor = (*Executor)(nil)

// New returns an executor of the given functions, which must not be changed any
// more.
func New(cfg Config) *Executor {
	if cfg.Margin <= 0 {
		cfg.Margin = MarginDefault
	}
	return &Executor{functions: cfg.Functions, margin: cfg.Margin}
}

// Name returns "function".
func (e *Executor) Name() string { return spec.ExecutorFunction }

// Stats returns the present counts.
func (e *Executor) Stats() Stats {
	return Stats{Abandoned: e.abandoned.Load(), Stray: e.stray.Load()}
}

// Run runs one attempt. See executor.Executor and the package doc.
func (e *Executor) Run(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) (executor.Result, error) {
	s, err := spec.ParseFunction(task.Spec)
	if err != nil {
		return executor.InvalidSpec(err), nil
	}
	fn := e.functions[s.Name]
	if fn == nil {
		return executor.Result{
			Outcome: executor.Failed,
			Reason:  "unknown_function",
			Message: fmt.Sprintf("this worker has no function %q", s.Name),
		}, nil
	}
	if ctx.Err() != nil {
		return executor.Stopped(context.Cause(ctx)), nil
	}
	if time.Until(lease.Deadline()) <= 0 {
		return executor.Stopped(executor.ErrLeaseLost), nil
	}
	output := capture.New(sink, task.MaxOutputBytes)
	call := Call{
		ExecutionID: task.ExecutionID,
		Attempt:     task.Attempt,
		Args:        s.Args,
		Stdout:      output.Stdout(),
		Stderr:      output.Stderr(),
		Checkpoint:  task.Checkpoint,
		reporter:    task.Reports(),
	}
	result := e.await(ctx, fn, call, lease)
	// A Sink that failed ends capturing, not the attempt; the summaries say
	// how much was kept.
	result.Stdout, result.Stderr, _ = output.Close()
	return result, nil
}

// The states of a running function, for the one moment at which it ends and is
// given up at once: exactly one of both sides may count it.
const (
	running int32 = iota
	ended
	givenUp
)

// await starts the function and returns its result, or gives it up at the end of
// the lease.
func (e *Executor) await(ctx context.Context, fn Func, call Call, lease executor.Lease) executor.Result {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	var state atomic.Int32
	results := make(chan executor.Result, 1)
	go func() {
		var result executor.Result
		// Deferred, because a function may also end its goroutine.
		defer func() {
			results <- result
			if !state.CompareAndSwap(running, ended) {
				e.stray.Add(-1)
			}
		}()
		invoke(ctx, fn, call, &result)
	}()

	for {
		moved := lease.Extended()
		left := time.Until(lease.Deadline())
		if left <= e.margin {
			stop(executor.ErrLeaseLost)
		}
		wait := left - e.margin
		if ctx.Err() != nil {
			wait = left // nothing to do any more but to give up at the end
		}
		timer := time.NewTimer(wait)
		select {
		case result := <-results:
			timer.Stop()
			return result
		case <-moved:
		case <-timer.C:
			if time.Until(lease.Deadline()) <= 0 {
				return e.giveUp(&state, results)
			}
		}
		timer.Stop()
	}
}

// giveUp leaves the function behind, unless it has just ended.
func (e *Executor) giveUp(state *atomic.Int32, results <-chan executor.Result) executor.Result {
	e.stray.Add(1)
	if !state.CompareAndSwap(running, givenUp) {
		e.stray.Add(-1)
		return <-results
	}
	e.abandoned.Add(1)
	result := executor.Stopped(executor.ErrLeaseLost)
	result.Message = "the function went on after its context had ended, until the lease ended; it was left behind"
	return result
}

// invoke calls the function and turns each way in which it can end into a
// Result.
func invoke(ctx context.Context, fn Func, call Call, result *executor.Result) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil {
			*result = failed("function_error", "the function ended its goroutine", true)
			return
		}
		stack := debug.Stack()
		_, _ = fmt.Fprintf(call.Stderr, "panic: %v\n\n%s\n", p, stack[:min(len(stack), maxStackBytes)])
		*result = failed("function_panic", fmt.Sprintf("the function panicked: %v", p), true)
	}()
	value, err := fn(ctx, call)
	returned = true
	*result = conclude(ctx, value, err)
}

// conclude is the Result of a function that returned.
func conclude(ctx context.Context, value any, err error) executor.Result {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, executor.ErrLeaseLost):
		return executor.Stopped(cause)
	case err != nil && cause != nil:
		return executor.Stopped(cause)
	case err != nil:
		return failed(cmp.Or(executor.ReasonOf(err), "function_error"), err.Error(), !executor.IsPermanent(err))
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return failed("function_error", "encode what the function returned: "+err.Error(), false)
	}
	return executor.Result{Outcome: executor.Completed, Value: encoded}
}

func failed(reason, message string, retryable bool) executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: reason, Message: message, Retryable: retryable}
}
