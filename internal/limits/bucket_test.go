package limits_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/limits"
)

func definitions() *rapid.Generator[limits.Definition] {
	return rapid.Custom(func(t *rapid.T) limits.Definition {
		return limits.Definition{
			Name: "x", Per: limits.PerUser,
			Rate: limits.Rate{
				Tokens: rapid.IntRange(1, 1000).Draw(t, "tokens"),
				Per:    time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "per")),
			},
			Burst: rapid.IntRange(0, 50).Draw(t, "burst"),
		}
	})
}

// taken is that so many tokens were taken at a time.
type taken struct {
	at int64
	n  int
}

func burst(d limits.Definition) int {
	if d.Burst > 0 {
		return d.Burst
	}
	return d.Rate.Tokens
}

// most is what may be taken within a window, computed another way than the bucket
// does: burst + rate*t in whole tokens.
func most(d limits.Definition, window int64) float64 {
	return float64(burst(d)) + float64(d.Rate.Tokens)*float64(window)/float64(d.Rate.Per)
}

func requireWithinRate(t *rapid.T, d limits.Definition, log []taken) {
	for i := range log {
		sum := 0
		for _, e := range log[i:] {
			sum += e.n
			if allowed := most(d, e.at-log[i].at); float64(sum) > allowed+1e-6 {
				t.Fatalf("%s burst %d: %d tokens within %s, allowed are %g", d.Rate, burst(d), sum, time.Duration(e.at-log[i].at), allowed)
			}
		}
	}
}

const epoch = int64(1_800_000_000_000_000_000)

func TestNoWindowHasMoreThanItsRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := definitions().Draw(t, "limit")
		tat, now := int64(0), epoch
		var log []taken
		for range rapid.IntRange(1, 200).Draw(t, "asks") {
			now += rapid.Int64Range(0, 3*int64(d.Rate.Interval())).Draw(t, "pause")
			n := rapid.IntRange(1, 3).Draw(t, "n")
			next, wait := d.Take(tat, now, n)
			if wait > 0 {
				if next != tat {
					t.Fatalf("nothing was taken, yet the bucket changed by %d", next-tat)
				}
				continue
			}
			tat, log = next, append(log, taken{now, n})
		}
		requireWithinRate(t, d, log)
	})
}

// Whoever waits as long as it is told gets its tokens if nobody else takes any, and
// could not have had them a nanosecond earlier.
func TestTheWaitIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := definitions().Draw(t, "limit")
		n := rapid.IntRange(1, burst(d)).Draw(t, "n")
		now := epoch
		tat := now + rapid.Int64Range(-int64(time.Hour), int64(d.Rate.Interval())*int64(burst(d))).Draw(t, "tat")
		_, wait := d.Take(tat, now, n)
		if wait == 0 {
			return
		}
		if wait > d.Rate.Interval()*time.Duration(n) {
			t.Fatalf("waits %s for %d tokens of %s", wait, n, d.Rate)
		}
		if _, early := d.Take(tat, now+int64(wait)-1, n); early != 1 {
			t.Fatalf("a nanosecond too early it waits %s", early)
		}
		if _, later := d.Take(tat, now+int64(wait), n); later != 0 {
			t.Fatalf("after waiting it is told to wait %s", later)
		}
	})
}

// Coordinators that take in any order, some of which do not commit, on a clock that is
// set back by little, again and again: in the time that really passes no window has
// more than its rate, and what was rolled back is there for the next.
func TestNoInterleavingTakesMoreThanTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := definitions().Draw(t, "limit")
		var tat, passed int64
		var log []taken
		slow := int64(0) // by how much the clock was set back in all
		for range rapid.IntRange(1, 200).Draw(t, "transactions") {
			passed += rapid.Int64Range(0, 2*int64(d.Rate.Interval())).Draw(t, "pause")
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				slow += rapid.Int64Range(0, int64(limits.MaxSkew)-slow).Draw(t, "back")
			}
			n := rapid.IntRange(1, 3).Draw(t, "n")
			now := epoch + passed - slow
			next, wait := d.Take(tat, now, n)
			again, waitAgain := d.Take(tat, now, n)
			if next != again || wait != waitAgain {
				t.Fatalf("a repeated transaction decides otherwise")
			}
			if wait == 0 && rapid.IntRange(0, 4).Draw(t, "commits") > 0 {
				tat, log = next, append(log, taken{passed, n})
			}
		}
		requireWithinRate(t, d, log)
	})
}

// A clock that is set back: in the time that really passes no more is let through than
// without, but for one with each large step, and who keeps asking gets a token in
// bounded time.
func TestAClockThatIsSetBackLetsNoMoreThroughAndStarvesNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := definitions().Draw(t, "limit")
		var tat, passed, offset int64
		var log []taken
		steps := 0
		denied := int64(0) // how long nothing was taken
		longest := int64(limits.MaxSkew) + 2*int64(d.Rate.Interval())
		for range rapid.IntRange(1, 200).Draw(t, "asks") {
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				offset -= rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "back")
				denied, steps = 0, steps+1
			}
			pause := rapid.Int64Range(1, 2*int64(d.Rate.Interval())).Draw(t, "pause")
			passed += pause
			now := epoch + passed + offset
			next, wait := d.Take(tat, now, 1)
			full := int64(d.Rate.Interval()) * int64(burst(d))
			if tat-now > full+int64(limits.MaxSkew) {
				if steps--; steps < 0 || wait > 0 || next != now+full {
					t.Fatalf("one is let through after a step, and the bucket is empty then")
				}
				tat, denied = next, 0
				continue
			}
			tat = next
			if wait == 0 {
				log, denied = append(log, taken{passed, 1}), 0
				continue
			}
			if denied += pause; denied > longest {
				t.Fatalf("nothing was taken for %s", time.Duration(denied))
			}
		}
		requireWithinRate(t, d, log)
	})
}

// A stale reading of the clock must not look like a clock that was set back, or
// each would give tokens away.
func TestAnOldReadingGivesNothingAway(t *testing.T) {
	t.Parallel()
	d := limits.Definition{Rate: limits.Rate{Tokens: 1, Per: time.Second}, Burst: 2}
	tat := epoch + int64(2*time.Second) // empty as of epoch
	next, wait := d.Take(tat, epoch-int64(limits.MaxSkew), 1)
	assert.Equal(t, tat, next)
	assert.Equal(t, limits.MaxSkew+time.Second, wait)
}

func TestTakeAtItsEdges(t *testing.T) {
	t.Parallel()
	d := limits.Definition{Rate: limits.Rate{Tokens: 3, Per: time.Second}, Burst: 3}
	next, wait := d.Take(0, epoch, 3)
	assert.Zero(t, wait)
	assert.Equal(t, epoch+3*333_333_334, next, "the interval is rounded up")
	_, wait = d.Take(next, epoch, 1)
	assert.Equal(t, 333_333_334*time.Nanosecond, wait)
	next, wait = d.Take(0, epoch, 4)
	assert.Equal(t, limits.Never, wait, "the bucket never holds as many")
	assert.Zero(t, next)
	next, wait = d.Take(5, epoch, 0)
	assert.Zero(t, wait)
	assert.EqualValues(t, 5, next)
	next, wait = limits.Definition{Concurrency: 1}.Take(5, epoch, 1)
	assert.Zero(t, wait, "no rate")
	assert.EqualValues(t, 5, next)
}

func TestTokensAreThoseThatCanBeTaken(t *testing.T) {
	t.Parallel()
	assert.Zero(t, limits.Definition{Concurrency: 1}.Tokens(0, epoch))
	rapid.Check(t, func(t *rapid.T) {
		d := definitions().Draw(t, "limit")
		tat := epoch + rapid.Int64Range(-int64(time.Hour), int64(d.Rate.Interval())*int64(burst(d))+int64(limits.MaxSkew)).Draw(t, "tat")
		n := d.Tokens(tat, epoch)
		if n > 0 {
			if _, wait := d.Take(tat, epoch, n); wait != 0 {
				t.Fatalf("%d tokens cannot be taken", n)
			}
		}
		if _, wait := d.Take(tat, epoch, n+1); wait == 0 {
			t.Fatalf("more than %d tokens can be taken", n)
		}
	})
}
