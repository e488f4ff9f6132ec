package admission

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAPoolCountsOnce(t *testing.T) {
	t.Parallel()
	room := func(slots, memory int64) Resources {
		return Resources{Slots: slots, MemoryBytes: memory, CPUMillis: Unlimited}
	}
	cluster := func(name string, r Resources) []Pool {
		return []Pool{{Executor: "kubernetes", Name: name, Known: true, Resources: r}}
	}
	pods := func(own Resources, pools []Pool) Worker {
		return Worker{Resources: own, Executors: []string{"kubernetes"}, Pools: pools}
	}
	mixed := func(own Resources, pools []Pool) Worker {
		return Worker{Resources: own, Executors: []string{"kubernetes", "process"}, Pools: pools}
	}
	unknown := []Pool{{Executor: "kubernetes", Name: "a"}}
	for name, c := range map[string]struct {
		workers []Worker
		total   Resources
		room    Resources
	}{
		"two workers on one cluster": {
			[]Worker{pods(room(10, Unlimited), cluster("a", room(15, 64))), pods(room(10, Unlimited), cluster("a", room(15, 64)))},
			room(15, 64), room(15, 64),
		},
		"they are smaller than the cluster": {
			[]Worker{pods(room(4, 16), cluster("a", room(15, 64))), pods(room(4, 16), cluster("a", room(15, 64)))},
			room(8, 32), room(8, 32),
		},
		"two clusters": {
			[]Worker{pods(room(10, 64), cluster("a", room(5, 8))), pods(room(10, 64), cluster("b", room(6, 8)))},
			room(11, 16), room(11, 16),
		},
		"one has not seen yet that it has shrunk": {
			[]Worker{pods(room(10, 64), cluster("a", room(15, 64))), pods(room(10, 64), cluster("a", room(7, 64)))},
			room(7, 64), room(7, 64),
		},
		"one does not know yet": {
			[]Worker{pods(room(10, 64), unknown), pods(room(10, 64), cluster("a", room(15, 100)))},
			room(15, 100), room(15, 100),
		},
		"nobody knows yet": {
			[]Worker{pods(room(10, 64), unknown)},
			Resources{}, Resources{},
		},
		"what runs other things too counts as itself": {
			[]Worker{mixed(room(10, 64), cluster("a", room(3, 64))), pods(room(2, 64), cluster("a", room(3, 64)))},
			room(12, 128), room(3, 64),
		},
	} {
		c := struct {
			Capacity
			total, room Resources
		}{Capacity{Workers: c.workers}, c.total, c.room}
		assert.Equal(t, c.total, c.Total(), name)
		found, bounded := c.Room("kubernetes")
		assert.True(t, bounded, name)
		assert.Equal(t, c.room, found, name)
		_, bounded = c.Room("process")
		assert.False(t, bounded, name)
	}
}

func TestWhatAPoolOffers(t *testing.T) {
	t.Parallel()
	c := Capacity{Workers: []Worker{{Resources: slots(10), Executors: []string{"kubernetes", "process"}, Pools: []Pool{
		{Executor: "kubernetes", Name: "a", Known: true, Resources: slots(3)},
	}}}}
	assert.True(t, c.Servable("process", slots(10)))
	assert.True(t, c.Servable("kubernetes", slots(3)))
	assert.False(t, c.Servable("kubernetes", slots(4)), "the pool is smaller than the worker")
	assert.True(t, c.Offers("kubernetes"))
	c.Workers[0].Pools = []Pool{{Executor: "kubernetes", Name: "a"}}
	assert.False(t, c.Offers("kubernetes"), "whether it fits is not known yet")
	assert.False(t, c.Servable("kubernetes", slots(1)))
	assert.True(t, c.Offers("process"))
}

// A cluster that is full keeps nothing from what runs elsewhere, and keeps its own order.
func TestAFullPoolHoldsUpItsOwnOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step, Overtake: step}, pooled(workers(20), 2, "f"))
	w.executor = "f"
	first := w.submit("a", 3, slots(1))
	w.round(10, nil)
	assert.Equal(t, "running", first.state)
	small := w.submit("b", 3, slots(1))
	for i := range 300 { // more than one round passes over otherwise
		w.submit(fmt.Sprint("u", i), 5, slots(2))
	}
	w.executor = "e"
	other := w.submit("c", 1, slots(1))
	w.round(10, nil)
	assert.Equal(t, "running", other.state)
	assert.Equal(t, "running", small.state, "it fits beside the first")
	w.finish(small)
	w.now = w.now.Add(5 * step)
	w.executor = "f"
	late := w.submit("a", 5, slots(1)) // who holds something already
	w.executor = "e"
	other = w.submit("c", 1, slots(1))
	w.round(10, nil)
	assert.Equal(t, "running", other.state)
	assert.Equal(t, "queued", late.state, "room is kept for those that need more")
	w.finish(first)
	w.round(10, nil)
	assert.Equal(t, "queued", late.state)
	last := w.history[len(w.history)-1]
	assert.Equal(t, "f", last.flow.Executor, "one of the large ones")
	assert.Equal(t, slots(2), last.Need)
}

// One that its pool has no room for keeps nothing from others when the class fills up, too:
// free places of the class do not help it. When its pool has room, the class is kept for it.
func TestAFullPoolDoesNotKeepTheClass(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step}, pooled(workers(5, 5), 3, "f"))
	w.executor = "f"
	first := w.submit("a", 5, slots(2))
	w.round(10, nil)
	assert.Equal(t, "running", first.state)
	large := w.submit("a", 5, slots(2)) // the pool has 1 left
	w.executor = "e"
	for range 8 {
		w.submit("b", 1, slots(1))
	}
	w.round(100, nil)
	assert.Equal(t, "queued", large.state)
	assert.Len(t, w.of("running"), 9, "to the last slot of the class")
	w.finish(w.of("running")[1]) // with the class full at first, too
	w.submit("b", 1, slots(1))
	w.round(100, nil)
	assert.Len(t, w.of("running"), 9)

	w.finish(first) // 2 slots of the class, and the pool
	w.finish(w.of("running")[1])
	w.submit("b", 1, slots(1))
	w.round(1, nil)
	assert.Equal(t, "running", large.state)
}
