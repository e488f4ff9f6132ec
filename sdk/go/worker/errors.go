package worker

import (
	"errors"
	"fmt"
	"time"
)

// ErrLeaseLost is the cause (context.Cause) of a handler's cancelled context when the job
// is not this worker's any more: another one has it, or the instance was cancelled, timed
// out or took another way.
var ErrLeaseLost = errors.New("the lease of the job is lost")

// ErrStopping is the cause of a handler's cancelled context when the worker stops and the
// time for draining is over.
var ErrStopping = errors.New("the worker stops")

// NonRetryable wraps an error after which no further attempt would help.
type NonRetryable struct {
	Cause error
}

// Error is the text of the cause.
func (e *NonRetryable) Error() string {
	if e.Cause == nil {
		return "non-retryable"
	}
	return e.Cause.Error()
}

// Unwrap returns the cause.
func (e *NonRetryable) Unwrap() error { return e.Cause }

// IsNonRetryable says whether err is or wraps a NonRetryable.
func IsNonRetryable(err error) bool {
	var e *NonRetryable
	return errors.As(err, &e)
}

// delayed is an error with the time of the next attempt.
type delayed struct {
	after time.Duration
	cause error
}

func (e *delayed) Error() string { return e.cause.Error() }
func (e *delayed) Unwrap() error { return e.cause }

// RetryAfter gives an error the time after which to try again, in place of the backoff that
// the definition has; whether there is another attempt is the definition's to say. At most
// client.MaxRetryAfter; engines that do not know it go by their own.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		err = fmt.Errorf("to be tried again after %s", after)
	}
	return &delayed{after: after, cause: err}
}

// retryAfter is that of an error that RetryAfter made, or wrapped; 0 without one.
func retryAfter(err error) time.Duration {
	var e *delayed
	if errors.As(err, &e) {
		return max(e.after, 0)
	}
	return 0
}

// failure is an error with a code.
type failure struct {
	code  string
	cause error
}

func (e *failure) Error() string { return e.cause.Error() }
func (e *failure) Unwrap() error { return e.cause }

// Fail gives an error a code, a word in snake_case, by which the retry policy and the
// error boundaries of the step can tell it from others.
func Fail(code string, err error) error {
	if err == nil {
		err = errors.New(code)
	}
	return &failure{code: code, cause: err}
}

// Code is the code of an error that Fail made, or wrapped; empty without one.
func Code(err error) string {
	var e *failure
	if errors.As(err, &e) {
		return e.code
	}
	return ""
}

// PanicError is the failure that a panic of a handler becomes.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is what the handler panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panic: %v", e.Value) }

// The codes of failures that the SDK itself reports.
const (
	codePanic         = "panic"
	codeNoHandler     = "no_handler"
	codeBadVariables  = "bad_variables"
	codeUnencodable   = "unencodable_result"
	codeResultTooLong = "result_refused"
)
