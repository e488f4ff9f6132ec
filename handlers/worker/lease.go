package worker

import (
	"sync"
	"time"
)

// localLease is the worker's view of one lease: the moment at which the attempt
// must be dead. It implements executor.Lease.
type localLease struct {
	mu       sync.Mutex
	deadline time.Time
	extended chan struct{}
}

func newLocalLease(deadline time.Time) *localLease {
	return &localLease{deadline: deadline, extended: make(chan struct{})}
}

// Deadline implements executor.Lease.
func (l *localLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Extended implements executor.Lease.
func (l *localLease) Extended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extended
}

// extend moves the deadline forward. A deadline that has passed stays where it
// is: the attempt is dead already, or about to be.
func (l *localLease) extend(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !deadline.After(l.deadline) || !time.Now().Before(l.deadline) {
		return
	}
	l.deadline = deadline
	close(l.extended)
	l.extended = make(chan struct{})
}
