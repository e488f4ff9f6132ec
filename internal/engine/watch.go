package engine

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// watch tells those who wait for the end of an instance in this process.
type watch struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]map[chan struct{}]struct{}
}

// waitPoll is how often an instance is looked at whose end another process may bring about.
const (
	waitPollMin = 50 * time.Millisecond
	waitPollMax = time.Second
)

// on returns a channel that is closed when the instance ends; off forgets it.
func (w *watch) on(id uuid.UUID) (ended chan struct{}, off func()) {
	ended = make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[uuid.UUID]map[chan struct{}]struct{}{}
	}
	if w.waiting[id] == nil {
		w.waiting[id] = map[chan struct{}]struct{}{}
	}
	w.waiting[id][ended] = struct{}{}
	return ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting[id], ended)
		if len(w.waiting[id]) == 0 {
			delete(w.waiting, id)
		}
	}
}

func (w *watch) ended(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ended := range w.waiting[id] {
		close(ended)
	}
	delete(w.waiting, id)
}

// Wait returns the instance once it has ended, or as it is after the timeout: the status
// says which. It gives ctx's error when that ends first.
func (e *Engine) Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (Instance, error) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	for poll := waitPollMin; ; poll = min(2*poll, waitPollMax) {
		ended, off := e.watch.on(id)
		i, err := e.Get(ctx, id)
		if err != nil || i.Status.Final() {
			off()
			return i, err
		}
		again := time.NewTimer(poll)
		select {
		case <-ended:
		case <-again.C:
		case <-over.C:
			off()
			again.Stop()
			return i, nil
		case <-ctx.Done():
			off()
			again.Stop()
			return i, context.Cause(ctx)
		}
		off()
		again.Stop()
	}
}
