package admission

import (
	"time"

	"github.com/millrace/millrace/internal/limits"
)

// bands is the number of bands: one for each priority.
const bands = 5

// Config says how a Queue decides.
type Config struct {
	// Step is how much waiting time one band is worth. It must be positive.
	Step time.Duration
	// Overtake is how long after it became ready an execution that fits into no gap
	// lets others pass. 0: nothing passes it.
	Overtake time.Duration
	// Weight returns the weight of a user, which is positive; nil weighs all the same.
	Weight func(tenant, user string) float64
	// Limits are those that are in force; nil is none.
	Limits *limits.Set
}

// Queue is what waits for one resource class, as far as decisions need it. It is
// not safe for concurrent use.
type Queue struct {
	cfg      Config
	now      time.Time
	capacity Capacity
	total    Resources
	used     Resources
	// rooms are those of the executors that have pools, and usedBy is what each executor
	// holds.
	rooms  map[string]Resources
	usedBy map[string]Resources
	held   func(tenant, user string) bool
	// clock is the virtual time of the user who was let through last.
	clock float64
	// weight is that of all users who wait or hold something, and weighed what it was
	// when it was last decided who holds what is due.
	weight, weighed float64
	// holders are the users who hold something.
	holders map[*owner]struct{}

	flows  map[FlowID]*flow
	owners map[[2]string]*owner
	keys   map[limits.Key]*key

	bands [bands]*ordered[*owner]
	// rising has the flows whose head comes into a higher band, by when.
	rising *ordered[*flow]
	// alarms has the keys at which flows sleep for a token, by when it comes.
	alarms *ordered[*key]
	// starved are flows that may be chosen from and should be read on.
	starved map[*flow]struct{}
	// unasked are keys of which the tables were not asked yet.
	unasked []limits.Key

	round round
}

// NewQueue returns a queue that knows of nothing.
func NewQueue(cfg Config) *Queue {
	if cfg.Weight == nil {
		cfg.Weight = func(string, string) float64 { return 1 }
	}
	q := &Queue{
		cfg: cfg, holders: map[*owner]struct{}{}, held: func(string, string) bool { return false }, flows: map[FlowID]*flow{}, owners: map[[2]string]*owner{},
		keys: map[limits.Key]*key{}, starved: map[*flow]struct{}{}, usedBy: map[string]Resources{},
	}
	for b := range q.bands {
		q.bands[b] = newOrdered((*owner).first)
	}
	q.rising = newOrdered(func(a, b *flow) bool { return a.risesAt.Before(b.risesAt) })
	q.alarms = newOrdered(func(a, b *key) bool { return a.opensAt.Before(b.opensAt) })
	return q
}

// bandOf returns the band, from 0, that a flow counts as now, and when that may be a
// higher one. Waiting counts from when something of the same user and priority was
// last let through: what is being served does not age.
func (q *Queue) bandOf(l *flow) (band int, risesAt time.Time) {
	since := l.cursor.Rank.Add(time.Duration(l.Priority-1) * q.cfg.Step)
	if len(l.items) > 0 {
		since = l.items[0].Ready
	}
	if at := l.turn().at; at.After(since) {
		since = at
	}
	waited := max(q.now.Sub(since), 0)
	band = min(l.Priority-1+int(min(waited/q.cfg.Step, bands)), bands-1)
	return band, since.Add(waited - waited%q.cfg.Step + q.cfg.Step)
}

// Knows reports whether the flow was defined.
func (q *Queue) Knows(id FlowID) bool {
	_, ok := q.flows[id]
	return ok
}

// Define makes a flow known. Nothing is known to wait in it until Fold says so.
func (q *Queue) Define(def Flow) {
	if q.Knows(def.ID) {
		return
	}
	name := [2]string{def.Tenant, def.User}
	o, ok := q.owners[name]
	if !ok {
		o = &owner{
			tenant: def.Tenant, user: def.User, weight: q.cfg.Weight(def.Tenant, def.User),
			virtual: q.clock, flows: map[*flow]struct{}{},
		}
		o.held = q.held(def.Tenant, def.User)
		for b := range o.ready {
			o.ready[b] = newOrdered(earlierHead)
			o.turns[b].risen = map[*flow]struct{}{}
		}
		q.owners[name] = o
	}
	l := &flow{Flow: def, owner: o, complete: true, window: windowMin, band: away}
	o.flows[l] = struct{}{}
	q.flows[def.ID] = l
	for _, k := range def.Keys {
		q.keyOf(k).flows++
	}
}

// Delta is what transactions have changed in a flow.
type Delta struct {
	Flow FlowID
	// Queued and Running are how many more, or fewer, wait, and are scheduled or
	// running; Used is what the latter hold.
	Queued, Running int64
	Used            Resources
	// Rank, if it is not zero, is the earliest rank of what may be admitted now and
	// was not before.
	Rank time.Time
}

// Fold takes over a change. The flow must be known.
func (q *Queue) Fold(d Delta) {
	l := q.flows[d.Flow]
	l.queued += d.Queued
	l.running += d.Running
	l.used = l.used.Plus(d.Used)
	if d.Running < 0 {
		q.release(l, -d.Running)
	}
	if d.Used != (Resources{}) {
		q.hold(l, d.Used)
	}
	if !d.Rank.IsZero() {
		l.arrived(d.Rank)
	}
	// A sum does not say whether something has left as well as come.
	l.doubtful = len(l.items) > 0 && (l.doubtful || d.Queued != 0 || !d.Rank.IsZero())
	q.settle(l)
}

// Restore sets what the tables have of a flow when a queue is read anew.
func (q *Queue) Restore(d Delta) {
	running := d.Running
	d.Running = 0
	q.Fold(d)
	q.flows[d.Flow].running = running
}

// release gives back the places of n executions under the keys of the flow.
func (q *Queue) release(l *flow, n int64) {
	for _, name := range l.Keys {
		k := q.keys[name]
		if k.limit.Concurrency == 0 || !k.inForce {
			continue
		}
		k.InUse = max(k.InUse-n, 0)
		q.round.released[name] += n
		if len(k.sleepers) > 0 {
			q.wakeSleepers(k)
		}
	}
}

// hold changes what the executions of a flow hold.
func (q *Queue) hold(l *flow, more Resources) {
	q.used = q.used.Plus(more)
	q.usedBy[l.Executor] = q.usedBy[l.Executor].Plus(more)
	q.use(l.owner, more)
}

// use changes what a user holds.
func (q *Queue) use(o *owner, more Resources) {
	o.used = o.used.Plus(more)
	o.share = 0
	for k, amount := range o.used {
		if q.total[k] > 0 && q.total[k] < Unlimited {
			o.share = max(o.share, float64(amount)/float64(q.total[k])/o.weight)
		}
	}
	if o.used == (Resources{}) {
		delete(q.holders, o)
	} else {
		q.holders[o] = struct{}{}
	}
	q.judge(o)
	q.moved(o)
}

// judge finds out whether a user holds what is due: the part of the class that their
// weight is of that of all.
func (q *Queue) judge(o *owner) {
	const slack = 1e-9 // sums of weights are not exact
	o.over = o.share > 0 && o.share*q.weighed >= 1-slack
}

// weigh brings up to date who holds what is due, after users have come or gone. That
// is done once in a round.
func (q *Queue) weigh() {
	if q.round.weighed {
		return
	}
	q.round.weighed = true
	if q.weighed == q.weight {
		return
	}
	q.weighed = q.weight
	for o := range q.holders {
		before := o.over
		if q.judge(o); o.over != before {
			q.moved(o)
		}
	}
}

// moved puts a user where they belong in each band.
func (q *Queue) moved(o *owner) {
	waits := false
	for _, ready := range o.ready {
		waits = waits || ready.Len() > 0 && !o.held
	}
	if counted := waits || o.used != (Resources{}); counted != o.counted {
		o.counted = counted
		if counted {
			q.weight += o.weight
		} else {
			q.weight -= o.weight
		}
	}
	for b, ready := range o.ready {
		if ready.Len() == 0 || o.held {
			q.bands[b].remove(o)
			continue
		}
		q.bands[b].put(o)
	}
}

// settle puts a flow where it belongs, after anything about it has changed.
func (q *Queue) settle(l *flow) {
	before := l.band
	q.leave(l)
	if l.blocker != nil {
		delete(l.blocker.sleepers, l)
		l.blocker = nil
	}
	if _, waits := l.head(); waits && q.capacity.Offers(l.Executor) {
		if k := q.blockerOf(l); k != nil {
			q.sleep(l, k)
		} else {
			if before == away && !l.aside {
				q.rejoin(l.owner)
			}
			q.enter(l)
		}
	}
	l.aside = false
	if before != away || l.band != away {
		q.moved(l.owner)
	}
}

// rejoin starts the account of a user of whom nothing could be chosen: they do not
// make up for the time away.
func (q *Queue) rejoin(o *owner) {
	for _, ready := range o.ready {
		if ready.Len() > 0 {
			return
		}
	}
	o.virtual = max(o.virtual, q.clock)
}

// enter makes a flow one that may be chosen from.
func (q *Queue) enter(l *flow) {
	l.band, l.risesAt = q.bandOf(l)
	l.owner.ready[l.band].put(l)
	if l.band >= l.Priority {
		l.turn().risen[l] = struct{}{}
	}
	if l.band < bands-1 {
		q.rising.put(l)
	}
	if l.starved() {
		q.starved[l] = struct{}{}
	}
}

// leave undoes enter.
func (q *Queue) leave(l *flow) {
	if l.band == away {
		return
	}
	l.owner.ready[l.band].remove(l)
	q.rising.remove(l)
	delete(l.turn().risen, l)
	delete(q.starved, l)
	l.band = away
}

// SetCapacity says what the class has. It reports whether that has changed.
func (q *Queue) SetCapacity(c Capacity) bool {
	if q.capacity.equal(c) {
		return false
	}
	q.capacity, q.total, q.rooms = c, c.Total(), c.rooms()
	for _, o := range q.owners {
		q.use(o, Resources{})
	}
	for _, l := range q.flows {
		q.settle(l)
	}
	return true
}

// SetHolds says which users are held; nothing of theirs is let through. It counts for
// those that become known later, too.
func (q *Queue) SetHolds(held func(tenant, user string) bool) {
	q.held = held
	for _, o := range q.owners {
		h := held(o.tenant, o.user)
		if h == o.held {
			continue
		}
		o.held = h
		q.moved(o)
		for l := range o.flows {
			if l.blocker != nil {
				// It was not woken while it was held.
				q.settle(l)
			}
		}
	}
}

// Free returns what is not in use.
func (q *Queue) Free() Resources { return q.total.Minus(q.used) }

// holds reports whether the executor has room for need, as far as it has room of its own.
func (q *Queue) holds(executor string, need Resources) bool {
	room, bounded := q.rooms[executor]
	return !bounded || room.Minus(q.usedBy[executor]).Holds(need)
}

// Forget drops flows in which nothing is and nobody has come for a while, so that
// memory does not grow with the users and keys there have ever been.
func (q *Queue) Forget() {
	for id, l := range q.flows {
		if _, waits := l.head(); waits || l.queued != 0 || l.running != 0 {
			continue
		}
		delete(q.flows, id)
		delete(l.owner.flows, l)
		if len(l.owner.flows) == 0 {
			delete(q.owners, [2]string{l.owner.tenant, l.owner.user})
		}
		for _, name := range l.Keys {
			k := q.keys[name]
			if k.flows--; k.flows == 0 {
				q.alarms.remove(k)
				delete(q.keys, name)
			}
		}
	}
}
