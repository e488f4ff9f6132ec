package worker

import (
	"context"
	"sync"
)

// slots counts how many more handlers may run.
type slots struct {
	mu      sync.Mutex
	free    int
	changed chan struct{} // closed and replaced when free grows
}

func newSlots(n int) *slots { return &slots{free: n, changed: make(chan struct{})} }

// take waits until at least one slot is free and takes up to n of those that are.
func (s *slots) take(ctx context.Context, n int) (int, error) {
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		s.mu.Lock()
		if s.free > 0 {
			n = min(n, s.free)
			s.free -= n
			s.mu.Unlock()
			return n, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-changed:
		}
	}
}

func (s *slots) give(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	close(s.changed)
	s.changed = make(chan struct{})
}
