package middleware

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// fence lets nothing through once the message's context has ended, which is how
// the transport says that the partition is lost or that draining took too long.
// Before the handler it saves work; after it, it keeps a former owner from
// acking an offset that the new owner is working on. The effect of an
// OnTx consumer does not depend on it: its transaction checks the epoch itself.
func fence(Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			if ctx.Err() != nil {
				return nil, fencedError(ctx)
			}
			out, err := next(msg)
			if err == nil && ctx.Err() != nil {
				return nil, fencedError(ctx)
			}
			return out, err
		}
	}
}

func fencedError(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrFenced, context.Cause(ctx))
}
