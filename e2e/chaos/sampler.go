package main

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

// sampler looks at the positions of the consumers while the run goes on.
type sampler struct {
	world    *world.World
	findings *check.Findings

	mu     sync.Mutex
	seen   check.Positions
	paused bool
}

// pause stops the sampling, and forgets what was seen: a restored database begins
// anew.
func (s *sampler) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.paused = check.Positions{}, true
}

func (s *sampler) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
}

func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.look(ctx)
	}
}

func (s *sampler) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sample, err := workload.Positions(ctx, s.world.DB)
	if err != nil {
		return // the database is away
	}
	kept := sample[:0]
	for _, p := range sample {
		if p.Topic != string(workload.Moved) { // people move its positions
			kept = append(kept, p)
		}
	}
	s.findings.Add(s.seen.Look(kept)...)
}
