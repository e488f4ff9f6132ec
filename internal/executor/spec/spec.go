// Package spec defines what a request may ask of an executor: the JSON object in
// the "spec" field of an execution, one shape for each executor.
//
// It is pure: no I/O and nothing that can run anything, so the front doors check
// a request with the very code that the worker reads it with. A spec that passed
// here is never refused later for its shape; it may still fail to start.
//
// Checking is strict. Unknown and repeated members, null where a value is meant,
// and text that is not UTF-8 are errors, and all faults of a spec are reported
// at once, each with the JSON pointer of the place.
package spec

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The names of the executors whose specs this package knows; the values of a
// request's "executor" field.
const (
	ExecutorProcess    = "process"
	ExecutorFunction   = "function"
	ExecutorWorkflow   = "workflow"
	ExecutorKubernetes = "kubernetes"
)

// Executors returns those names.
func Executors() []string {
	return []string{ExecutorProcess, ExecutorKubernetes, ExecutorFunction, ExecutorWorkflow}
}

// The codes of a FieldError.
const (
	CodeMalformed  = "malformed"     // not JSON, or text that is not UTF-8
	CodeWrongType  = "wrong_type"    // another JSON type than asked for
	CodeRequired   = "required"      // a member that must be there is missing or empty
	CodeUnknown    = "unknown_field" // a member that does not exist
	CodeDuplicate  = "duplicate"     // a member that appears twice
	CodeOutOfRange = "out_of_range"  // a number or a count outside of its bounds
	CodeTooLong    = "too_long"      // more bytes than allowed
	CodeInvalid    = "invalid"       // the right type with a value that cannot be used
	CodeReserved   = "reserved"      // a name that belongs to Millrace
	CodeConflict   = "conflict"      // two members that exclude each other
)

// FieldError is one fault of a spec.
type FieldError struct {
	// Pointer is the JSON pointer (RFC 6901) of the fault inside the spec; empty
	// for the spec as a whole.
	Pointer string
	// Code is one of the Code constants.
	Code string
	// Message says in words what is wrong, without repeating the pointer.
	Message string
}

// Error returns the pointer and the message.
func (e FieldError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

// UnknownExecutorError is the answer of Parse for an executor that this package
// has no spec for.
type UnknownExecutorError struct{ Name string }

// Error names the executor.
func (e UnknownExecutorError) Error() string { return fmt.Sprintf("unknown executor %q", e.Name) }

// Parse checks a spec for the executor of that name. The error is an
// UnknownExecutorError, or one or more FieldErrors joined; FieldErrors takes
// them apart.
func Parse(executor string, raw json.RawMessage) error {
	var err error
	switch executor {
	case ExecutorProcess:
		_, err = ParseProcess(raw)
	case ExecutorFunction:
		_, err = ParseFunction(raw)
	case ExecutorWorkflow:
		_, err = ParseWorkflow(raw)
	case ExecutorKubernetes:
		_, err = ParseKubernetes(raw)
	default:
		err = UnknownExecutorError{Name: executor}
	}
	return err
}

// FieldErrors returns the FieldErrors in err, in the order of their finding, however
// they were joined or wrapped.
func FieldErrors(err error) []FieldError {
	switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As would do, for all matches instead of the first
	case nil:
		return nil
	case FieldError:
		return []FieldError{e}
	case interface{ Unwrap() []error }:
		var all []FieldError
		for _, inner := range e.Unwrap() {
			all = append(all, FieldErrors(inner)...)
		}
		return all
	default:
		return FieldErrors(errors.Unwrap(err))
	}
}
