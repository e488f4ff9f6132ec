package history

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
)

// Rules are what the decisions of a run are held against. The zero value judges
// what holds without any: the lives and the concurrency keys.
type Rules struct {
	// Capacity is the most that may be in use at once, by resource class. A class
	// that is not in it is not judged.
	Capacity map[string]Resources
	Limits   []Limit
	// PassedOver is for how long an execution may wait behind one that comes after it
	// in the same queue, with the same priority. 0: the order is not judged.
	PassedOver time.Duration
	// Settled asks that every execution has ended.
	Settled bool
	// Purged says that rows and events of before may be missing: histories are judged
	// from the first event that is left.
	Purged bool
}

// Judge holds a history against the rules and returns what is wrong, in the order
// of the checks. It is empty when all is well.
func Judge(h History, r Rules) []Violation {
	v := &verdict{}
	for _, l := range h.Lives {
		l.arrange()
		v.life(l, r)
	}
	v.capacity(h, r.Capacity)
	for _, limit := range r.Limits {
		v.limit(h, limit)
	}
	v.keys(h)
	if r.PassedOver > 0 {
		v.order(h, r)
	}
	return v.found
}

// life judges one execution for itself.
func (v *verdict) life(l *Life, r Rules) {
	v.sequence(l, r)
	v.attempts(l)
	v.state(l, r)
}

// sequence holds that no event is missing, none happened twice, and each was legal
// where it stands.
func (v *verdict) sequence(l *Life, r Rules) {
	at := execution.State("")
	next := int64(1)
	if r.Purged && len(l.Events) > 0 {
		next = l.Events[0].Sequence
	}
	var last Event
	known := next == 1
	for _, e := range l.Events {
		switch {
		case e.Sequence < next:
			v.add("sequence", l.ID, "two events have place %d: %s and %s", e.Sequence, last.Type, e.Type)
		case e.Sequence > next:
			v.add("sequence", l.ID, "events %d to %d are missing before %s", next, e.Sequence-1, e.Type)
			known = false
		}
		if e.At.Before(last.At) {
			v.add("sequence", l.ID, "%s at %s is behind %s at %s", e.Type, stamp(e.At), last.Type, stamp(last.At))
		}
		to, changes := execution.StateAfter(typePrefix + e.Type + typeSuffix)
		if changes && known && !legal(at, e) {
			v.add("sequence", l.ID, "%s (event %d) in state %s", e.Type, e.Sequence, name(at))
		}
		if !changes && known && at.Terminal() && !e.ofPod() {
			v.add("sequence", l.ID, "%s (event %d) after the end", e.Type, e.Sequence)
		}
		if changes {
			at, known = to, true
		}
		next, last = max(next, e.Sequence+1), e
	}
}

// legal asks the code's own table.
func legal(from execution.State, e Event) bool {
	return slices.ContainsFunc(execution.Transitions(), func(t execution.Transition) bool {
		return t.From == from && t.Event == typePrefix+e.Type+typeSuffix
	})
}

// attempts holds that nothing was decided twice for one attempt, and that the
// fencing token only rises.
func (v *verdict) attempts(l *Life) {
	scheduled, started, issued := map[int]int{}, map[int]int{}, map[int]int{}
	current := 0
	for _, e := range l.Events {
		switch e.Type {
		case Queued, Requeued:
			if current > 0 && e.Attempt != current+1 {
				v.add("once", l.ID, "%s leads from attempt %d to %d", e.Type, current, e.Attempt)
			}
			current = e.Attempt
		case Scheduled, Started, Completed, Failed, Expired, Quarantined:
			if current > 0 && e.Attempt != current {
				v.add("once", l.ID, "%s of attempt %d at attempt %d", e.Type, e.Attempt, current)
			}
		}
		switch e.Type {
		case Scheduled:
			scheduled[e.Attempt]++
		case Started:
			started[e.Attempt]++
		}
	}
	for _, t := range l.Tasks {
		issued[t.Attempt]++
	}
	for what, counts := range map[string]map[int]int{"admitted": scheduled, "started": started, "issued as a task": issued} {
		for _, attempt := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[attempt]; n > 1 {
				v.add("once", l.ID, "attempt %d was %s %d times", attempt, what, n)
			}
		}
	}
	for _, attempt := range slices.Sorted(maps.Keys(scheduled)) {
		if len(l.Tasks) > 0 && issued[attempt] == 0 {
			v.add("once", l.ID, "attempt %d was admitted without a task", attempt)
		}
	}
	for _, attempt := range slices.Sorted(maps.Keys(issued)) {
		if len(l.Events) > 0 && l.Events[0].Sequence == 1 && scheduled[attempt] == 0 {
			v.add("once", l.ID, "attempt %d was issued as a task and not admitted", attempt)
		}
	}
}

// state holds the row against the events, and asks for an end where all is settled.
func (v *verdict) state(l *Life, r Rules) {
	told := execution.State("")
	var last int64
	for _, e := range l.Events {
		last = max(last, e.Sequence)
		if to, changes := execution.StateAfter(typePrefix + e.Type + typeSuffix); changes {
			told = to
		}
	}
	switch {
	case l.State == "" && r.Purged, len(l.Events) == 0 && r.Purged:
	case l.State == "":
		v.add("state", l.ID, "has %d events and no row", len(l.Events))
	case l.State != told:
		v.add("state", l.ID, "is %s, its events say %s", l.State, name(told))
	case l.Version != last:
		v.add("state", l.ID, "has version %d, its last event is %d", l.Version, last)
	}
	if r.Settled && l.State != "" && !l.State.Terminal() {
		v.add("forgotten", l.ID, "is still %s at attempt %d", l.State, l.Attempt)
	}
}

func name(s execution.State) string {
	if s == "" {
		return "nothing"
	}
	return string(s)
}

// stamp is a time as it is told: the microseconds matter, the day does not.
func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// Summary is the violations as text, at most perCheck of each check.
func Summary(found []Violation, perCheck int) string {
	var out strings.Builder
	shown := map[string]int{}
	for _, x := range found {
		shown[x.Check]++
		switch n := shown[x.Check]; {
		case n <= perCheck:
			out.WriteString("  " + x.String() + "\n")
		case n == perCheck+1:
			out.WriteString("  " + x.Check + ": ... and more\n")
		}
	}
	return out.String()
}
