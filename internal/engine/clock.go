package engine

import (
	"sync"
	"time"
)

// clockTrust is how long the clock of the database is told from that of this machine
// before it is read again.
const clockTrust = 10 * time.Second

// clock tells the time of the database's clock without asking it, for transactions that
// would have to ask for nothing else. It is never ahead of it: what begins now could not
// be claimed at once otherwise.
type clock struct {
	mu sync.Mutex
	// read is when (of this machine) at was the time at the latest.
	read time.Time
	at   time.Time
}

// note takes a reading. The database gave it at some moment before now.
func (c *clock) note(at time.Time, sent time.Time) {
	now := time.Now()
	if now.Sub(sent) > time.Second {
		return // it waited for locks: too far behind to be of use
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.at = now, at
}

// now returns the time, and false when it was not read lately.
func (c *clock) now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Since(c.read)
	if c.read.IsZero() || since > clockTrust {
		return time.Time{}, false
	}
	return c.at.Add(since).UTC().Truncate(time.Microsecond), true
}
