// Package executor is the contract between the worker and whatever runs an
// attempt of an execution: a process, a Go function, later a pod.
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
// For "kubernetes" the other side is the cluster: the name of a pod, its
// activeDeadlineSeconds or an annotation that a watchdog in the pod obeys, and owner
// references. For "job" it is PostgreSQL: a row by execution and attempt, with a
// deadline that the claims of external workers are checked against.
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
	// Spec is the executor's own part of the request.
	Spec json.RawMessage
	// Tenant, User and Priority (1 to 5, 5 the most urgent; 0: not told) are those of the
	// request, for executors that hand the work on.
	Tenant, User string
	Priority     int
	// MaxOutputBytes is how much of each stream is kept; what goes beyond is
	// counted and dropped.
	MaxOutputBytes int64
	// Checkpoint is what the last attempt that kept one has left, nil if none did.
	Checkpoint []byte
	// Reporter takes progress and checkpoints; nil if nobody wants to know.
	Reporter Reporter
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
	// Value is what a function returned, as JSON; nil for a process.
	Value json.RawMessage
	// ValueRef stands for a Value that is kept elsewhere (package internal/results).
	// Executors leave it to the worker.
	ValueRef       *ValueReference
	Stdout, Stderr StreamSummary
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
