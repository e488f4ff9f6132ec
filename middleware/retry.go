package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/secret"
)

// retry attempts again what may succeed next time, and waits in between. The
// wait holds the partition, which is what keeps its order, and ends with the
// message's context.
//
//   - A handler fault is attempted up to MaxAttempts times. Of a batch, only the
//     last record standing is: before that, bisecting is the better next attempt.
//   - A transaction that lost against a concurrent one is attempted again in
//     place, since the transport's pause of a second or more would be out of
//     proportion.
//   - Message faults cannot change; other infrastructure faults are the
//     transport's, which pauses the partition and shows it.
func retry(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx, flight := msg.Context(), flightOf(msg)
			for flight.Attempt = 1; ; flight.Attempt++ {
				out, err := next(msg)
				if err == nil {
					return out, nil
				}
				now := cfg.Now()
				if flight.FirstFailure.IsZero() {
					flight.FirstFailure = now
				}
				flight.noteFailure(now, err)
				wait, again := nextWait(ctx, cfg, flight, err)
				if !again {
					return nil, err
				}
				cfg.Log.DebugContext(ctx, "attempt failed", "consumer", cfg.Consumer, "topic", flight.Delivery.Topic,
					"partition", flight.Delivery.Partition, "offset", flight.Items[0].Record.Offset,
					"attempt", flight.Attempt, "next_in", wait, "error", secret.Redact(err.Error()))
				if !cfg.Sleep(ctx, wait) {
					return nil, errors.Join(err, context.Cause(ctx))
				}
			}
		}
	}
}

// nextWait decides whether and when the flight is attempted again.
func nextWait(ctx context.Context, cfg Config, f *Flight, err error) (time.Duration, bool) {
	if f.Attempt >= cfg.MaxAttempts {
		return 0, false
	}
	class := cfg.Classifier.Classify(ctx, err)
	backoff := cfg.Backoff.Wait(f.Attempt, cfg.Rand())
	if class == InfrastructureFault {
		return backoff, isConflict(err)
	}
	if class != HandlerFault {
		return 0, false
	}
	mark, marked := errors.AsType[*fault](err)
	if marked && mark.final {
		return 0, false
	}
	if marked && mark.after >= 0 {
		return mark.after, true
	}
	return backoff, f.Live() == 1
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
