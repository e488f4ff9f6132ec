package kafka

import "time"

// Clock is the time that backoff and status go by. Tests replace it.
type Clock interface {
	Now() time.Time
	// After returns a channel that delivers once d has passed, and a function
	// that releases it early.
	After(d time.Duration) (<-chan time.Time, func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) (<-chan time.Time, func()) {
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}
