package admission

import "slices"

// Pool is room that is not a worker's own: that of a cluster, for example, where one of
// its executors runs things. Workers with the same pool share it.
type Pool struct {
	// Executor is whose attempts run there.
	Executor string
	// Name tells it from other pools.
	Name string
	// Known is false as long as the worker has not found out how much there is.
	Known bool
	// Resources is all the room, used or not; Unlimited where it has no bound.
	Resources Resources
}

// pool returns the pool that the worker has for an executor.
func (w Worker) pool(executor string) (Pool, bool) {
	i := slices.IndexFunc(w.Pools, func(p Pool) bool { return p.Executor == executor })
	if i < 0 {
		return Pool{}, false
	}
	return w.Pools[i], true
}

// Gives returns the most that one execution of an executor may have at the worker. It is
// false where the worker does not offer the executor, or does not know yet what room there is.
func (w Worker) Gives(executor string) (Resources, bool) {
	p, pooled := w.pool(executor)
	switch {
	case !slices.Contains(w.Executors, executor), pooled && !p.Known:
		return Resources{}, false
	case pooled:
		return least(w.Resources, p.Resources), true
	default:
		return w.Resources, true
	}
}

// pooled returns the pool that all that the worker offers runs in, if there is such a one.
func (w Worker) pooled() (name string, whole bool) {
	for i, executor := range w.Executors {
		p, ok := w.pool(executor)
		if !ok || i > 0 && p.Name != name {
			return "", false
		}
		name = p.Name
	}
	return name, len(w.Executors) > 0
}

// pool returns the room of the pools that is selected says are one. Where workers tell of
// it differently, the least counts: some have not seen yet that it has shrunk. It is
// nothing while none knows.
func (c Capacity) pool(is func(Pool) bool) Resources {
	var room Resources
	known := false
	for _, w := range c.Workers {
		for _, p := range w.Pools {
			switch {
			case !p.Known || !is(p):
			case !known:
				room, known = p.Resources, true
			default:
				room = least(room, p.Resources)
			}
		}
	}
	return room
}

// Room returns how much may be in use at once by one executor, and false where that is
// bounded by nothing but the total: no worker has a pool for it.
func (c Capacity) Room(executor string) (Resources, bool) {
	var room Resources
	shared := map[string]Resources{}
	for _, w := range c.Workers {
		if !slices.Contains(w.Executors, executor) {
			continue
		}
		if p, pooled := w.pool(executor); pooled {
			shared[p.Name] = shared[p.Name].Plus(w.Resources)
			continue
		}
		room = room.Plus(w.Resources)
	}
	if len(shared) == 0 {
		return Resources{}, false
	}
	for name, own := range shared {
		all := c.pool(func(p Pool) bool { return p.Executor == executor && p.Name == name })
		room = room.Plus(least(own, all))
	}
	return room, true
}

// rooms returns the rooms of all executors that have pools.
func (c Capacity) rooms() map[string]Resources {
	rooms := map[string]Resources{}
	for _, w := range c.Workers {
		for _, p := range w.Pools {
			if _, done := rooms[p.Executor]; done {
				continue
			}
			if room, bounded := c.Room(p.Executor); bounded {
				rooms[p.Executor] = room
			}
		}
	}
	return rooms
}

// least returns the smaller amount of each kind.
func least(a, b Resources) Resources {
	for k := range a {
		a[k] = min(a[k], b[k])
	}
	return a
}
