package middleware

import (
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/secret"
)

// PanicError is a handler's panic as an error: a handler fault. The stack goes to
// the log and to the letter's row; the text ends up in headers and must stay short.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is that of the goroutine, as text.
	Stack string
}

// Error names the panic's value.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns the value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func recoverPanic(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (out []*message.Message, err error) {
			defer func() {
				value := recover()
				if value == nil {
					return
				}
				stack := string(debug.Stack())
				out, err = nil, wrap(&PanicError{Value: value, Stack: stack}, fault{class: HandlerFault, after: -1})
				d := flightOf(msg).Delivery
				cfg.Log.ErrorContext(msg.Context(), "handler panicked",
					"consumer", cfg.Consumer, "topic", d.Topic, "partition", d.Partition,
					"offset", d.First().Offset, "panic", secret.Redact(fmt.Sprint(value)), "stack", stack)
			}()
			return next(msg)
		}
	}
}
