package executor

import (
	"context"
	"errors"
)

// Stopped is the Result of an attempt that was ended from outside, by the cause
// that the context of Run carried. Every executor answers with it, so that one
// cause has one outcome, one reason and one wording.
//
// A cause that is none of the four of this package (a context that was simply
// cancelled) counts as a shutdown: the attempt is handed back, and nothing is
// claimed about it.
func Stopped(cause error) Result {
	switch {
	case errors.Is(cause, ErrLeaseLost):
		return Result{Outcome: Abandoned, Reason: "lease_lost", Message: "the lease ended before the attempt did", Retryable: true}
	case errors.Is(cause, ErrRunLimit), errors.Is(cause, context.DeadlineExceeded):
		return Result{Outcome: TimedOut, Reason: "run_limit", Message: "the run time limit was reached", Retryable: true}
	case errors.Is(cause, ErrCancelled):
		return Result{Outcome: Cancelled, Reason: "cancelled", Message: "the execution was cancelled"}
	default:
		return Result{Outcome: Abandoned, Reason: "shutdown", Message: "the worker stopped and handed the attempt back", Retryable: true}
	}
}

// InvalidSpec is the Result of an attempt whose spec does not parse. No attempt
// can end otherwise, so it is not retried.
func InvalidSpec(err error) Result {
	return Result{Outcome: Failed, Reason: "invalid_spec", Message: "the spec is invalid: " + err.Error()}
}
