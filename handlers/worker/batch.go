package worker

import (
	"context"
	"time"
)

// lingerFor is how long a batcher waits for more calls at the most, and how recent
// its last run must be for it to wait at all.
const lingerFor = 2 * time.Millisecond

// batcher turns calls that arrive while another is under way into one: it hands
// everything that has gathered to run at once. A lone call is never delayed, and
// under load the cost of a transaction is shared.
type batcher[In, Out any] struct {
	calls chan call[In, Out]
	max   int
	run   func(ctx context.Context, in []In) ([]Out, error)
	// enough reports whether it is no use to wait for more than n calls; nil: never
	// wait. ran is when the last run ended.
	enough func(n int) bool
	ran    time.Time
	// now and after are the clock.
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

type call[In, Out any] struct {
	in    In
	reply chan reply[Out]
}

type reply[Out any] struct {
	out Out
	err error
}

// newBatcher makes a batcher. run returns one answer for each input, in order,
// or an error for all of them.
func newBatcher[In, Out any](limit int, run func(context.Context, []In) ([]Out, error)) *batcher[In, Out] {
	return &batcher[In, Out]{calls: make(chan call[In, Out], limit), max: limit, run: run, now: time.Now, after: time.After}
}

// linger has the batcher wait a little for further calls when it has just run and
// those at hand are not enough. Without that, calls which once came apart stay apart:
// each run frees just those who make up the next one.
func (b *batcher[In, Out]) linger(enough func(n int) bool) *batcher[In, Out] {
	b.enough = enough
	return b
}

// do waits for the answer to one input.
func (b *batcher[In, Out]) do(ctx context.Context, in In) (Out, error) {
	c := call[In, Out]{in: in, reply: make(chan reply[Out], 1)}
	var none Out
	select {
	case b.calls <- c:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case r := <-c.reply:
		return r.out, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// loop serves calls until ctx ends.
func (b *batcher[In, Out]) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-b.calls:
			b.serve(ctx, b.gather(c))
		}
	}
}

// gather adds what is waiting already to the first call, and under load what comes
// soon.
func (b *batcher[In, Out]) gather(first call[In, Out]) []call[In, Out] {
	batch := []call[In, Out]{first}
	var over <-chan time.Time
	for len(batch) < b.max {
		select {
		case c := <-b.calls:
			batch = append(batch, c)
			continue
		default:
		}
		if b.enough == nil || over == nil && b.now().Sub(b.ran) > lingerFor || b.enough(len(batch)) {
			return batch
		}
		if over == nil {
			over = b.after(lingerFor)
		}
		select {
		case c := <-b.calls:
			batch = append(batch, c)
		case <-over:
			return batch
		}
	}
	return batch
}

func (b *batcher[In, Out]) serve(ctx context.Context, batch []call[In, Out]) {
	in := make([]In, len(batch))
	for i, c := range batch {
		in[i] = c.in
	}
	out, err := b.run(ctx, in)
	b.ran = b.now()
	for i, c := range batch {
		r := reply[Out]{err: err}
		if err == nil {
			r.out = out[i]
		}
		c.reply <- r
	}
}
