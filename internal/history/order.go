package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// keys judges the concurrency keys: of each, one at a time, in the order of
// submission, and the next only after the end of the one before.
func (v *verdict) keys(h History) {
	byKey := map[string][]*Life{}
	for _, l := range h.Lives {
		if l.Request.ConcurrencyKey != "" && l.Place > 0 {
			key := fmt.Sprintf("%s/%s", l.Request.Tenant, l.Request.ConcurrencyKey)
			byKey[key] = append(byKey[key], l)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		lives := byKey[key]
		slices.SortFunc(lives, func(a, b *Life) int { return cmp.Compare(a.Place, b.Place) })
		v.turnsOf(key, lives)
	}
}

// turnsOf goes through the executions of one key by their places.
func (v *verdict) turnsOf(key string, lives []*Life) {
	var (
		before *Life     // the one that ended last of those before, or has not ended
		free   time.Time // when it ended
		open   bool      // it has not
	)
	for _, l := range lives {
		for _, hold := range l.Holds() {
			if open {
				v.add("key", key, "%s was admitted at %s, and %s before it has not ended", l.ID, stamp(hold.From), before.ID)
			} else if before != nil && hold.From.Before(free) {
				v.add("key", key, "%s was admitted at %s, and %s before it ended at %s", l.ID, stamp(hold.From), before.ID, stamp(free))
			}
		}
		end, ended := l.End()
		switch {
		case open:
		case !ended:
			before, open = l, true
		case before == nil || end.At.After(free):
			before, free = l, end.At
		}
	}
}

// queueOf names the queue within which executions are alike but for their place:
// none is held up by something that does not hold up the others.
func queueOf(l *Life) string {
	r := l.Request
	return fmt.Sprintf("%s/%s/%s/%s/%+v/%v", r.ResourceClass, r.Tenant, r.User, r.Executor, l.Needs(), r.Labels)
}

// order holds that within one queue nobody is passed over for longer than the rules
// allow. Executions with a concurrency key wait for each other and are left out.
func (v *verdict) order(h History, r Rules) {
	queues := map[string][]Wait{}
	for _, l := range h.Lives {
		if l.Request.ConcurrencyKey != "" {
			continue
		}
		for _, w := range l.Waits() {
			key := fmt.Sprintf("%s/priority %d", queueOf(l), w.Priority)
			queues[key] = append(queues[key], w)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(queues)) {
		v.queue(key, queues[key], r)
	}
}

// queue goes through the waits of one queue from the last place to the first, with
// the times at which those behind were admitted.
func (v *verdict) queue(key string, waits []Wait, r Rules) {
	slices.SortFunc(waits, func(a, b Wait) int { return b.ReadyAt.Compare(a.ReadyAt) })
	type admission struct {
		at   time.Time
		wait Wait
	}
	var behind []admission
	for _, w := range waits {
		// Somebody behind was admitted when this one had been waiting for a while, and
		// this one was not for another while.
		i, _ := slices.BinarySearchFunc(behind, w.From.Add(r.PassedOver), func(a admission, t time.Time) int { return a.at.Compare(t) })
		if i < len(behind) && (w.To.IsZero() || w.To.Sub(behind[i].at) > r.PassedOver) && w.ReadyAt.Before(behind[i].wait.ReadyAt) {
			v.add("order", key, "%s waits since %s; %s behind it was admitted at %s, it at %s",
				w.Life.ID, stamp(w.From), behind[i].wait.Life.ID, stamp(behind[i].at), stamp(w.To))
			return
		}
		if w.Admitted {
			at, _ := slices.BinarySearchFunc(behind, w.To, func(a admission, t time.Time) int { return a.at.Compare(t) })
			behind = slices.Insert(behind, at, admission{w.To, w})
		}
	}
}
