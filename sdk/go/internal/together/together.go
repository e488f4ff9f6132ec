// Package together puts items that are ready at the same time into one call. Nothing is
// held back: an item that comes while no call is under way goes alone and at once, and
// those that come meanwhile make the next calls.
package together

import (
	"context"
	"sync"
)

// maxCalls is how many calls are under way at once. More would make for smaller batches.
const maxCalls = 4

// Caller puts items into calls.
type Caller[In, Out any] struct {
	// Max is how many items a call has at most.
	Max int
	// Call answers each of the items, in their order.
	Call func(ctx context.Context, items []In) []Out

	mu    sync.Mutex
	queue []waiting[In, Out]
	calls int
}

type waiting[In, Out any] struct {
	item   In
	answer chan Out
}

// Do returns what the call with the item answers for it, or the error of ctx when that
// ends before; the call goes on then. Calls get the values of ctx, but not its end.
func (c *Caller[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	w := waiting[In, Out]{item, make(chan Out, 1)}
	c.mu.Lock()
	c.queue = append(c.queue, w)
	if c.calls < maxCalls {
		c.calls++
		go c.flush(context.WithoutCancel(ctx))
	}
	c.mu.Unlock()
	select {
	case out := <-w.answer:
		return out, nil
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
}

// flush makes calls until nothing waits.
func (c *Caller[In, Out]) flush(ctx context.Context) {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.calls--
			c.mu.Unlock()
			return
		}
		n := min(len(c.queue), c.Max)
		batch := c.queue[:n:n]
		c.queue = append([]waiting[In, Out](nil), c.queue[n:]...)
		c.mu.Unlock()

		items := make([]In, n)
		for i, w := range batch {
			items[i] = w.item
		}
		for i, out := range c.Call(ctx, items) {
			batch[i].answer <- out
		}
	}
}
