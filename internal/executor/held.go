package executor

import (
	"context"
	"time"
)

// Held returns a context that ends with the lease, ErrLeaseLost being the cause, or when
// the function is called, which waits until nothing of it is left.
func Held(lease Lease) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			moved := lease.Extended()
			timer := time.NewTimer(time.Until(lease.Deadline()))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-moved:
				timer.Stop()
			case <-timer.C:
				if time.Until(lease.Deadline()) <= 0 {
					cancel(ErrLeaseLost)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}
