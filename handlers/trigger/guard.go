package trigger

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
)

// PanicError is a panic that was caught.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guard calls fn and returns its panic as a *PanicError: a fault in what runs one trigger
// is not to end the others.
func Guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// causeOf says in words why a member stopped.
func causeOf(err error) trigger.Cause {
	if failed, ok := errors.AsType[*FailedError](err); ok {
		return failed.Cause
	}
	if blocked, ok := errors.AsType[*ingest.BlockedError](err); ok {
		return blocked.Cause
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return trigger.Cause{
			Code: "panic", Message: panicked.Error(),
			Hint: "this is a fault of Millrace: the log has the stack; it is tried again, and other triggers go on",
		}
	}
	return trigger.Cause{Code: "source_failed", Message: err.Error(), Hint: "it is tried again"}
}
