package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/schedule/cron"
	"github.com/millrace/millrace/internal/trigger"
)

// countMax is up to where missed times are counted.
const countMax = 10_000

// Plan tells the times of a schedule. It is pure and safe for concurrent use.
type Plan struct {
	expression *cron.Expression
	at         []time.Time // in order, each once
	from       time.Time
	until      time.Time
	missed     string
	missedMax  int
	late       time.Duration
	overlap    string
	delay      time.Duration
}

// NewPlan returns the plan of a schedule. The uid of its trigger spreads the jitter. The
// error is a *cron.Error, about an expression or a zone that cannot be read.
func NewPlan(s trigger.Schedule, uid string) (*Plan, error) {
	p := &Plan{
		missed: s.Missed, missedMax: cmp.Or(s.MissedMax, trigger.DefaultMissedMax),
		late: cmp.Or(s.MissedAfter.Std(), trigger.DefaultMissedAfter), overlap: cmp.Or(s.Overlap, trigger.OverlapAllow),
		delay: jitter(uid, s.Jitter.Std()),
	}
	if s.From != nil {
		p.from = *s.From
	}
	if s.Until != nil {
		p.until = *s.Until
	}
	if s.Cron == "" {
		p.missed = cmp.Or(p.missed, trigger.MissedOnce)
		for _, t := range s.At {
			p.at = append(p.at, t.UTC().Truncate(time.Microsecond)) // as the database has it
		}
		slices.SortFunc(p.at, time.Time.Compare)
		p.at = slices.CompactFunc(p.at, time.Time.Equal)
		return p, nil
	}
	p.missed = cmp.Or(p.missed, trigger.MissedSkip)
	var err error
	p.expression, err = cron.Parse(s.Cron, s.TimeZone)
	return p, err
}

// jitter returns the part of a jitter that a trigger has: always the same, so that the
// distances between times stay what they are, and the same in every process.
func jitter(uid string, of time.Duration) time.Duration {
	if of <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(uid))
	part := binary.BigEndian.Uint64(sum[:]) % uint64(of)
	return time.Duration(part).Truncate(time.Millisecond)
}

// Next returns the first time after a given one; the zero time when there is none.
func (p *Plan) Next(after time.Time) time.Time {
	if p.expression == nil {
		n, _ := slices.BinarySearchFunc(p.at, after, func(t, after time.Time) int {
			if t.After(after) {
				return 1
			}
			return -1
		})
		if n == len(p.at) {
			return time.Time{}
		}
		return p.at[n]
	}
	if after.Before(p.from) {
		after = p.from.Add(-1)
	}
	t := p.expression.Next(after)
	if !p.until.IsZero() && t.After(p.until) {
		return time.Time{}
	}
	return t.UTC()
}

// First returns the time with which a schedule begins that is made, changed or switched on:
// the first after now. A one-off time that has just passed counts, since who asks for "now"
// is always late.
func (p *Plan) First(now time.Time) time.Time {
	if p.expression == nil {
		return p.Next(now.Add(-p.late))
	}
	return p.Next(now)
}

// Upcoming returns the next times after a moment, at most n.
func (p *Plan) Upcoming(after time.Time, n int) []time.Time {
	times := make([]time.Time, 0, n)
	for t := p.Next(after); !t.IsZero() && len(times) < n; t = p.Next(t) {
		times = append(times, t)
	}
	return times
}

// Due returns when a time is due: later by the jitter.
func (p *Plan) Due(t time.Time) time.Time { return t.Add(p.delay) }

// Overlap says what becomes of a time while the target of the one before has not ended.
func (p *Plan) Overlap() string { return p.overlap }

// Decision says what follows from a look at a schedule.
type Decision struct {
	// Fire are the times that fire, in their order; of them the first CaughtUp are missed
	// ones that are made up for.
	Fire     []time.Time
	CaughtUp int
	// Missed are the times for which nothing is started; nil when there are none.
	Missed *Missed
	// Next is the next time; zero when there is none.
	Next time.Time
}

// Missed are times that passed while nobody was there.
type Missed struct {
	First, Last time.Time
	// Count is how many, at least so many when More.
	Count int
	More  bool
}

// Decide says what follows when it is now, and next is the next time that was not looked at.
// At most MissedMax times fire at once.
func (p *Plan) Decide(next, now time.Time) Decision {
	var d Decision
	edge := now.Add(-p.delay) // times up to here are due
	cutoff := edge.Add(-p.late)
	if next.Before(cutoff) {
		d = p.passed(next, cutoff)
		next = p.Next(cutoff.Add(-1))
	}
	for ; !next.IsZero() && !next.After(edge) && len(d.Fire) < d.CaughtUp+p.missedMax; next = p.Next(next) {
		d.Fire = append(d.Fire, next)
	}
	d.Next = next
	return d
}

// passed decides about missed times: those from next on, before cutoff.
func (p *Plan) passed(next, cutoff time.Time) Decision {
	var d Decision
	switch p.missed {
	case trigger.MissedOnce:
		d.Fire = p.last(next, cutoff, 1)
	case trigger.MissedAll:
		d.Fire = p.last(next, cutoff, p.missedMax)
	}
	d.CaughtUp = len(d.Fire)
	end := cutoff
	if d.CaughtUp > 0 {
		end = d.Fire[0]
	}
	for t := next; !t.IsZero() && t.Before(end); t = p.Next(t) {
		if d.Missed == nil {
			d.Missed = &Missed{First: t}
		}
		if d.Missed.Count == countMax {
			d.Missed.More = true
			d.Missed.Last = p.last(t, end, 1)[0]
			break
		}
		d.Missed.Count, d.Missed.Last = d.Missed.Count+1, t
	}
	return d
}

// last returns the last n times from next on that are before end. It looks back from the
// end, farther and farther, since there may be a million of them.
func (p *Plan) last(next, end time.Time, n int) []time.Time {
	for back := time.Minute; ; back *= 4 {
		from := end.Add(-back)
		whole := !from.After(next) || back > 1<<60
		if whole {
			from = next
		}
		var found []time.Time
		for t := p.Next(from.Add(-1)); !t.IsZero() && t.Before(end); t = p.Next(t) {
			found = append(found, t)
		}
		if whole || len(found) >= n {
			return found[max(0, len(found)-n):]
		}
	}
}
