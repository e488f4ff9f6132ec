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

// Hub hands the events of a topic to whoever listens, in this process.
type Hub struct {
	topic  topics.Topic
	log    Log
	logger *slog.Logger
	buffer int
	linger time.Duration
	// span is that of the memory, look how often partitions are counted.
	span int64
	look time.Duration
	// reading is a place for each client that reads the topic itself.
	reading chan struct{}

	clients  prometheus.Gauge
	dropped  prometheus.Counter
	repeated prometheus.Counter

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	// bySubject are those subscribers that want events of a few subjects only,
	// general the others.
	bySubject map[string]map[*subscriber]struct{}
	general   map[*subscriber]struct{}
	// waiting counts those who want to join as soon as the tail runs.
	waiting  int
	position Position // nil while the tail does not run
	changed  chan struct{}
	// incarnation stands for the topic's identity at the broker.
	incarnation uint32
	// read is up to where records were read, also those before position, which only
	// memory and recent are told of. warm: all of those were read.
	read   Position
	warm   bool
	memory *memory
	recent *recent
}

// Defaults of a Hub.
const (
	lookDefault = 30 * time.Second
	readingMax  = 8
)

// NewHub returns a hub on the log of a topic. It does nothing before Run is called.
func NewHub(topic topics.Topic, log Log, logger *slog.Logger, metrics prometheus.Registerer) *Hub {
	labels := prometheus.Labels{"topic": string(topic)}
	h := &Hub{
		topic: topic, log: log, logger: logger.With("topic", string(topic)), buffer: bufferDefault, linger: lingerDefault,
		span: spanDefault, look: lookDefault, reading: make(chan struct{}, readingMax),
		clients: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_sse_streams", ConstLabels: labels, Help: "Live streams that are open."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_sse_dropped_total", ConstLabels: labels, Help: "Live streams closed because the client did not keep up."}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_sse_repeated_total", ConstLabels: labels,
			Help: "Records left out of live streams because they repeat an event that is in the topic already."}),
		subscribers: map[*subscriber]struct{}{},
		bySubject:   map[string]map[*subscriber]struct{}{},
		general:     map[*subscriber]struct{}{},
		changed:     make(chan struct{}),
	}
	if metrics != nil {
		metrics.MustRegister(h.clients, h.dropped, h.repeated)
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

// session runs one tail until nobody listens any more, or the topic has got more
// partitions (nil), or it fails. opened says whether it got as far as reading.
func (h *Hub) session(ctx context.Context) (opened bool, err error) {
	bounds, err := h.log.Bounds(ctx)
	if err != nil {
		return false, err
	}
	from, err := h.begin(bounds)
	if err != nil {
		return false, err
	}
	tail, err := h.log.Open(ctx, from)
	if err != nil {
		return false, err
	}
	defer tail.Close()
	h.mu.Lock()
	if h.position == nil {
		h.position = bounds.End.clone()
	}
	for i := len(h.position); i < len(bounds.End); i++ {
		h.position.advance(i, bounds.Start.at(i)) // a partition that was added: all of it is new
	}
	until := h.position.clone()
	h.announce()
	h.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, watch := range []func(context.Context){
		h.waitUnwanted,
		func(ctx context.Context) { h.waitGrown(ctx, len(until)) },
	} {
		wg.Go(func() {
			watch(ctx)
			cancel()
		})
	}
	wg.Go(func() { h.waitWarm(ctx, tail, until) })
	err = tail.Run(ctx, h.publish)
	cancel()
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.subscribers) == 0 {
			h.stop()
		}
	}
	return true, err
}

// begin returns from where to read: on from where the last session ended, or, when
// nobody was listening, from so far before the end that repetitions are known and
// clients that come back find what they missed.
func (h *Hub) begin(bounds Bounds) (from Position, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	incarnation := tag(bounds.ID[:])
	if h.position != nil {
		if incarnation != h.incarnation || !bounds.End.reached(h.position) {
			return nil, errGap // the topic was made anew
		}
		for i, start := range bounds.Start {
			// A partition was added, or the retention has overtaken what was to be
			// remembered only.
			if i >= len(h.position) || h.read.at(i) < start && start <= h.position[i] {
				h.read.advance(i, start)
				h.recent.from.advance(i, start)
			}
		}
		return h.read.clone(), nil
	}
	h.incarnation = incarnation
	h.read = bounds.End.back(h.span, bounds.Start)
	h.memory = newMemory(h.span)
	h.recent = &recent{limit: recentBytes, from: h.read.clone()}
	return h.read.clone(), nil
}

// stop notes that nothing is read any more, under the lock.
func (h *Hub) stop() {
	h.position, h.warm = nil, false
	h.announce()
}

// warmEvery is how often it is looked whether everything before the position was read.
const warmEvery = 5 * time.Millisecond

// waitWarm notes when everything before the position was read.
func (h *Hub) waitWarm(ctx context.Context, tail Tail, until Position) {
	for !tail.Position().reached(until) {
		if !sleep(ctx, warmEvery) {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.warm {
		h.warm = true
		h.announce()
	}
}

// waitGrown returns when the topic has more partitions than the tail reads, or ctx
// ends.
func (h *Hub) waitGrown(ctx context.Context, partitions int) {
	for sleep(ctx, h.look) {
		if bounds, err := h.log.Bounds(ctx); err == nil && len(bounds.End) > partitions {
			return
		}
	}
}

// publish hands a record to the subscribers that want it.
func (h *Hub) publish(r topics.Record) error {
	it := newItem(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	partition := int(r.Partition)
	if r.Offset < h.read.at(partition) {
		return nil
	}
	h.read.advance(partition, r.Offset+1)
	fresh := r.Offset >= h.position.at(partition)
	if fresh {
		h.position.advance(partition, r.Offset+1)
	}
	if it == nil {
		return nil
	}
	if h.memory.repeated(partition, r.Offset, it.identity()) {
		h.repeated.Inc()
		return nil
	}
	h.recent.keep(it)
	if fresh {
		h.deliver(it)
	}
	return nil
}

// deliver puts an event into the buffers of those who want it, under the lock.
func (h *Hub) deliver(it *item) {
	var chosen map[*subscriber]struct{}
	if len(h.bySubject) > 0 {
		chosen = h.bySubject[it.subject()]
	}
	for _, group := range []map[*subscriber]struct{}{chosen, h.general} {
		for s := range group {
			if !s.filter.match(it) {
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
	}
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
