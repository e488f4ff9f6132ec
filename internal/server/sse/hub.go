package sse

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/topics"
)

// Reasons for which the hub lets go of a subscriber.
var (
	errSlow = errors.New("the client did not keep up")
	// ErrUnavailable: the topic cannot be read at the moment.
	ErrUnavailable = errors.New("live events are not available")
)

const (
	bufferDefault = 1024
	// linger is how long the tail goes on without anybody listening.
	lingerDefault = 30 * time.Second
	attachTimeout = 10 * time.Second
	backoffFirst  = 200 * time.Millisecond
	backoffMax    = 5 * time.Second
)

// item is an event on its way to subscribers. It is shared and not changed.
type item struct {
	envelope  topics.Envelope
	partition int
	offset    int64
	// position is where the hub stood after it.
	position Position
	// json is the event in structured mode.
	json []byte
}

// subscriber is one client's place at the hub.
type subscriber struct {
	match func(*topics.Envelope) bool
	items chan *item
	// gone is closed, after cause was set, when the hub has let go of it.
	gone  chan struct{}
	cause error
	// from is where the hub stood when it joined: it sees every later record.
	from Position
}

// Hub hands the records of a topic to whoever listens, in this process.
type Hub struct {
	log    Log
	logger *slog.Logger
	buffer int
	linger time.Duration

	clients prometheus.Gauge
	dropped prometheus.Counter

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	// waiting counts those who want to join as soon as the tail runs.
	waiting  int
	position Position // nil while the tail does not run
	changed  chan struct{}
}

// NewHub returns a hub on the log. It does nothing before Run is called.
func NewHub(log Log, logger *slog.Logger, metrics prometheus.Registerer) *Hub {
	h := &Hub{
		log: log, logger: logger, buffer: bufferDefault, linger: lingerDefault,
		clients: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_sse_streams", Help: "Live streams that are open."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_sse_dropped_total", Help: "Live streams closed because the client did not keep up."}),
		subscribers: map[*subscriber]struct{}{},
		changed:     make(chan struct{}),
	}
	if metrics != nil {
		metrics.MustRegister(h.clients, h.dropped)
	}
	return h
}

// Run reads the topic while anybody listens, until ctx ends. Outages are waited
// out: subscribers stay, and nothing is lost to them.
func (h *Hub) Run(ctx context.Context) error {
	backoff := backoffFirst
	for {
		if !h.waitWanted(ctx) {
			return nil
		}
		opened, err := h.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end was asked for; the error is its echo
		case err == nil:
			backoff = backoffFirst
			continue
		case errors.Is(err, errGap):
			h.releaseAll(err)
			continue
		}
		h.logger.WarnContext(ctx, "live events interrupted", "error", err, "retry_in", backoff)
		if opened {
			backoff = backoffFirst
		}
		if !sleep(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, backoffMax)
	}
}

// session runs one tail until nobody listens any more (nil) or it fails. opened
// says whether it got as far as reading.
func (h *Hub) session(ctx context.Context) (opened bool, err error) {
	h.mu.Lock()
	from := h.position.clone()
	h.mu.Unlock()
	tail, err := h.log.Open(ctx, from)
	if err != nil {
		return false, err
	}
	defer tail.Close()
	h.mu.Lock()
	h.position = tail.Position()
	h.announce()
	h.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		h.waitUnwanted(ctx)
		cancel()
	})
	err = tail.Run(ctx, h.publish)
	cancel()
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.subscribers) == 0 {
			h.position = nil
			h.announce()
		}
	}
	return true, err
}

// publish hands a record to the subscribers that want it.
func (h *Hub) publish(r topics.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	partition := int(r.Partition)
	if r.Offset < h.position.at(partition) {
		return nil
	}
	h.position.advance(partition, r.Offset+1)
	if len(h.subscribers) == 0 {
		return nil
	}
	it := newItem(r)
	if it == nil {
		return nil
	}
	for s := range h.subscribers {
		if !s.match(&it.envelope) {
			continue
		}
		if it.position == nil {
			it.position = h.position.clone()
		}
		select {
		case s.items <- it:
		default:
			h.dropped.Inc()
			h.release(s, errSlow)
		}
	}
	return nil
}

// newItem returns the event in a record, or nil when it is none: streams are of
// events.
func newItem(r topics.Record) *item {
	env, err := topics.DecodeRecord(r)
	if err != nil {
		return nil
	}
	text, err := topics.EncodeJSON(env)
	if err != nil {
		return nil
	}
	return &item{envelope: env, partition: int(r.Partition), offset: r.Offset, json: text}
}

// attach makes a subscriber that sees every record from where the hub stands. It
// waits for the tail to run, for a while.
func (h *Hub) attach(ctx context.Context, match func(*topics.Envelope) bool) (*subscriber, error) {
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting++
	h.announce()
	defer func() { h.waiting-- }()
	for h.position == nil {
		changed := h.changed
		h.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-timeout.C:
			err = ErrUnavailable
		}
		h.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	s := &subscriber{
		match: match, items: make(chan *item, h.buffer), gone: make(chan struct{}), from: h.position.clone(),
	}
	h.subscribers[s] = struct{}{}
	h.clients.Set(float64(len(h.subscribers)))
	return s, nil
}

// settled returns where the hub stands, if the subscriber has taken everything
// before that: nil otherwise.
func (h *Hub) settled(s *subscriber) Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.items) > 0 {
		return nil
	}
	return h.position.clone()
}

// detach lets go of a subscriber that is done.
func (h *Hub) detach(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release(s, context.Canceled)
}

func (h *Hub) releaseAll(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		h.release(s, cause)
	}
	h.position = nil
	h.announce()
}

// release lets go of a subscriber, under the lock.
func (h *Hub) release(s *subscriber, cause error) {
	if _, there := h.subscribers[s]; !there {
		return
	}
	delete(h.subscribers, s)
	h.clients.Set(float64(len(h.subscribers)))
	s.cause = cause
	close(s.gone)
	h.announce()
}

// announce wakes those who wait for a change, under the lock.
func (h *Hub) announce() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Hub) wanted() (bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting > 0 || len(h.subscribers) > 0, h.changed
}

// waitWanted returns true as soon as somebody listens, false when ctx ends.
func (h *Hub) waitWanted(ctx context.Context) bool {
	for {
		wanted, changed := h.wanted()
		if wanted {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// waitUnwanted returns when nobody has listened for the linger time, or ctx ends.
func (h *Hub) waitUnwanted(ctx context.Context) {
	var idle <-chan time.Time
	for {
		wanted, changed := h.wanted()
		switch {
		case wanted:
			idle = nil
		case idle == nil:
			idle = time.After(h.linger)
		}
		select {
		case <-changed:
		case <-idle:
			return
		case <-ctx.Done():
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
