package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Backoff is how long to wait between attempts: Initial after the first,
// Multiplier times more after each further one, never more than Max.
type Backoff struct {
	// Initial defaults to 200 ms.
	Initial time.Duration
	// Max defaults to 30 s.
	Max time.Duration
	// Multiplier defaults to 2 and is at least 1.
	Multiplier float64
	// NoJitter makes waits exact. By default each is drawn evenly from zero to the
	// computed value (full jitter), so that consumers that failed together do not
	// come back together.
	NoJitter bool
}

// Defaults of Backoff.
const (
	BackoffInitialDefault    = 200 * time.Millisecond
	BackoffMaxDefault        = 30 * time.Second
	BackoffMultiplierDefault = 2.0
)

// WithDefaults returns b with its zero fields replaced.
func (b Backoff) WithDefaults() Backoff {
	b.Initial = cmp.Or(b.Initial, BackoffInitialDefault)
	b.Max = cmp.Or(b.Max, max(BackoffMaxDefault, b.Initial))
	b.Multiplier = cmp.Or(b.Multiplier, BackoffMultiplierDefault)
	return b
}

// Validate reports every field that makes no sense, after defaults.
func (b Backoff) Validate() error {
	b = b.WithDefaults()
	var errs []error
	if b.Initial < 0 {
		errs = append(errs, fmt.Errorf("backoff initial %s is negative", b.Initial))
	}
	if b.Max < b.Initial {
		errs = append(errs, fmt.Errorf("backoff max %s is below initial %s", b.Max, b.Initial))
	}
	if b.Multiplier < 1 || math.IsInf(b.Multiplier, 0) || math.IsNaN(b.Multiplier) {
		errs = append(errs, fmt.Errorf("backoff multiplier %v is below 1", b.Multiplier))
	}
	return errors.Join(errs...)
}

// Wait returns the wait after the given number of failed attempts (1 or more).
// random is in [0, 1). Wait is pure: the same arguments give the same result.
func (b Backoff) Wait(failed int, random float64) time.Duration {
	wait := float64(b.Initial) * math.Pow(b.Multiplier, float64(max(failed, 1)-1))
	if !b.NoJitter {
		wait = min(wait, float64(b.Max)) * random
	}
	// Compared as floats, so that a huge exponent (Inf) becomes Max instead of an
	// overflowed, negative duration.
	if wait >= float64(b.Max) || math.IsNaN(wait) {
		return b.Max
	}
	return time.Duration(wait)
}
