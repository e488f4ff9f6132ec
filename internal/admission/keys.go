package admission

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/limits"
)

// Bucket is the state of one key of a limit, as the tables have it.
type Bucket struct {
	limits.Key
	// Tat is the bucket's time, see limits.Definition.Take; 0 for one that is full.
	Tat int64
	// InUse is how many executions of the key are scheduled or running.
	InUse int64
}

// key is a key of a limit with the flows that sleep at it.
type key struct {
	Bucket
	limit limits.Definition
	// inForce is false when no limit of that name is configured any more.
	inForce  bool
	sleepers map[*flow]struct{}
	// opensAt is when the next token comes, while flows sleep for one; zero while they
	// sleep for the end of an execution.
	opensAt time.Time
	// flows is how many flows are under the key.
	flows int
}

// Spend takes from a bucket what one execution needs of its limit. It reports false,
// and when to ask again, if there is nothing to take; zero is when one of the key has
// ended. A rate that rejects was asked when the execution was submitted.
func Spend(limit limits.Definition, b *Bucket, now time.Time) (until time.Time, ok bool) {
	if limit.Concurrency > 0 && b.InUse >= int64(limit.Concurrency) {
		return time.Time{}, false
	}
	if limit.Action == limits.Queue {
		next, wait := limit.Take(b.Tat, now.UnixNano(), 1)
		b.Tat = next
		if wait > 0 {
			return now.Add(wait), false
		}
	}
	if limit.Concurrency > 0 {
		b.InUse++
	}
	return time.Time{}, true
}

// Waits reports whether a limit can make an execution wait, so that its key is one of
// the flow's.
func Waits(limit limits.Definition) bool {
	return limit.Concurrency > 0 || limit.Action == limits.Queue
}

// take spends what one execution needs of the key.
func (k *key) take(now time.Time) (until time.Time, ok bool) {
	if !k.inForce {
		return time.Time{}, true
	}
	return Spend(k.limit, &k.Bucket, now)
}

// open returns how many executions the key would let through now, at most limit.
func (k *key) open(now time.Time, limit int) int {
	trial := *k
	n := 0
	for n < limit {
		if _, ok := trial.take(now); !ok {
			break
		}
		n++
	}
	return n
}

// blocks reports whether the key lets nothing through now, and until when.
func (k *key) blocks(now time.Time) (until time.Time, blocked bool) {
	trial := *k
	until, ok := trial.take(now)
	return until, !ok
}

// keyOf returns the state of a key, which is made when it is new.
func (q *Queue) keyOf(name limits.Key) *key {
	k, ok := q.keys[name]
	if !ok {
		// Where no limit of that name is configured any more, none is in force.
		k = &key{Bucket: Bucket{Key: name}, sleepers: map[*flow]struct{}{}}
		k.limit, k.inForce = q.cfg.Limits.Lookup(name.Limit)
		q.keys[name] = k
		if k.inForce {
			q.unasked = append(q.unasked, name)
		}
	}
	return k
}

// blockerOf returns a key that keeps the flow from going on, if there is one.
func (q *Queue) blockerOf(l *flow) *key {
	for _, name := range l.Keys {
		k := q.keys[name]
		if until, blocked := k.blocks(q.now); blocked {
			k.opensAt = until
			return k
		}
	}
	return nil
}

// sleep puts a flow to sleep at a key.
func (q *Queue) sleep(l *flow, k *key) {
	l.blocker = k
	k.sleepers[l] = struct{}{}
	q.alarm(k)
}

func (q *Queue) alarm(k *key) {
	if len(k.sleepers) == 0 || k.opensAt.IsZero() {
		q.alarms.remove(k)
		return
	}
	q.alarms.put(k)
}

// spareFlows is how many more flows are woken than a key would let through: each
// choice changes the order among them.
const spareFlows = 16

// wakeSleepers wakes about as many flows as the key would let through, those that come
// first: all others would only have to be put to sleep again.
func (q *Queue) wakeSleepers(k *key) {
	q.alarms.remove(k)
	k.opensAt = time.Time{}
	n := k.open(q.now, len(k.sleepers))
	if n > 0 {
		n += spareFlows
	}
	waiting := make([]*flow, 0, len(k.sleepers))
	for l := range k.sleepers {
		if !l.owner.held {
			waiting = append(waiting, l)
		}
	}
	if n < len(waiting) {
		slices.SortFunc(waiting, q.compare)
	}
	woken := 0
	for _, l := range waiting {
		if woken == n {
			break
		}
		delete(k.sleepers, l)
		l.blocker = nil
		// It may go on sleeping, at another key.
		if q.settle(l); l.band != away {
			woken++
		}
	}
	if until, blocked := k.blocks(q.now); blocked {
		k.opensAt = until
	} else if woken > 0 {
		// What was woken has not spent anything yet: ask again in the next round.
		k.opensAt = q.now
	}
	q.alarm(k)
}

// compare is the order in which flows that are woken would be chosen.
func (q *Queue) compare(a, b *flow) int {
	x, _ := q.bandOf(a)
	y, _ := q.bandOf(b)
	switch {
	case x != y:
		return y - x
	case a.owner == b.owner:
		if earlierHead(a, b) {
			return -1
		}
		return 1
	case a.owner.first(b.owner):
		return -1
	default:
		return 1
	}
}

// Know takes over what the tables say of keys: of all that were asked for, also
// those of which nothing is stored.
func (q *Queue) Know(buckets []Bucket) {
	for _, b := range buckets {
		k, ok := q.keys[b.Key]
		if !ok {
			continue
		}
		k.Bucket = b
		if len(k.sleepers) > 0 {
			q.wakeSleepers(k)
		}
	}
}

// Unasked returns the keys that the tables were not asked for yet, and forgets that.
func (q *Queue) Unasked() []limits.Key {
	names := q.unasked
	q.unasked = nil
	return names
}

// Asleep returns keys at which flows sleep, at most limit of them. Since others may
// change them, the tables should be asked now and then.
func (q *Queue) Asleep(limit int) []limits.Key {
	var names []limits.Key
	for name, k := range q.keys {
		if len(names) == limit {
			break
		}
		if len(k.sleepers) > 0 {
			names = append(names, name)
		}
	}
	return names
}
