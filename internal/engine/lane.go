package engine

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"
)

// maxUnitBytes bounds what the requests of one transaction bring with them, unless it is
// only one.
const maxUnitBytes = 8 << 20

// lane runs requests, those that wait together in one transaction. See the package
// documentation.
type lane struct {
	engine *Engine
	queue  chan *request
	// spare is a request that was taken and had no room.
	spare *request
	// busy is true while a transaction is under way.
	busy atomic.Bool
}

// run takes requests until ctx ends. What it has taken by then gets its answer; what
// waits is refused.
func (l *lane) run(ctx context.Context) {
	for {
		batch := l.next(ctx)
		if batch == nil {
			l.refuse()
			return
		}
		l.busy.Store(true)
		// The transaction outlives ctx: it has limits of its own.
		l.engine.execute(context.WithoutCancel(ctx), batch)
		l.busy.Store(false)
	}
}

// next waits for a request and returns it with all others that wait, as many as fit.
func (l *lane) next(ctx context.Context) []*request {
	first := l.spare
	l.spare = nil
	for first == nil {
		select {
		case <-ctx.Done():
			return nil
		case r := <-l.queue:
			if r.take() {
				first = r
			}
		}
	}
	batch, bytes := []*request{first}, first.weight
	for len(batch) < l.engine.config.LaneSize {
		select {
		case r := <-l.queue:
			switch {
			case !r.take():
			case bytes+r.weight > maxUnitBytes:
				l.spare = r
				return batch
			default:
				batch, bytes = append(batch, r), bytes+r.weight
			}
		default:
			return batch
		}
	}
	return batch
}

// refuse answers what waits. Nobody adds to the queue any more.
func (l *lane) refuse() {
	if l.spare != nil {
		l.spare.reply(ErrStopped)
		l.spare = nil
	}
	for {
		select {
		case r := <-l.queue:
			if r.take() {
				r.reply(ErrStopped)
			}
		default:
			return
		}
	}
}

// enqueue hands requests to a lane. Those that find no room have their answer at once.
func (e *Engine) enqueue(l *lane, requests ...*request) {
	e.gate.RLock()
	defer e.gate.RUnlock()
	for _, r := range requests {
		if !e.open {
			r.reply(ErrStopped)
			continue
		}
		select {
		case l.queue <- r:
		default:
			e.metrics.refused.Inc()
			r.reply(ErrOverloaded)
		}
	}
}

// laneOf returns the lane of an instance and its jobs, whose ids begin alike: requests of
// one instance meet in one transaction instead of waiting for each other's locks.
func (e *Engine) laneOf(id uuid.UUID) *lane {
	// The first bytes of an id are the time; what tells instances of one millisecond
	// apart is mixed in.
	h := binary.BigEndian.Uint64(id[:8]) * 0x9e3779b97f4a7c15
	return e.lanes[(h>>32)%uint64(len(e.lanes))]
}

// anyLane returns a lane that has nothing to do, or the one with the least.
func (e *Engine) anyLane() *lane {
	best, least := e.lanes[0], int(^uint(0)>>1)
	from := int(e.turn.Add(1))
	for i := range e.lanes {
		l := e.lanes[(from+i)%len(e.lanes)]
		n := len(l.queue)
		if n == 0 && !l.busy.Load() {
			return l
		}
		if n < least {
			best, least = l, n
		}
	}
	return best
}

// ask has one request done and returns its outcome.
func (e *Engine) ask(ctx context.Context, l *lane, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.from(ctx)
	e.enqueue(l, r)
	return r.await(ctx)
}

// askAll has requests done, in one transaction if they fit, and returns their outcomes in
// their order.
func (e *Engine) askAll(ctx context.Context, l *lane, requests []*request) []error {
	errs := make([]error, len(requests))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	for _, r := range requests {
		r.from(ctx)
	}
	e.enqueue(l, requests...)
	for i, r := range requests {
		errs[i] = r.await(ctx)
	}
	return errs
}
