package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrWithdrawn is the cause with which the context of a slot's function ends when there
// is no such slot any more.
var ErrWithdrawn = errors.New("slot is not there any more")

const (
	// spreadRest is the shortest time between two rounds: releases come in swarms.
	spreadRest = 20 * time.Millisecond
	// acquireBatch is how many leases are taken in one go.
	acquireBatch = 100
)

// Slots are slots that may change. The zero value is not ready: see NewSlots.
type Slots struct {
	mu      sync.Mutex
	list    []Slot
	changed chan struct{}
}

// NewSlots returns slots of which it is not known yet what they are.
func NewSlots() *Slots { return &Slots{changed: make(chan struct{}, 1)} }

// Set says what the slots are from now on.
func (s *Slots) Set(list []Slot) {
	s.mu.Lock()
	s.list = list
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Slots) now() []Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// SlotLease returns the name of the lease of a slot.
func SlotLease(kind, slot string) string { return kind + "/" + slot }

// Spread is Shards for slots with names that come and go. It spreads them evenly over all
// who call it with that kind and the same slots, and runs fn for each while this member
// holds its lease. What somebody holds stays there as long as shares are even: a slot that
// comes or goes moves no other as a rule. It takes no part before slots were Set. It
// returns nil when ctx has ended and every fn has returned.
//
// The context of fn ends, and the lease is released, as with Shards; the cause is
// ErrRebalanced when the slot is to go to another member, and ErrWithdrawn when it is not
// there any more. A process calls Spread once per kind and manager.
func (m *Manager) Spread(ctx context.Context, kind string, slots *Slots, fn func(ctx context.Context, slot Slot, h *Held)) error {
	s := &spreading{m: m, kind: kind, slots: slots, fn: fn, running: make(map[string]context.CancelCauseFunc), ended: make(chan struct{}, 1)}
	s.run(ctx)
	return nil
}

// spreading is one call of Spread.
type spreading struct {
	m     *Manager
	kind  string
	slots *Slots
	fn    func(ctx context.Context, slot Slot, h *Held)

	mu sync.Mutex
	// running holds what stops the function of a slot, until its lease is released; nil
	// once it was told to stop.
	running map[string]context.CancelCauseFunc
	ended   chan struct{}
	wg      sync.WaitGroup
}

func (s *spreading) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.slots.changed:
	}
	released, stop := s.m.subscribe(s.kind)
	defer stop()
	// Leases outlive ctx until their functions have returned; see Shards.
	holding, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	defer s.wg.Wait()
	// It leaves first, or others would place here what is released one by one.
	defer s.m.leave(ctx, s.kind)
	defer s.stop(nil, context.Canceled)

	joined, failed := false, false
	for {
		next, err := s.balance(ctx, holding)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			s.m.log.WarnContext(ctx, "slots cannot be balanced", "kind", s.kind, "error", err)
		case err == nil && failed:
			s.m.log.InfoContext(ctx, "slots are balanced again", "kind", s.kind)
		}
		failed = err != nil
		if err == nil && !joined {
			joined = true
			s.m.wake(s.kind) // the others have to make room
		}
		pause(ctx, spreadRest)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-released:
		case <-s.ended:
		case <-s.slots.changed:
		}
		timer.Stop()
	}
}

// balance announces this member, and gives up and takes what follows from who is there
// and who holds what. It returns when to do so again if nothing happens before.
func (s *spreading) balance(ctx, holding context.Context) (next time.Duration, err error) {
	interval := s.m.ttl / renewals
	failed := min(interval, retryRound)
	members, first, err := s.m.announce(ctx, s.kind)
	if err != nil {
		return failed, err
	}
	slots := s.slots.now()
	holders, err := s.holders(ctx, slots)
	if err != nil {
		return failed, err
	}
	owners := make(map[string]string, len(holders))
	for name, h := range holders {
		owners[name] = h.owner
	}
	placed := place(slots, members, owners)
	s.giveUp(slots, placed)

	next = min(interval, first+afterExpiry)
	var due []Slot
	for _, slot := range slots {
		if placed[slot.Name] != s.m.owner || s.has(slot.Name) {
			continue
		}
		if h, held := holders[slot.Name]; held {
			next = min(next, h.remaining+afterExpiry)
			continue
		}
		due = append(due, slot)
	}
	for len(due) > 0 {
		n := min(len(due), acquireBatch)
		if err := s.take(ctx, holding, due[:n]); err != nil {
			return failed, err
		}
		due = due[n:]
	}
	return next, nil
}

// tenure is who holds a lease, and for how long unless it is renewed.
type tenure struct {
	owner     string
	remaining time.Duration
}

// holders returns who holds which of the slots, by the database's clock.
func (s *spreading) holders(ctx context.Context, slots []Slot) (map[string]tenure, error) {
	ctx, cancel := context.WithTimeout(ctx, s.m.ttl/renewals)
	defer cancel()
	names := make([]string, len(slots))
	for i, slot := range slots {
		names[i] = SlotLease(s.kind, slot.Name)
	}
	rows, err := s.m.pool.Query(ctx, `
		SELECT name, owner, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM leases
		WHERE name = ANY ($1) AND expires_at > clock_timestamp()`, names)
	if err != nil {
		return nil, fmt.Errorf("read who holds slots: %w", err)
	}
	held := make(map[string]tenure)
	var name, owner string
	var remaining float64
	_, err = pgx.ForEachRow(rows, []any{&name, &owner, &remaining}, func() error {
		held[name[len(s.kind)+1:]] = tenure{owner, time.Duration(remaining * float64(time.Second))}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read who holds slots: %w", err)
	}
	return held, nil
}

// take acquires the leases of slots that nobody held, and begins with those that it got.
func (s *spreading) take(ctx, holding context.Context, slots []Slot) error {
	names := make([]string, len(slots))
	byLease := make(map[string]Slot, len(slots))
	for i, slot := range slots {
		names[i] = SlotLease(s.kind, slot.Name)
		byLease[names[i]] = slot
	}
	asking, cancel := s.m.lasting(ctx) // a lease that was taken and is not known of stands until it expires
	defer cancel()
	got, err := s.m.acquireAll(asking, holding, names)
	if err != nil {
		return err
	}
	for _, h := range got {
		s.start(ctx, byLease[h.name], h)
	}
	return nil
}

func (s *spreading) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, running := s.running[name]
	return running
}

// giveUp tells those to stop that are placed elsewhere, or are not there any more.
func (s *spreading) giveUp(slots []Slot, placed map[string]string) {
	there := make(map[string]bool, len(slots))
	for _, slot := range slots {
		there[slot.Name] = true
	}
	s.stop(func(name string) bool { return !there[name] }, ErrWithdrawn)
	s.stop(func(name string) bool { return placed[name] != s.m.owner }, ErrRebalanced)
}

// stop tells the functions of some slots to stop; those of all when which is nil.
func (s *spreading) stop(which func(name string) bool, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, cancel := range s.running {
		if cancel != nil && (which == nil || which(name)) {
			cancel(cause)
			s.running[name] = nil
		}
	}
}

// start runs fn for a slot in a goroutine of its own.
func (s *spreading) start(ctx context.Context, slot Slot, h *Held) {
	working, cancel := context.WithCancelCause(h.ctx)
	s.mu.Lock()
	s.running[slot.Name] = cancel
	s.mu.Unlock()
	s.wg.Go(func() {
		defer s.finish(ctx, slot, h)
		defer cancel(context.Canceled)
		s.fn(working, slot, h)
		if working.Err() == nil {
			pause(working, runBackoffMin) // it gave up by itself: no busy loop
		}
	})
}

func (s *spreading) finish(ctx context.Context, slot Slot, h *Held) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := h.Release(cleanup); err != nil {
		s.m.log.WarnContext(ctx, "lease runs out instead of being released", "lease", h.name, "error", err)
	}
	s.mu.Lock()
	delete(s.running, slot.Name)
	s.mu.Unlock()
	select {
	case s.ended <- struct{}{}:
	default:
	}
}
