// Package executor is the contract between the worker and whatever runs an
// attempt of an execution: a process, a Go function, a pod, a workflow.
//
// # What the worker promises
//
// Run is called once per attempt, while the worker holds the lease of that
// attempt. The context ends when the attempt must stop, and context.Cause tells
// why: ErrCancelled, ErrRunLimit, ErrLeaseLost or ErrShutdown.
//
// # What an executor promises
//
// When Run returns, nothing of the attempt is left running. The executor itself
// makes sure that nothing runs past Lease.Deadline, even when the worker is
// stopped or killed: that is the fence that keeps two attempts of one execution
// from running at the same time. Output is handed over in order per stream.
// Package executortest holds every implementation to this.
//
// # Executors whose attempts run elsewhere
//
// A pod, an instance of a workflow or a job that an external worker has taken does
// not end with the worker that waits for it in Run. Such an executor keeps the same
// contract, which gives it further duties (executortest.RunRemote checks them):
//
//   - It names what it starts by ExecutionID and Attempt, so that starting can be
//     repeated when an answer is lost, and never starts twice.
//   - It tells the other side the deadline with the start, and each one that follows
//     (Lease.Extended). The other side ends the attempt by itself at the deadline it
//     was told last: the worker may be dead by then.
//   - Before it starts attempt n it ends those before n, and waits until they are
//     gone; where a later one was there already it starts nothing and answers
//     Stopped(ErrLeaseLost). The attempt is the fencing token.
//   - It reads output, reports and the end by position, and goes on from there after
//     a fault: nothing is lost and nothing comes twice.
//   - It returns at the lease's end even when the other side cannot be reached, and
//     at the end of the context only once the attempt is gone, or the lease is over.
//   - It removes what it has left there, also that of workers that have died.
//
// For "job" the other side is PostgreSQL: a row by execution and attempt, with a
// deadline that the claims of external workers are checked against.
//
// # Executors whose work is carried on
//
// Where what runs need not end with its worker, as a pod, an executor keeps the above
// with these differences (executortest.Remote.CarriesOn):
//
//   - It names what it starts by ExecutionID and Task.Origin. The attempt that follows
//     one whose worker was lost, or that was handed back, finds it there and carries on:
//     nothing is started twice, and the output is handed over from its beginning.
//   - The lease fences the worker, not the work: at its end, or at ErrLeaseLost and
//     ErrShutdown, Run returns and leaves everything as it is. The attempt is written
//     there, and one that finds a later attempt touches nothing and answers
//     Stopped(ErrLeaseLost).
//   - ErrCancelled and ErrRunLimit end the work. Its run limit is known where it runs,
//     from its start: there may be no worker then. That it has ended for its run limit is
//     kept as any other end.
//   - What was started and is gone is not started again by an attempt with the same origin:
//     that the work was lost is its end.
//   - An attempt with another origin ends the work of those before, and waits until it is
//     gone.
//   - What has ended is kept until Settle, or until nobody wants it any more.
//
// # Workflows
//
// An instance of a workflow is no program that could run twice at once: the engine
// moves it in transactions, and its jobs have leases of their own. So "workflow" is
// excepted from the above: what its attempts do is wait, a lost lease ends the waiting
// and not the instance, and the next attempt waits for the same one.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Causes for which the context of Run ends.
var (
	// ErrCancelled: somebody asked for the execution to be cancelled.
	ErrCancelled = errors.New("execution cancelled")
	// ErrRunLimit: the run time limit of the execution has passed.
	ErrRunLimit = errors.New("run time limit exceeded")
	// ErrLeaseLost: the lease ended or was taken over; the result will not count.
	ErrLeaseLost = errors.New("lease lost")
	// ErrShutdown: the worker stops and hands the attempt back.
	ErrShutdown = errors.New("worker shutting down")
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed" // exit code 0, or the function returned nil
	Failed    Outcome = "failed"    // any other end of its own
	TimedOut  Outcome = "timed_out" // stopped for ErrRunLimit
	Cancelled Outcome = "cancelled" // stopped for ErrCancelled
	Abandoned Outcome = "abandoned" // stopped for ErrLeaseLost or ErrShutdown: no result to report
)

// Stream names one of the two output streams.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Task is one attempt of one execution.
type Task struct {
	ExecutionID string
	// Attempt counts from 1 and is the fencing token of the lease.
	Attempt int
	// First is the attempt with which the work began that this one carries on: the
	// attempts from First to the one before this have lost their worker or were handed
	// back, and none of them has ended by itself. It is Attempt where the work begins
	// afresh, and 0 means the same. See Origin.
	First int
	// Spec is the executor's own part of the request.
	Spec json.RawMessage
	// Tenant, User and Priority (1 to 5, 5 the most urgent; 0: not told) are those of the
	// request, for executors that hand the work on.
	Tenant, User string
	Priority     int
	// Class is the resource class, and Needs is what the request asks for of it.
	Class string
	Needs Needs
	// RunLimit is how long the attempt may run in all; 0: as long as it wants.
	RunLimit time.Duration
	// MaxOutputBytes is how much of each stream is kept; what goes beyond is
	// counted and dropped.
	MaxOutputBytes int64
	// Checkpoint is what the last attempt that kept one has left, nil if none did.
	Checkpoint []byte
	// Reporter takes progress and checkpoints; nil if nobody wants to know.
	Reporter Reporter
}

// Needs is the room that an attempt was promised; zero is what the executor gives to
// those that ask for nothing.
type Needs struct {
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int
}

// Origin is the attempt with which the work began that the task carries on: the name,
// together with the execution's, of whatever an executor keeps running without its
// worker. An attempt with another origin is another run of the work.
func (t Task) Origin() int {
	if t.First == 0 {
		return t.Attempt
	}
	return t.First
}

// Reports returns the Reporter of the task, never nil.
func (t Task) Reports() Reporter {
	if t.Reporter == nil {
		return Deaf{}
	}
	return t.Reporter
}

// Lease is the time for which an attempt may run, as the worker knows it.
type Lease interface {
	// Deadline is the moment (with a monotonic clock reading) at which nothing of
	// the attempt may run any more. It already contains the safety margin, and it
	// moves forward with each successful heartbeat.
	Deadline() time.Time
	// Extended returns a channel that is closed when Deadline has moved since the
	// call.
	Extended() <-chan struct{}
}

// Sink takes the output of an attempt. Calls do not overlap. The executor may
// reuse p after the call. An error is a reason to stop capturing, not to stop
// the attempt.
type Sink interface {
	Write(stream Stream, p []byte) error
}

// StreamSummary says how much a stream produced and how much was kept.
type StreamSummary struct {
	Bytes     int64 `json:"bytes"`      // produced by the attempt
	KeptBytes int64 `json:"kept_bytes"` // handed to the Sink
	Truncated bool  `json:"truncated"`
}

// ValueReference tells a value that is kept apart from those that refer to it.
type ValueReference struct {
	ID     string `json:"id"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Result is how an attempt ended, in the words that the status events carry.
type Result struct {
	Outcome Outcome
	// ExitCode is set when a process exited by itself.
	ExitCode *int
	// Signal names the signal that ended the process ("SIGKILL"), if one did.
	Signal string
	// Reason is a stable code in snake_case, empty when Completed: "exit_code",
	// "signal", "run_limit", "cancelled", "start_failed", "invalid_spec",
	// "unknown_function", "function_error", "function_panic", "lease_lost",
	// "shutdown", "executor_error",
	// "result_too_large", "result_not_stored", or one of a function's own.
	Reason string
	// Message says in words what happened, for people.
	Message string
	// Retryable is false when another attempt cannot end otherwise (a program
	// that does not exist, an invalid spec).
	Retryable bool
	// Disrupted says of a failure that it is not the work's doing: what the attempt ran on
	// was lost, or taken away. If somebody has asked for the execution to be cancelled
	// meanwhile, that is what it ends with.
	Disrupted bool
	// RetryAfter is for Abandoned alone: how long to wait before the work is offered
	// again, because the other side has no room for it just now. That is no failure and
	// costs no attempt of the retry policy; Reason and Message say what it waits for. When
	// that comes to the same several times in a row, the wait is doubled each time.
	RetryAfter time.Duration
	// Value is what a function returned, as JSON; nil for a process.
	Value json.RawMessage
	// ValueRef stands for a Value that is kept elsewhere (package internal/results).
	// Executors leave it to the worker.
	ValueRef       *ValueReference
	Stdout, Stderr StreamSummary
}

// Settler is an Executor that keeps what an attempt has left, so that another worker can
// still read its end, until that end is recorded.
type Settler interface {
	Executor
	// Settle is called once the Result of a task has been recorded, unless it was
	// Abandoned. It is not called for results that came too late, nor by a worker that
	// dies in between: the executor has to find by itself what nobody wants any more.
	Settle(ctx context.Context, task Task)
}

// Capacity is the room of an other side. A negative number is without a bound, or not
// known.
type Capacity struct {
	Slots       int
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int
}

// Surveyor is an Executor whose room is not its worker's, but that of where its attempts
// run.
type Surveyor interface {
	Executor
	// Pool names the other side: workers with the same pool share its room, which counts
	// once.
	Pool() string
	// Capacity returns all the room for a resource class, used or not, and false as long
	// as it is not known.
	Capacity(class string) (Capacity, bool)
	// Surveyed is signalled when a Capacity has changed.
	Surveyed() <-chan struct{}
}

// Executor runs attempts. An implementation is safe for concurrent use.
type Executor interface {
	// Name is the value of the request's "executor" field that selects it.
	Name() string
	// Run runs one attempt to its end. The error is for faults of the executor
	// itself (no file descriptors left); the worker reports it as a retryable
	// failure with the reason "executor_error".
	Run(ctx context.Context, task Task, lease Lease, sink Sink) (Result, error)
}
