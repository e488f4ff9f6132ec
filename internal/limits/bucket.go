package limits

import (
	"math"
	"time"
)

// MaxSkew is by how much a reading of the clock may lie behind an earlier one and
// still be taken for an old reading. More than that is a clock that was set back.
const MaxSkew = time.Minute

// Never is the wait for what can never be taken: more tokens than the bucket holds.
const Never = time.Duration(math.MaxInt64)

// Take takes n tokens at once, or none. tat is what the bucket keeps: when it will
// be full, in nanoseconds since 1970; 0 is a bucket that nobody has taken from. now
// is the time, in nanoseconds since 1970, of a clock that all who take from the
// bucket share, read while they hold its lock.
//
// wait is 0 when the tokens were taken, and next is what the bucket keeps then.
// Otherwise next is tat, and wait is how long to wait before it is worth another try
// if nobody else takes any.
//
// A clock that is set back by up to MaxSkew lets no more through; who asks waits for
// it to get where it was. After more than that the first who asks is let through, and
// the bucket is empty after it: so a step back costs at most one such n beyond the
// rate, and nobody is held up by it for longer than MaxSkew. A clock that is set
// forward fills the bucket, as if that time had passed.
//
// A definition without a rate takes any number of tokens, n below 1 takes none, and n
// above the burst waits Never.
func (d Definition) Take(tat, now int64, n int) (next int64, wait time.Duration) {
	interval := int64(d.Rate.Interval())
	if interval == 0 || n < 1 {
		return tat, 0
	}
	if n > d.burst() {
		return tat, Never
	}
	fill := interval * int64(d.burst())
	if tat-now > fill+int64(MaxSkew) {
		return now + fill, 0
	}
	full := max(tat, now) + interval*int64(n)
	if over := full - now - fill; over > 0 {
		return tat, time.Duration(over)
	}
	return full, 0
}

// Tokens returns how many tokens a bucket has at a time, at most its burst. For a
// definition without a rate it is 0.
func (d Definition) Tokens(tat, now int64) int {
	interval := int64(d.Rate.Interval())
	if interval == 0 {
		return 0
	}
	fill := interval * int64(d.burst())
	missing := min(max(tat-now, 0), fill)
	return int((fill - missing) / interval)
}
