package kafka

import (
	"context"
	"fmt"
)

// Pause hands nothing out any more, of any partition that this member has or gets,
// until Resume. Deliveries in flight end as they would; what is in a backoff is
// not tried again. It returns at once, and may be called before Subscribe.
func (s *Subscriber) Pause() {
	s.mu.Lock()
	if s.holding != nil {
		s.mu.Unlock()
		return
	}
	s.holding = make(chan struct{})
	workers := s.heldWorkers()
	for _, w := range workers {
		w.pause(pausedHeld)
	}
	s.mu.Unlock()
	s.announce(workers)
}

// Resume ends a Pause.
func (s *Subscriber) Resume() {
	s.mu.Lock()
	if s.holding == nil {
		s.mu.Unlock()
		return
	}
	close(s.holding)
	s.holding = nil
	workers := s.heldWorkers()
	for _, w := range workers {
		w.resume(pausedHeld)
	}
	s.mu.Unlock()
	s.announce(workers)
}

// heldWorkers returns all workers. Pauses are set and lifted under the lock, so
// that a worker which is adopted meanwhile ends up as the last call said.
func (s *Subscriber) heldWorkers() []*worker {
	workers := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		workers = append(workers, w)
	}
	return workers
}

func (s *Subscriber) announce(workers []*worker) {
	if s.sc.Observer == nil {
		return
	}
	for _, w := range workers {
		s.sc.Observer.PartitionChanged(w.status())
	}
}

// held returns a channel that is closed with the end of the pause, or nil while
// there is none.
func (s *Subscriber) held() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

// RefreshEnds asks the brokers where the partitions end that are not fetched at
// the moment, so that HighWatermark and Lag grow while a partition stands, and those of
// which nothing was fetched yet. It does nothing when all are fetched.
func (s *Subscriber) RefreshEnds(ctx context.Context) error {
	standing := map[partition]*worker{}
	names := map[string]struct{}{}
	for _, w := range s.workersOf("") {
		w.mu.Lock()
		if w.paused != 0 || w.highWatermark < 0 {
			standing[w.at] = w
			names[w.at.topic] = struct{}{}
		}
		w.mu.Unlock()
	}
	for topic := range names {
		listed, err := s.admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return fmt.Errorf("list end offsets of %s: %w", topic, err)
		}
		for at, w := range standing {
			if o, ok := listed.Lookup(at.topic, at.partition); ok && o.Err == nil {
				w.mu.Lock()
				w.highWatermark = max(w.highWatermark, o.Offset)
				w.mu.Unlock()
			}
		}
	}
	return nil
}
