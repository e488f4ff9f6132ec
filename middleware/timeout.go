package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// limitTime gives each attempt a context of its own that ends after
// cfg.Timeout. It does not abandon a handler that ignores its context: two
// attempts at the same record never run at the same time.
func limitTime(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		if cfg.Timeout <= 0 {
			return next
		}
		return func(msg *message.Message) ([]*message.Message, error) {
			outer := msg.Context()
			ctx, cancel := context.WithTimeout(outer, cfg.Timeout)
			defer cancel()
			msg.SetContext(ctx)
			// Put back what was there: the next attempt must not start with a context
			// that has ended.
			defer msg.SetContext(outer)
			return next(msg)
		}
	}
}
