package middleware

import (
	"cmp"
	"errors"
	"sync"
)

// ErrTooManyFaults reports that a consumer fails so often that its records are
// no longer believed to be the reason. Its partitions stall instead of filling
// the dead-letter topic.
var ErrTooManyFaults = errors.New("too many faults")

// Breaker says when a consumer has failed too often: at least Faults of the
// last Window records, and more than half of those seen.
type Breaker struct {
	// Faults defaults to 20. Negative turns the breaker off.
	Faults int
	// Window defaults to 100.
	Window int
}

// Defaults of Breaker.
const (
	BreakerFaultsDefault = 20
	BreakerWindowDefault = 100
)

func (b Breaker) withDefaults() Breaker {
	b.Faults = cmp.Or(b.Faults, BreakerFaultsDefault)
	b.Window = cmp.Or(b.Window, BreakerWindowDefault)
	return b
}

// faultWindow remembers how the last records of a consumer went. It is shared
// by all partitions: a bad release fails on all of them.
type faultWindow struct {
	limit Breaker

	mu     sync.Mutex
	ring   []bool
	next   int
	seen   int
	faults int
}

func newFaultWindow(b Breaker) *faultWindow {
	return &faultWindow{limit: b, ring: make([]bool, max(b.Window, 1))}
}

// note records one record's end. A record that stalls is not noted again with
// each redelivery, or a single one could open the breaker.
func (w *faultWindow) note(faulty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == len(w.ring) && w.ring[w.next] {
		w.faults--
	}
	w.ring[w.next] = faulty
	if faulty {
		w.faults++
	}
	w.next = (w.next + 1) % len(w.ring)
	w.seen = min(w.seen+1, len(w.ring))
}

// open reports whether one more fault would be one too many.
func (w *faultWindow) open() bool {
	if w.limit.Faults < 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults >= w.limit.Faults && 2*w.faults > w.seen
}
