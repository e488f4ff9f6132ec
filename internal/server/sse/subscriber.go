package sse

import (
	"context"
	"errors"
	"time"
)

// subscriber is one client's place at the hub.
type subscriber struct {
	filter Filter
	items  chan *item
	// gone is closed, after cause was set, when the hub has let go of it.
	gone  chan struct{}
	cause error
	// from is where the hub stood when it joined: it sees every later record.
	from cursor
}

// attach makes a subscriber that sees every record from where the hub stands. It
// waits for the tail to run, for a while.
func (h *Hub) attach(ctx context.Context, filter Filter) (*subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.await(ctx, func() bool { return h.position != nil }); err != nil {
		return nil, err
	}
	return h.add(filter), nil
}

// rejoin is attach for a client that comes back with a cursor. If the hub remembers
// everything from there on, it returns what the client has missed too; otherwise the
// subscriber is nil, and the client has to read the topic itself. ErrCursor: it is a
// cursor of another topic.
func (h *Hub) rejoin(ctx context.Context, filter Filter, c cursor) (*subscriber, []*item, error) {
	if c.topic != h.tag() {
		return nil, nil, ErrCursor
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.await(ctx, func() bool { return h.position != nil && h.warm })
	if errors.Is(err, ErrUnavailable) && h.position != nil {
		return nil, nil, nil // it takes long to read back
	}
	if err != nil {
		return nil, nil, err
	}
	if c.incarnation != h.incarnation || !h.position.reached(c.at) {
		return nil, nil, nil
	}
	missed, complete := h.recent.since(c.at, filter.match)
	if !complete {
		return nil, nil, nil
	}
	return h.add(filter), missed, nil
}

// await waits, under the lock, until the tail runs and ready says so.
func (h *Hub) await(ctx context.Context, ready func() bool) error {
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	h.waiting++
	h.announce()
	defer func() { h.waiting-- }()
	for !ready() {
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
			return err
		}
	}
	return nil
}

// add makes a subscriber, under the lock.
func (h *Hub) add(filter Filter) *subscriber {
	s := &subscriber{filter: filter, items: make(chan *item, h.buffer), gone: make(chan struct{}), from: h.cursor()}
	h.subscribers[s] = struct{}{}
	if len(filter.Subjects) == 0 {
		h.general[s] = struct{}{}
	}
	for _, subject := range filter.Subjects {
		if h.bySubject[subject] == nil {
			h.bySubject[subject] = map[*subscriber]struct{}{}
		}
		h.bySubject[subject][s] = struct{}{}
	}
	h.clients.Set(float64(len(h.subscribers)))
	return s
}

// cursor is where the hub stands, under the lock.
func (h *Hub) cursor() cursor {
	return cursor{topic: h.tag(), incarnation: h.incarnation, at: h.position.clone()}
}

// tag stands for the topic in cursors.
func (h *Hub) tag() uint32 { return tag([]byte(h.topic)) }

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
	h.stop()
}

// release lets go of a subscriber, under the lock.
func (h *Hub) release(s *subscriber, cause error) {
	if _, there := h.subscribers[s]; !there {
		return
	}
	delete(h.subscribers, s)
	delete(h.general, s)
	for _, subject := range s.filter.Subjects {
		if delete(h.bySubject[subject], s); len(h.bySubject[subject]) == 0 {
			delete(h.bySubject, subject)
		}
	}
	h.clients.Set(float64(len(h.subscribers)))
	s.cause = cause
	close(s.gone)
	h.announce()
}
