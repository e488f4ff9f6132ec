package executor

import "errors"

// Permanent marks an error that another attempt would only repeat: the Result
// made of it is not retryable. Permanent(nil) is nil. The text of the error does
// not change.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// IsPermanent says whether err, or an error that it wraps, was marked by
// Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
