package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Limit is one limit as the judge sees it: a bound for each of its keys.
type Limit struct {
	Name string
	// Key returns the key that an execution counts under; not ok where the limit does
	// not concern it.
	Key func(l *Life) (key string, ok bool)
	// Every is the time in which one more is let through; 0 is no limit of the rate.
	Every time.Duration
	// Burst is how many may be let through at once. At least 1.
	Burst int
	// AtQueue says that what is over the limit is rejected instead of queued: then it
	// is spent by being queued, once, and not by each admission.
	AtQueue bool
	// Concurrency is how many may be admitted at once; 0 is no limit of that.
	Concurrency int
	// Slack is how far the stamp of an event may lie from the moment of the decision.
	Slack time.Duration
}

// spent returns when the execution was let through.
func (limit Limit) spent(l *Life) []time.Time {
	var at []time.Time
	for _, e := range l.Events {
		if limit.AtQueue && e.Type == Queued || !limit.AtQueue && e.Type == Scheduled {
			at = append(at, e.At)
		}
	}
	return at
}

// limit judges one limit, key by key.
func (v *verdict) limit(h History, limit Limit) {
	spent, holds := map[string][]time.Time{}, map[string][]Hold{}
	for _, l := range h.Lives {
		if key, ok := limit.Key(l); ok {
			spent[key] = append(spent[key], limit.spent(l)...)
			holds[key] = append(holds[key], l.Holds()...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spent)) {
		subject := fmt.Sprintf("%s of %q", limit.Name, key)
		if limit.Every > 0 {
			v.rate(subject, limit, spent[key])
		}
		if limit.Concurrency > 0 {
			v.concurrency(subject, limit.Concurrency, holds[key])
		}
	}
}

// rate holds that in no window more were let through than burst + window/every. A
// bucket that is full at the first one tells: where the next one comes before the
// bucket has a token again, the window that begins where the bucket was full last
// has too many.
func (v *verdict) rate(subject string, limit Limit, times []time.Time) {
	slices.SortFunc(times, time.Time.Compare)
	burst := max(limit.Burst, 1)
	var (
		full  time.Time // when the bucket is full again
		since int       // the first one after it was full last
	)
	for i, at := range times {
		if !at.Before(full) {
			full, since = at, i
		}
		full = full.Add(limit.Every)
		if over := full.Sub(at) - time.Duration(burst)*limit.Every; over > limit.Slack {
			v.add("rate", subject, "%d from %s to %s, %s too early for %d and one more every %s",
				i-since+1, stamp(times[since]), stamp(at), over, burst, limit.Every)
			return
		}
	}
}

// concurrency holds that at no instant more are admitted than may be.
func (v *verdict) concurrency(subject string, most int, holds []Hold) {
	used := 0
	for _, t := range turns(holds) {
		if used += int(t.n); used > most {
			v.add("concurrency", subject, "%d are admitted at %s, with %s; %d may be", used, stamp(t.at), t.life.ID, most)
			return
		}
	}
}
