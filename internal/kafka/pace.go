package kafka

import "time"

// Bounds of a pace.
const (
	// firstBatch is how many records of a partition are handed out together at first.
	firstBatch = 32
	// quickBatch is how long a batch may take for the next one to be larger, slowBatch
	// how long for it not to be smaller.
	quickBatch = time.Second
	slowBatch  = 5 * time.Second
)

// pace says how many records of a partition to hand out together. A batch is all or
// nothing, and one that takes longer than the world stays well would never get done. So
// batches begin small, double while full ones are quick, and halve when they are slow
// or fail.
type pace struct{ size, limit int }

func newPace(limit int) pace { return pace{size: min(firstBatch, limit), limit: limit} }

// done notes that a batch of n records was acked after so long.
func (p *pace) done(n int, took time.Duration) {
	switch {
	case took > slowBatch:
		p.size = max(n/2, 1)
	case took <= quickBatch && n >= p.size:
		p.size = min(2*p.size, p.limit)
	}
}

// failed notes that a batch of n records was nacked.
func (p *pace) failed(n int) { p.size = max(n/2, 1) }
