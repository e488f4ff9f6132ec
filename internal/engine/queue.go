package engine

import (
	"context"
	"sync"
	"time"
)

// maxUnitBytes bounds what the requests of one transaction bring with them, unless it is
// only one.
const maxUnitBytes = 8 << 20

// patience is for how long requests wait for the transaction under way before they get
// one of their own. It is about what a transaction takes on a quick disk: waiting for it
// costs no more than the commit that is saved. One that takes longer waits for a disk or for
// a lock, and would only hold up what has nothing to do with it.
const patience = 3 * time.Millisecond

// queue keeps requests until a transaction takes them, first come first served. See the
// package documentation.
type queue struct {
	// execute runs requests in a transaction and answers them.
	execute func(batch []*request)
	// full counts the requests for which there was no room.
	full func()
	// room is how many may wait, size how many a transaction takes, most how many
	// transactions may be under way.
	room, size, most int

	mu      sync.Mutex
	state   queueState
	waiting []*request
	running int
	// began is when the youngest transaction began.
	began time.Time
	// ring calls launch when patience is over.
	ring *time.Timer
	// ended is closed once the queue is closed and the last transaction has ended.
	ended chan struct{}
}

type queueState int8

const (
	filling queueState = iota // requests are kept, and none is run
	serving
	closed
)

// add hands requests over. Those that find no room have their answer at once.
func (q *queue) add(requests ...*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range requests {
		switch {
		case q.state == closed:
			r.reply(ErrStopped)
		case len(q.waiting) >= q.room && !q.forget():
			q.full()
			r.reply(ErrOverloaded)
		default:
			q.waiting = append(q.waiting, r)
		}
	}
	q.launch()
}

// forget drops the requests whose callers have left, and says whether there is room now.
func (q *queue) forget() bool {
	kept := q.waiting[:0]
	for _, r := range q.waiting {
		if r.seat.Load() != left {
			kept = append(kept, r)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
	return len(kept) < q.room
}

// length is how many requests wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// launch begins transactions for what waits: one when none is under way, and another when
// there is enough for one or the youngest takes its time. mu is held.
func (q *queue) launch() {
	for q.state == serving && len(q.waiting) > 0 && q.running < q.most {
		since := time.Since(q.began)
		if q.running > 0 && len(q.waiting) < q.size && since < patience {
			q.ring.Reset(patience - since)
			return
		}
		batch := q.cut()
		if len(batch) == 0 {
			continue
		}
		q.running++
		q.began = time.Now()
		go q.run(batch)
	}
}

// cut takes the requests of one transaction. mu is held.
func (q *queue) cut() []*request {
	batch := make([]*request, 0, min(len(q.waiting), q.size))
	bytes, n := 0, 0
	for _, r := range q.waiting {
		if len(batch) == q.size || len(batch) > 0 && bytes+r.weight > maxUnitBytes {
			break
		}
		n++
		if r.take() {
			batch, bytes = append(batch, r), bytes+r.weight
		}
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return batch
}

func (q *queue) run(batch []*request) {
	q.execute(batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if q.state == closed && q.running == 0 {
		close(q.ended)
	}
	q.launch()
}

// serve has transactions run until ctx ends. What was taken by then has its answer when it
// returns; what waits is refused.
func (q *queue) serve(ctx context.Context) {
	q.mu.Lock()
	q.state = serving
	q.ring = time.AfterFunc(time.Hour, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.launch()
	})
	q.launch()
	q.mu.Unlock()

	<-ctx.Done()
	q.mu.Lock()
	q.state = closed
	q.ring.Stop()
	for _, r := range q.waiting {
		if r.take() {
			r.reply(ErrStopped)
		}
	}
	q.waiting = nil
	if q.running == 0 {
		close(q.ended)
	}
	q.mu.Unlock()
	<-q.ended
}

// ask has one request done and returns its outcome.
func (e *Engine) ask(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.from(ctx)
	e.queue.add(r)
	return r.await(ctx)
}

// askAll has requests done, in one transaction if they fit, and returns their outcomes in
// their order.
func (e *Engine) askAll(ctx context.Context, requests []*request) []error {
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
	e.queue.add(requests...)
	for i, r := range requests {
		errs[i] = r.await(ctx)
	}
	return errs
}
