package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors, to be found with errors.Is.
var (
	// ErrNotFound: there is no such job, instance, definition or task.
	ErrNotFound = errors.New("not found")
	// ErrConflict: it is not in a state for this. For a job: its lease is somebody
	// else's by now, or it has ended, or its instance was cancelled.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request can never be right.
	ErrInvalid = errors.New("invalid request")
	// ErrDenied: the engine wants another token, or none.
	ErrDenied = errors.New("denied")
	// ErrPollingDisabled: the engine dispatches jobs over Kafka; use the package kafka.
	ErrPollingDisabled = errors.New("polling is disabled: the engine dispatches jobs over Kafka")
	// ErrUnsupported: the engine does not know this call.
	ErrUnsupported = errors.New("the engine does not support this")
	// ErrUnavailable: no answer, or the engine says that it cannot at the moment.
	ErrUnavailable = errors.New("the engine is unavailable")
)

// Error is what an engine answered to a call, or why there was no answer.
type Error struct {
	// Op is what was being done: "complete job".
	Op string
	// Kind is one of the errors of this package.
	Kind error
	// Code is the engine's word for it, "lease_lost" for example; may be empty.
	Code string
	// Message is the engine's explanation.
	Message string
	// RetryAfter is when the engine asks to be called again; 0: it does not say.
	RetryAfter time.Duration
	// Cause is the error of the network, if that is what it was.
	Cause error
}

// Error says what was being done and what came of it.
func (e *Error) Error() string {
	text := e.Message
	if text == "" && e.Cause != nil {
		text = e.Cause.Error()
	}
	switch {
	case text == "":
		return fmt.Sprintf("%s: %v", e.Op, e.Kind)
	case e.Kind == nil:
		return e.Op + ": " + text
	default:
		return fmt.Sprintf("%s: %v: %s", e.Op, e.Kind, text)
	}
}

// Unwrap gives the kind and the cause to errors.Is.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Kind != nil {
		all = append(all, e.Kind)
	}
	if e.Cause != nil {
		all = append(all, e.Cause)
	}
	return all
}

// Retryable says whether repeating the call may help: the engine was out of reach or
// busy, or failed in a way that it does not explain. What it understood and refused stays
// refused, and what the caller has called off itself is not repeated.
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, ErrUnavailable):
		return true
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict), errors.Is(err, ErrInvalid),
		errors.Is(err, ErrDenied), errors.Is(err, ErrPollingDisabled), errors.Is(err, ErrUnsupported):
		return false
	default:
		return true
	}
}

// maxFaults bounds how many an error's text has.
const maxFaults = 10

// withFaults adds what is wrong with a request to what is said of it, unless it says so
// already.
func withFaults(message string, faults []string) string {
	for i, fault := range faults {
		if i == maxFaults {
			return message + fmt.Sprintf("; and %d more", len(faults)-i)
		}
		if !strings.Contains(message, fault) {
			message += "; " + fault
		}
	}
	return message
}

// fanOut gives one error for each of n items.
func fanOut(err error, n int) []error {
	all := make([]error, n)
	for i := range all {
		all[i] = err
	}
	return all
}
