package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	runBackoffMin = 100 * time.Millisecond
	runBackoffMax = 10 * time.Second
	// releaseTimeout bounds giving a lease back at the end. Failing that it runs out.
	releaseTimeout = 5 * time.Second
	// afterExpiry is how long after the end of another's lease to try for it.
	afterExpiry = 5 * time.Millisecond
)

// Run keeps trying to hold the lease of that name, and runs fn while it does. The
// context of fn is that of the lease: it ends when the lease is lost or ctx ends,
// and fn must return then. Any number of processes may call Run with the same
// name; one of them runs fn, and the others stand by and take over when its lease
// expires or is released.
//
// When fn returns nil although it was not told to stop, its work is done and Run
// returns nil. When it returns an error, the lease is given back, and Run tries
// again after a pause of 100 ms, 200 ms ... 10 s. Run returns nil when ctx ends.
func (m *Manager) Run(ctx context.Context, name string, fn func(ctx context.Context, h *Held) error) error {
	released, stop := m.subscribe(name)
	defer stop()
	backoff, unreachable := runBackoffMin, false
	for ctx.Err() == nil {
		h, err := m.Acquire(ctx, name)
		if err != nil {
			unreachable = m.noteAcquire(ctx, name, err, unreachable)
			m.standBy(ctx, err, released)
			continue
		}
		unreachable = false
		began := time.Now()
		done, err := m.runHeld(ctx, h, fn)
		if done {
			return nil
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if time.Since(began) > runBackoffMax {
			backoff = runBackoffMin
		}
		m.log.ErrorContext(ctx, "work under a lease ended with an error", "lease", name, "error", err, "retry_in", backoff)
		pause(ctx, backoff)
		backoff = min(backoff*2, runBackoffMax)
	}
	return nil
}

// runHeld runs fn under h and gives the lease back, also when fn panics. It
// reports whether fn ended because its work is done, else why it failed.
func (m *Manager) runHeld(ctx context.Context, h *Held, fn func(ctx context.Context, h *Held) error) (done bool, err error) {
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := h.Release(cleanup); err != nil {
			m.log.WarnContext(ctx, "lease runs out instead of being released", "lease", h.name, "error", err)
		}
	}()
	m.log.DebugContext(ctx, "lease acquired", "lease", h.name, "token", h.token)
	err = fn(h.ctx, h)
	if h.ctx.Err() != nil {
		return false, nil // told to stop: whatever it returned is a consequence of that
	}
	return err == nil, err
}

// noteAcquire logs once that leases cannot be acquired for a reason other than
// that they are held.
func (m *Manager) noteAcquire(ctx context.Context, name string, err error, noted bool) bool {
	if errors.Is(err, ErrHeld) || ctx.Err() != nil {
		return false
	}
	if !noted {
		m.log.WarnContext(ctx, "lease cannot be acquired", "lease", name, "error", err)
	}
	return true
}

// standBy waits until it makes sense to try for the lease again.
func (m *Manager) standBy(ctx context.Context, err error, released <-chan struct{}) {
	wait := m.ttl / renewals
	if held, ok := errors.AsType[*heldError](err); ok {
		// At its end at the latest; the holder renews it long before that as a rule.
		wait = max(held.remaining, 0) + afterExpiry
	}
	wait = min(wait, m.ttl)
	timer := time.NewTimer(wait + rand.N(afterExpiry))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-released:
	case <-timer.C:
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
