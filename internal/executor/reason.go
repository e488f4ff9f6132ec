package executor

import (
	"errors"
	"regexp"
)

// WithReason gives an error a reason of its own: the Result made of it carries it
// instead of a general one such as "function_error", so that a request can say by
// that reason whether it is retried (topics.Retry). A reason is a stable code in
// snake_case of at most 64 letters; any other is left out. WithReason(r, nil) is
// nil. The text of the error does not change.
func WithReason(reason string, err error) error {
	if err == nil || !reasonForm.MatchString(reason) {
		return err
	}
	return &reasonError{reason: reason, err: err}
}

// ReasonOf returns the reason that WithReason gave err, or an error that it wraps;
// the outermost counts. Without one it is empty.
func ReasonOf(err error) string {
	if r, ok := errors.AsType[*reasonError](err); ok {
		return r.reason
	}
	return ""
}

var reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }
