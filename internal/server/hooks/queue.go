package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// maxGathered is how many messages share a transaction. A request with more of them has one
// for itself.
const maxGathered = 100

// limitName is that of the buckets of webhooks. A declared limit cannot have it.
const limitName = "trigger:webhook"

// hook is what is kept of one hook from one request to the next.
type hook struct {
	all *Hooks
	uid string

	// inFlight counts bytes of bodies.
	inFlight atomic.Int64

	planMu  sync.Mutex
	current *plan
	known   *keys
	readAt  time.Time
	// complainedAt is when the log was told last that they cannot be read.
	complainedAt time.Time

	mu      sync.Mutex
	waiting []*submission
	running bool
	// empty says that there was no token when somebody asked for one.
	empty empty
}

// submission is a request that waits for its transaction.
type submission struct {
	ctx      context.Context
	trigger  *trigger.Compiled
	messages []ingest.Message
	done     chan struct{}
	settled
}

// settled is what became of a submission.
type settled struct {
	// outcomes are those of its messages, or of those before the one that err is about.
	outcomes []ingest.Outcome
	err      error
	// wait is set where the rate let nothing through.
	wait time.Duration
}

// empty is a bucket without a token, by the rate of a revision of the trigger.
type empty struct {
	revision       int64
	askedAt, until time.Time
}

// askAgain is how long it is believed that a bucket is empty: somebody may fill it.
const askAgain = 5 * time.Second

// wait returns how long there will be no token, as far as is known.
func (e empty) wait(revision int64) time.Duration {
	if e.revision != revision || time.Since(e.askedAt) > askAgain {
		return 0
	}
	return time.Until(e.until)
}

// errTooMuch: the bodies of a hook are more than may be in memory.
var errTooMuch = errors.New("too much is in flight")

// meter counts the body of a request while it is read.
type meter struct {
	hook *hook
	from io.ReadCloser
	held int64
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.held += int64(n)
	all := m.hook.inFlight.Add(int64(n))
	if all > m.hook.all.config.MaxInFlightBytes && all != m.held {
		return n, errTooMuch
	}
	return n, err
}

// Close implements io.Closer.
func (m *meter) Close() error { return m.from.Close() }

// release gives back what was counted.
func (m *meter) release() { m.hook.inFlight.Add(-m.held) }

// submit has messages made in the next transaction, and waits for that. A caller whose ctx
// ends leaves; what a transaction has taken by then is made all the same.
func (h *hook) submit(ctx context.Context, t *trigger.Compiled, messages []ingest.Message) settled {
	s := &submission{ctx: ctx, trigger: t, messages: messages, done: make(chan struct{})}
	if at := h.enqueue(s); at != nil {
		return *at
	}
	select {
	case <-s.done:
		return s.settled
	case <-ctx.Done():
		return settled{err: ctx.Err()}
	}
}

// enqueue lets a submission wait, or says why it cannot.
func (h *hook) enqueue(s *submission) *settled {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait := h.empty.wait(s.trigger.Revision); wait > 0 {
		return &settled{wait: wait}
	}
	if len(h.waiting) >= h.all.config.MaxWaiting {
		return &settled{err: overloaded()}
	}
	if !h.running {
		if !h.all.begin() {
			return &settled{err: problem.ShuttingDown().With("")}
		}
		h.running = true
		go h.drain()
	}
	h.waiting = append(h.waiting, s)
	return nil
}

// begin counts a goroutine that Close has to wait for.
func (h *Hooks) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.drains.Add(1)
	}
	return !h.closed
}

// drain runs transactions until nobody waits.
func (h *hook) drain() {
	defer h.all.drains.Done()
	for {
		batch := h.next()
		if len(batch) == 0 {
			return
		}
		h.run(batch)
	}
}

// next takes what the next transaction does: submissions to one revision of the trigger. When
// there are none the queue rests.
func (h *hook) next() []*submission {
	h.mu.Lock()
	defer h.mu.Unlock()
	var batch []*submission
	messages := 0
	for len(h.waiting) > 0 {
		s := h.waiting[0]
		gone := s.ctx.Err() != nil
		if !gone && len(batch) > 0 && (messages+len(s.messages) > maxGathered || s.trigger != batch[0].trigger) {
			break
		}
		h.waiting[0] = nil
		h.waiting = h.waiting[1:]
		if !gone {
			batch, messages = append(batch, s), messages+len(s.messages)
		}
	}
	if len(batch) == 0 {
		h.running, h.waiting = false, nil
	}
	return batch
}

// run settles every submission of a batch.
func (h *hook) run(batch []*submission) {
	ctx, cancel := context.WithTimeout(h.all.base, h.all.config.CreateTimeout)
	defer cancel()
	taken, wait, err := h.spend(ctx, batch[0].trigger, len(batch))
	for _, s := range batch[taken:] {
		s.settled = settled{wait: wait, err: err}
		close(s.done)
	}
	batch = batch[:taken]
	h.all.metrics.batch.Observe(float64(len(batch)))
	for len(batch) > 0 {
		var messages []ingest.Message
		for _, s := range batch {
			messages = append(messages, s.messages...)
		}
		outcomes, err := h.create(ctx, batch[0].trigger, messages)
		batch = settle(batch, outcomes, err)
	}
}

// settle tells submissions what became of them, and returns those of which nothing is known:
// what cannot be taken now does not keep those behind it.
func settle(batch []*submission, outcomes []ingest.Outcome, err error) []*submission {
	_, one := errors.AsType[*ingest.BlockedError](err)
	for i, s := range batch {
		n := min(len(s.messages), len(outcomes))
		if s.outcomes = outcomes[:n]; n < len(s.messages) {
			s.err = err
		}
		outcomes = outcomes[n:]
		close(s.done)
		if s.err != nil && one {
			return batch[i+1:]
		}
	}
	return nil
}

// create calls the creator. A panic is an error of this hook and of nobody else.
func (h *hook) create(ctx context.Context, t *trigger.Compiled, messages []ingest.Message) (outcomes []ingest.Outcome, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			h.all.deps.Logger.ErrorContext(ctx, "webhook panicked", "trigger", t.ID, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			outcomes, err = nil, fmt.Errorf("create targets of webhook %s: panic: %v", t.ID, cause)
		}
	}()
	outcomes, err = h.all.deps.Creator.Create(ctx, t, messages)
	switch _, blocked := errors.AsType[*ingest.BlockedError](err); {
	case h.all.base.Err() != nil && err != nil:
		err = problem.ShuttingDown().With("the message may have been taken or not: send it again")
	case ctx.Err() != nil && err != nil && !blocked:
		err = problem.Timeout().With("the message may have been taken or not: send it again")
	case err == nil && len(outcomes) < len(messages):
		err = fmt.Errorf("create targets of webhook %s: %d outcomes of %d messages", t.ID, len(outcomes), len(messages))
	}
	return outcomes, err
}

// spend takes tokens for n requests.
func (h *hook) spend(ctx context.Context, t *trigger.Compiled, n int) (taken int, wait time.Duration, err error) {
	w := t.Webhook.WithDefaults()
	if w.RateLimitPerSecond <= 0 {
		return n, 0, nil
	}
	taken, wait, err = h.all.deps.Buckets.Spend(ctx, rateOf(w), t.UID, n)
	if wait > 0 {
		h.mu.Lock()
		now := time.Now()
		h.empty = empty{revision: t.Revision, askedAt: now, until: now.Add(wait)}
		h.mu.Unlock()
	}
	return taken, wait, err
}

// rateOf is the rate of a webhook as a limit.
func rateOf(w trigger.Webhook) limits.Definition {
	return limits.Definition{
		Name: limitName, Per: limits.PerKey, Burst: w.Burst,
		Rate: limits.Rate{Tokens: 1, Per: time.Duration(math.Ceil(float64(time.Second) / w.RateLimitPerSecond))},
	}
}
