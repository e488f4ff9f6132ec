package admission

import (
	"math"
	"slices"

	"github.com/millrace/millrace/topics"
)

// Kind is a kind of resource.
type Kind int

// The kinds of resources.
const (
	Slots Kind = iota
	CPUMillis
	MemoryBytes
	GPUs
	kinds
)

// Resources is an amount of each kind.
type Resources [kinds]int64

// Unlimited is the amount of a resource that nobody counts.
const Unlimited = math.MaxInt64 / 1024

// Need returns what an execution with these requirements holds while it is
// scheduled or running: at least one slot.
func Need(r topics.Requirements) Resources {
	return Resources{
		Slots: int64(max(r.Slots, 1)), CPUMillis: r.CPUMillis, MemoryBytes: r.MemoryBytes, GPUs: int64(r.GPUs),
	}
}

// Plus returns the sum of both.
func (r Resources) Plus(o Resources) Resources {
	for k := range r {
		r[k] = min(r[k]+o[k], Unlimited)
	}
	return r
}

// Minus returns what is left of r without o; it may be negative. An unlimited
// amount stays unlimited.
func (r Resources) Minus(o Resources) Resources {
	for k := range r {
		if r[k] < Unlimited {
			r[k] -= o[k]
		}
	}
	return r
}

// Times returns n times r.
func (r Resources) Times(n int64) Resources {
	for k := range r {
		r[k] *= n
	}
	return r
}

// Holds reports whether need fits into r. What is not needed always fits.
func (r Resources) Holds(need Resources) bool {
	for k := range r {
		if need[k] > 0 && need[k] > r[k] {
			return false
		}
	}
	return true
}

// Worker is what one worker of a class offers.
type Worker struct {
	// Resources is what it has in all; Unlimited where it does not count.
	Resources Resources
	Executors []string
	// Pools are those in whose room some of its executors run things, at most one for each.
	Pools []Pool
}

// Capacity is what a class has.
type Capacity struct {
	Workers []Worker
	// Cap bounds what may be in use at once, beyond what the workers offer. Zero is no
	// bound.
	Cap Resources
}

// Total returns what may be in use at once. The room of a pool counts once, however many
// workers share it, and no more of it than they have between them.
func (c Capacity) Total() Resources {
	var total Resources
	shared := map[string]Resources{}
	for _, w := range c.Workers {
		if name, whole := w.pooled(); whole {
			shared[name] = shared[name].Plus(w.Resources)
			continue
		}
		total = total.Plus(w.Resources)
	}
	for name, own := range shared {
		total = total.Plus(least(own, c.pool(func(p Pool) bool { return p.Name == name })))
	}
	return c.capped(total)
}

// capped returns r, but no more of any kind than the cap.
func (c Capacity) capped(r Resources) Resources {
	for k, limit := range c.Cap {
		if limit > 0 {
			r[k] = min(r[k], limit)
		}
	}
	return r
}

// Offers reports whether a worker offers the executor, and knows of the room that it has.
func (c Capacity) Offers(executor string) bool {
	return slices.ContainsFunc(c.Workers, func(w Worker) bool {
		_, offers := w.Gives(executor)
		return offers
	})
}

// Servable reports whether some worker could ever run an execution that needs so
// much with that executor.
func (c Capacity) Servable(executor string, need Resources) bool {
	return slices.ContainsFunc(c.Workers, func(w Worker) bool {
		all, offers := w.Gives(executor)
		return offers && c.capped(all).Holds(need)
	})
}

func (c Capacity) equal(o Capacity) bool {
	return c.Cap == o.Cap && slices.EqualFunc(c.Workers, o.Workers, func(a, b Worker) bool {
		return a.Resources == b.Resources && slices.Equal(a.Executors, b.Executors) && slices.Equal(a.Pools, b.Pools)
	})
}
