package admission

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/limits"
)

// world is what the tables hold, kept in the plainest way there is: one list of
// executions that every question is answered from.
type world struct {
	now     time.Time
	cfg     Config
	cap     Capacity
	held    map[string]bool // user
	works   []*work
	buckets map[limits.Key]*Bucket
	feed    []Delta
	flows   map[FlowID]Flow
	queue   *Queue
	// busy are those whose rows somebody has locked.
	busy map[string]bool
	// clean is true while nothing that was picked in this round was taken back: then
	// what is picked next was picked with what is there now in view.
	clean bool
	// served is when something of a user and priority was last let through.
	served map[turnName]time.Time
	// executor is that of what is submitted; empty is "e".
	executor string
	// history are the executions in the order in which they were let through.
	history []*work
}

type turnName struct {
	user     string
	priority int
}

type work struct {
	Item
	flow    Flow
	state   string // queued, large, running, done
	reason  string
	through time.Time
}

func newWorld(cfg Config, c Capacity) *world {
	w := &world{
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), cfg: cfg, cap: c, held: map[string]bool{},
		served:  map[turnName]time.Time{},
		buckets: map[limits.Key]*Bucket{}, flows: map[FlowID]Flow{}, busy: map[string]bool{},
	}
	w.restart()
	return w
}

// restart is what another admitter does that takes over.
func (w *world) restart() {
	clear(w.served) // nobody has written that down
	w.queue = NewQueue(w.cfg)
	sums := map[FlowID]Delta{}
	for _, x := range w.works {
		d := sums[x.flow.ID]
		d.Flow = x.flow.ID
		switch x.state {
		case "queued":
			d.Queued++
			d.Rank = earliest(d.Rank, x.Rank)
		case "large":
			d.Queued++
		case "running":
			d.Running++
			d.Used = d.Used.Plus(x.Need)
		}
		sums[x.flow.ID] = d
	}
	// What the feed has comes on top of what is restored.
	for _, f := range w.feed {
		d := sums[f.Flow]
		d.Flow = f.Flow
		d.Queued -= f.Queued
		d.Running -= f.Running
		d.Used = d.Used.Plus(f.Used.Times(-1))
		sums[f.Flow] = d
	}
	for _, d := range sums {
		w.queue.Define(w.flows[d.Flow])
		w.queue.Restore(d)
	}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (w *world) submit(user string, priority int, need Resources, keys ...limits.Key) *work {
	ready := w.now
	x := &work{
		Item: Item{
			Place: Place{Rank: ready.Add(-time.Duration(priority-1) * w.cfg.Step), ID: fmt.Sprintf("%06d", len(w.works))},
			Ready: ready, Need: need,
		},
		flow: NewFlow("c", "t", user, cmp.Or(w.executor, "e"), priority, keys), state: "queued",
	}
	w.flows[x.flow.ID] = x.flow
	w.works = append(w.works, x)
	w.feed = append(w.feed, Delta{Flow: x.flow.ID, Queued: 1, Rank: x.Rank})
	return x
}

func (w *world) move(x *work, priority int) {
	w.feed = append(w.feed, Delta{Flow: x.flow.ID, Queued: -1})
	x.Rank = x.Ready.Add(-time.Duration(priority-1) * w.cfg.Step)
	x.flow = NewFlow("c", "t", x.flow.User, x.flow.Executor, priority, x.flow.Keys)
	w.flows[x.flow.ID] = x.flow
	w.feed = append(w.feed, Delta{Flow: x.flow.ID, Queued: 1, Rank: x.Rank})
}

func (w *world) cancel(x *work) {
	x.state = "done"
	w.feed = append(w.feed, Delta{Flow: x.flow.ID, Queued: -1})
}

func (w *world) finish(x *work) {
	x.state = "done"
	w.feed = append(w.feed, Delta{Flow: x.flow.ID, Running: -1, Used: x.Need.Times(-1)})
}

func (w *world) of(state string) []*work {
	var found []*work
	for _, x := range w.works {
		if x.state == state {
			found = append(found, x)
		}
	}
	return found
}

func (w *world) used() Resources {
	var sum Resources
	for _, x := range w.of("running") {
		sum = sum.Plus(x.Need)
	}
	return sum
}

// fits reports whether there is room for more of an executor.
func (w *world) fits(executor string, need Resources) bool {
	room, bounded := w.cap.Room(executor)
	for _, x := range w.of("running") {
		if x.flow.Executor == executor {
			room = room.Minus(x.Need)
		}
	}
	return !bounded || room.Holds(need)
}

func (w *world) bucket(key limits.Key) *Bucket {
	if w.buckets[key] == nil {
		w.buckets[key] = &Bucket{Key: key}
	}
	return w.buckets[key]
}

// round is one round of an admitter, as package store does it. check sees every
// choice before it counts.
func (w *world) round(limit int, check func(*work)) (more bool) {
	q := w.queue
	q.Begin(w.now)
	q.SetHolds(func(_, user string) bool { return w.held[user] })
	for _, d := range w.feed {
		q.Define(w.flows[d.Flow])
		q.Fold(d)
	}
	w.feed = nil
	if q.SetCapacity(w.cap) {
		for _, x := range w.of("large") {
			x.state = "queued"
			q.Fold(Delta{Flow: x.flow.ID, Rank: x.Rank})
		}
	}
	for key, n := range q.Released() {
		w.bucket(key).InUse -= n
	}
	w.know(append(q.Unasked(), q.Asleep(1000)...))
	var picks, large []Pick
	w.read()
choosing:
	for len(picks) < limit {
		p, choice := q.Next()
		switch choice {
		case Chosen:
			picks = append(picks, p)
		case Oversize:
			large = append(large, p)
		case Hungry:
			w.read()
		case Done:
			break choosing
		}
	}
	missed := w.verify(picks, check)
	for _, p := range large {
		if x := w.byID(p.ID); x.state == "queued" && x.Rank.Equal(p.Rank) {
			x.state = "large"
		}
	}
	var keys []limits.Key
	for _, p := range picks {
		keys = append(keys, p.Keys...)
	}
	w.know(keys)
	q.End()
	return missed > 0 || len(picks) == limit
}

func (w *world) verify(picks []Pick, check func(*work)) (missed int) {
	seen := map[string]bool{}
	w.clean = !slices.ContainsFunc(picks, func(p Pick) bool {
		x := w.byID(p.ID)
		return w.busy[p.ID] || x.state != "queued" || !x.Rank.Equal(p.Rank)
	})
	for _, p := range picks {
		x := w.byID(p.ID)
		switch {
		case w.busy[p.ID]:
			w.queue.Undo(p, Busy)
			missed++
		case x.state != "queued" || seen[p.ID] || !x.Rank.Equal(p.Rank):
			w.queue.Undo(p, Gone)
			missed++
		case w.shut(x.flow):
			w.queue.Undo(p, Limited)
			missed++
		default:
			if check != nil {
				check(x)
			}
			w.spend(x)
			seen[p.ID] = true
			x.state, x.reason, x.through = "running", p.Reason, w.now
			w.served[turnName{x.flow.User, x.flow.Priority}] = w.now
			w.history = append(w.history, x)
		}
	}
	return missed
}

// know tells the queue what the tables have of keys; what was released in this round
// is in neither before it is saved.
func (w *world) know(keys []limits.Key) {
	var states []Bucket
	for _, key := range keys {
		states = append(states, *w.bucket(key))
	}
	w.queue.Know(states)
}

func (w *world) spend(x *work) {
	for _, key := range x.flow.Keys {
		limit, _ := w.cfg.Limits.Lookup(key.Limit)
		Spend(limit, w.bucket(key), w.now)
	}
}

// shut reports whether a key of the flow lets nothing through.
func (w *world) shut(l Flow) bool {
	return slices.ContainsFunc(l.Keys, func(key limits.Key) bool {
		limit, _ := w.cfg.Limits.Lookup(key.Limit)
		b := *w.bucket(key)
		_, ok := Spend(limit, &b, w.now)
		return !ok
	})
}

func (w *world) read() {
	for _, r := range w.queue.Reads(100) {
		var items []Item
		for _, x := range w.of("queued") {
			if x.flow.ID == r.Flow && r.After.before(x.Place) {
				items = append(items, x.Item)
			}
		}
		slices.SortFunc(items, func(a, b Item) int {
			if a.before(b.Place) {
				return -1
			}
			return 1
		})
		w.queue.Loaded(r, items[:min(len(items), r.Limit)])
	}
}

func (w *world) byID(id string) *work {
	i := slices.IndexFunc(w.works, func(x *work) bool { return x.ID == id })
	return w.works[i]
}
