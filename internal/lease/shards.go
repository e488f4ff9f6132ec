package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrRebalanced is the cause with which the context of a shard's function ends
// when the shard is to go to another member.
var ErrRebalanced = errors.New("shard goes to another member")

// ShardLease returns the name of the lease of one shard.
func ShardLease(kind string, shard int) string { return kind + "/" + strconv.Itoa(shard) }

// Shards shares n shards, numbered from 0, among all who call it with that kind,
// as evenly as n allows, and runs fn for each shard while this member holds its
// lease. Members may join and leave at any time. It returns nil when ctx has
// ended and every fn has returned.
//
// The context of fn ends when the shard is lost, when it is to go to another
// member, or when ctx ends; fn then finishes what it must and returns, and the
// lease, which is renewed until then, is released. When fn returns by itself, its
// shard is released and up for taking again.
//
// A process calls Shards once per kind and manager.
func (m *Manager) Shards(ctx context.Context, kind string, n int, fn func(ctx context.Context, shard int, h *Held)) error {
	if n < 1 {
		return fmt.Errorf("share shards of %s: %d shards", kind, n)
	}
	s := &sharing{m: m, kind: kind, n: n, fn: fn, running: make(map[int]context.CancelCauseFunc), ended: make(chan struct{}, 1)}
	s.run(ctx)
	return nil
}

// sharing is one call of Shards.
type sharing struct {
	m    *Manager
	kind string
	n    int
	fn   func(ctx context.Context, shard int, h *Held)

	mu      sync.Mutex
	running map[int]context.CancelCauseFunc // by shard, until its lease is released
	leaving int                             // of these, told to stop
	ended   chan struct{}
	wg      sync.WaitGroup
}

func (s *sharing) run(ctx context.Context) {
	released, stop := s.m.subscribe(s.kind)
	defer stop()
	defer s.m.leave(ctx, s.kind)
	// Leases outlive ctx until their functions have returned, so that nobody takes
	// over what is still being finished.
	holding, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	defer s.wg.Wait()
	defer s.stopAll()

	interval := s.m.ttl / renewals
	timer := time.NewTimer(0)
	defer timer.Stop()
	joined, failed := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-released:
		case <-s.ended:
		}
		missing, err := s.balance(ctx, holding)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			s.m.log.WarnContext(ctx, "shards cannot be balanced", "kind", s.kind, "error", err)
		case err == nil && failed:
			s.m.log.InfoContext(ctx, "shards are balanced again", "kind", s.kind)
		}
		failed = err != nil
		if err == nil && !joined {
			joined = true
			s.m.wake(s.kind) // the others have to make room
		}
		if failed {
			missing = retryRound
		}
		timer.Reset(nextRound(interval, missing))
	}
}

// retryRound is when a round that failed is repeated.
const retryRound = time.Second

// nextRound comes sooner when a shard that is due to us was still held.
func nextRound(interval, missing time.Duration) time.Duration {
	if missing <= 0 {
		return interval
	}
	return min(interval, missing+afterExpiry)
}

// balance announces this member, counts the others, and gives up or takes shards
// until this member has its share. When shards of its share are held by others it
// returns how long the first of their leases still lasts.
func (s *sharing) balance(ctx, holding context.Context) (missing time.Duration, err error) {
	members, _, err := s.m.announce(ctx, s.kind)
	if err != nil {
		return 0, err
	}
	share := shareOf(s.n, members, s.m.owner)
	s.giveUp(share)
	for _, shard := range s.candidates(slices.Index(members, s.m.owner), len(members)) {
		if s.count() >= share {
			return 0, nil
		}
		h, err := s.m.Acquire(holding, ShardLease(s.kind, shard))
		if held, ok := errors.AsType[*heldError](err); ok {
			if missing == 0 || held.remaining < missing {
				missing = held.remaining
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		s.start(ctx, shard, h)
	}
	if s.count() >= share {
		missing = 0
	}
	return missing, nil
}

// shareOf returns how many of n shards the member gets: the same number for all,
// and one more for the first ones by name, so that the shares add up to n.
func shareOf(n int, members []string, member string) int {
	rank := slices.Index(members, member)
	if rank < 0 {
		return 0
	}
	share := n / len(members)
	if rank < n%len(members) {
		share++
	}
	return share
}

// candidates returns the shards that are not running here, beginning at a place
// of this member's own, so that members that start together seldom try for the
// same one.
func (s *sharing) candidates(rank, members int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := max(rank, 0) * s.n / max(members, 1)
	var free []int
	for i := range s.n {
		shard := (first + i) % s.n
		if _, mine := s.running[shard]; !mine {
			free = append(free, shard)
		}
	}
	return free
}

func (s *sharing) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) - s.leaving
}

// giveUp tells the shards beyond the share to stop, the highest first.
func (s *sharing) giveUp(share int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	surplus := len(s.running) - s.leaving - share
	for shard := s.n - 1; shard >= 0 && surplus > 0; shard-- {
		if cancel := s.running[shard]; cancel != nil {
			cancel(ErrRebalanced)
			s.running[shard] = nil
			s.leaving++
			surplus--
		}
	}
}

func (s *sharing) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard, cancel := range s.running {
		if cancel != nil {
			cancel(context.Canceled)
			s.running[shard] = nil
			s.leaving++
		}
	}
}

// start runs fn for a shard in a goroutine of its own.
func (s *sharing) start(ctx context.Context, shard int, h *Held) {
	working, cancel := context.WithCancelCause(h.ctx)
	s.mu.Lock()
	s.running[shard] = cancel
	s.mu.Unlock()
	s.wg.Go(func() {
		defer s.finish(ctx, shard, h)
		defer cancel(context.Canceled)
		s.fn(working, shard, h)
		if working.Err() == nil {
			pause(working, runBackoffMin) // it gave up by itself: no busy loop
		}
	})
}

func (s *sharing) finish(ctx context.Context, shard int, h *Held) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := h.Release(cleanup); err != nil {
		s.m.log.WarnContext(ctx, "lease runs out instead of being released", "lease", h.name, "error", err)
	}
	s.mu.Lock()
	if s.running[shard] == nil {
		s.leaving--
	}
	delete(s.running, shard)
	s.mu.Unlock()
	select {
	case s.ended <- struct{}{}:
	default:
	}
}
