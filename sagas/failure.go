package sagas

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/millrace/millrace/topics"
)

// Failure is an error that says more of why a step was not taken. What a step did with
// its Tx before it failed is undone.
type Failure struct {
	// Code is a stable word in snake_case by which retry policies choose: "failed" where
	// nothing better is said.
	Code    string
	Message string
	// Retryable says that another attempt may succeed.
	Retryable bool
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Fail is the failure of a step that cannot succeed, whatever its Retry says: the saga is
// given up at once. Any other error of a step is worth the attempts that its Retry allows.
func Fail(code, format string, args ...any) error {
	return &Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Codes of failures that the participant finds itself.
const (
	CodeFailed = "failed"
	CodePanic  = "panic"
	// CodeLate: the command came after its deadline. CodeCompensated: after its
	// compensation.
	CodeLate        = "late"
	CodeCompensated = "compensated"
	// CodeBadPayload: the payload is not what the step takes.
	CodeBadPayload = "bad_payload"
	CodeTimeout    = "timeout"
)

var codeForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// maxFailureMessage bounds what is told of an error, in bytes.
const maxFailureMessage = 2000

// failureOf is what a reply says of an error of a step.
func failureOf(err error) *topics.Failure {
	out := &topics.Failure{Reason: CodeFailed, Message: err.Error(), Retryable: true}
	if f, ok := errors.AsType[*Failure](err); ok {
		out.Message, out.Retryable = f.Message, f.Retryable
		if codeForm.MatchString(f.Code) {
			out.Reason = f.Code
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		out.Reason = CodeTimeout
	}
	if len(out.Message) > maxFailureMessage {
		out.Message = out.Message[:maxFailureMessage]
	}
	return out
}
