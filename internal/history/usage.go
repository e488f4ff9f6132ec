package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Resources are an amount of everything that a class has. As a bound, 0 is no
// bound.
type Resources struct {
	Slots       int64
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int64
}

// Needs returns what the execution takes while it is admitted.
func (l *Life) Needs() Resources {
	r := l.Request.Requirements
	return Resources{
		Slots: int64(max(r.Slots, 1)), CPUMillis: r.CPUMillis, MemoryBytes: r.MemoryBytes, GPUs: int64(r.GPUs),
	}
}

// plus adds n times the other.
func (r Resources) plus(o Resources, n int64) Resources {
	return Resources{
		Slots: r.Slots + n*o.Slots, CPUMillis: r.CPUMillis + n*o.CPUMillis,
		MemoryBytes: r.MemoryBytes + n*o.MemoryBytes, GPUs: r.GPUs + n*o.GPUs,
	}
}

// exceeds says in words what is above the bound.
func (r Resources) exceeds(bound Resources) string {
	for _, x := range []struct {
		what     string
		used, of int64
	}{
		{"slots", r.Slots, bound.Slots}, {"cpu_millis", r.CPUMillis, bound.CPUMillis},
		{"memory_bytes", r.MemoryBytes, bound.MemoryBytes}, {"gpus", r.GPUs, bound.GPUs},
	} {
		if x.of > 0 && x.used > x.of {
			return fmt.Sprintf("%d %s in use of %d", x.used, x.what, x.of)
		}
	}
	return ""
}

// turn is a moment at which something is taken (n 1) or given back (n -1).
type turn struct {
	at   time.Time
	n    int64
	life *Life
}

// turns are the moments of the holds in the order of time; at one moment what is
// given back comes first, since it can be taken at once. Holds of no length take
// nothing.
func turns(holds []Hold) []turn {
	var all []turn
	for _, h := range holds {
		if h.From.Equal(h.To) {
			continue
		}
		all = append(all, turn{h.From, 1, h.Life})
		if !h.To.IsZero() {
			all = append(all, turn{h.To, -1, h.Life})
		}
	}
	slices.SortStableFunc(all, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.n, b.n)) })
	return all
}

// capacity holds the use of each class against its bound, at every instant.
func (v *verdict) capacity(h History, bounds map[string]Resources) {
	byClass := map[string][]Hold{}
	for _, l := range h.Lives {
		class := l.Request.ResourceClass
		if _, bounded := bounds[class]; bounded {
			byClass[class] = append(byClass[class], l.Holds()...)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		var used Resources
		above := false
		for _, t := range turns(byClass[class]) {
			used = used.plus(t.life.Needs(), t.n)
			much := used.exceeds(bounds[class])
			if much != "" && !above {
				v.add("capacity", class, "%s at %s, with %s", much, stamp(t.at), t.life.ID)
			}
			above = much != ""
		}
	}
}

// Peaks returns the most that was in use at once, by class.
func Peaks(h History) map[string]Resources {
	byClass := map[string][]Hold{}
	for _, l := range h.Lives {
		byClass[l.Request.ResourceClass] = append(byClass[l.Request.ResourceClass], l.Holds()...)
	}
	peaks := map[string]Resources{}
	for class, holds := range byClass {
		var used, peak Resources
		for _, t := range turns(holds) {
			used = used.plus(t.life.Needs(), t.n)
			peak = Resources{
				Slots: max(peak.Slots, used.Slots), CPUMillis: max(peak.CPUMillis, used.CPUMillis),
				MemoryBytes: max(peak.MemoryBytes, used.MemoryBytes), GPUs: max(peak.GPUs, used.GPUs),
			}
		}
		peaks[class] = peak
	}
	return peaks
}
