package admission

import (
	"time"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

// asideMax bounds how many flows one round passes over because their heads do not
// fit.
const asideMax = 256

// Pick is an execution that was chosen.
type Pick struct {
	Item
	Flow FlowID
	Keys []limits.Key
	// Reason is why it was its turn: one of topics.Scheduled...
	Reason string
	cost   float64
}

// round is what one round of decisions has to remember.
type round struct {
	// passed is true once an execution that does not fit was passed over.
	passed bool
	// reserved is true once one that does not fit and passes nobody any more was met.
	reserved bool
	// weighed is true once weigh was called.
	weighed bool
	aside   []*flow
	// crowded is how many of those aside wait for the room of their executors, and full
	// are the executors of which one passes nobody any more.
	crowded int
	full    map[string]bool
	// turns are those in which something was chosen.
	turns    []servedTurn
	muted    []*key
	released map[limits.Key]int64
}

type servedTurn struct {
	*turn
	owner *owner
}

// Begin starts a round at the time now. What was known before of flows and keys is
// brought up to that time.
func (q *Queue) Begin(now time.Time) {
	q.now = now
	q.round = round{released: map[limits.Key]int64{}, full: map[string]bool{}}
	for {
		l, ok := q.rising.first()
		if !ok || l.risesAt.After(now) {
			break
		}
		q.settle(l)
	}
	for {
		k, ok := q.alarms.first()
		if !ok || k.opensAt.After(now) {
			break
		}
		q.wakeSleepers(k)
		if k.opensAt.Equal(now) {
			// Not again in this round.
			q.alarms.remove(k)
			q.round.muted = append(q.round.muted, k)
		}
	}
}

// End ends a round: what was passed over may be chosen again.
func (q *Queue) End() {
	for _, l := range q.round.aside {
		q.settle(l)
	}
	q.round.aside = nil
	for _, t := range q.round.turns {
		q.endTurn(t)
	}
	q.round.turns = nil
	for _, k := range q.round.muted {
		q.alarm(k)
	}
	q.round.muted = nil
}

// serve notes that something was chosen from a flow: what else of its user and
// priority has risen with time counts as its priority again.
func (q *Queue) serve(l *flow) {
	t := l.turn()
	if t.picks++; t.picks > 1 {
		return
	}
	q.round.turns = append(q.round.turns, servedTurn{t, l.owner})
	t.before, t.at = t.at, q.now
	for other := range t.risen {
		q.settle(other)
	}
}

// endTurn ends a round for a turn. If all that was chosen was taken back, it was none.
func (q *Queue) endTurn(t servedTurn) {
	if t.picks == 0 && t.before.Before(t.at) {
		t.at = t.before
		for l := range t.owner.flows {
			if l.band != away && l.turn() == t.turn {
				q.settle(l)
			}
		}
	}
	t.picks = 0
}

// Released returns how many executions of each key have ended since the round
// began: the tables' buckets have to follow.
func (q *Queue) Released() map[limits.Key]int64 { return q.round.released }

// Read asks for the items of a flow behind a place.
type Read struct {
	Flow  FlowID
	After Place
	Limit int
}

// Reads returns what should be read before the round goes on: at most limit flows.
// Nothing is read while nothing is free.
func (q *Queue) Reads(limit int) []Read {
	if !q.Free().Holds(Resources{Slots: 1}) {
		return nil
	}
	q.weigh()
	var reads []Read
	add := func(l *flow) {
		reads = append(reads, Read{Flow: l.ID, After: l.cursor, Limit: l.window})
		delete(q.starved, l)
	}
	// The one that comes first must not be left out.
	if l := q.best(); l != nil && l.starved() {
		add(l)
	}
	for l := range q.starved {
		if len(reads) >= limit {
			break
		}
		add(l)
	}
	return reads
}

// Loaded hands over what was read for r. Fewer items than asked for mean that the
// flow has no more.
func (q *Queue) Loaded(r Read, items []Item) {
	l, ok := q.flows[r.Flow]
	if !ok || l.cursor != r.After {
		return
	}
	if len(l.items) == 0 && len(items) == r.Limit {
		l.window = min(l.window*2, windowMax)
	}
	l.items = append(l.items, items...)
	l.complete = len(items) < r.Limit
	if len(items) > 0 {
		l.cursor = items[len(items)-1].Place
	}
	q.settle(l)
}

// best returns the flow that is to be chosen from.
func (q *Queue) best() *flow {
	for b := bands - 1; b >= 0; b-- {
		if o, ok := q.bands[b].first(); ok {
			l, _ := o.ready[b].first()
			return l
		}
	}
	return nil
}

// Crowded reports, between rounds, whether something waits that nothing but a lack of
// room keeps from being let through.
func (q *Queue) Crowded() bool { return q.best() != nil }

// Choice is the outcome of Next.
type Choice int

// The outcomes of Next.
const (
	// Done: nothing more can be let through in this round.
	Done Choice = iota
	// Chosen: the pick is to be let through.
	Chosen
	// Hungry: Reads has to be answered first.
	Hungry
	// Oversize: no worker could ever run the pick; it is to wait elsewhere.
	Oversize
)

// Next chooses the next execution. What it chose counts as let through, until Undo.
func (q *Queue) Next() (Pick, Choice) {
	q.weigh()
	for !q.round.reserved && len(q.round.aside)-q.round.crowded < asideMax {
		free := q.Free()
		l := q.best()
		if l == nil || !free.Holds(Resources{Slots: 1}) {
			return Pick{}, Done
		}
		if len(l.items) == 0 {
			return Pick{}, Hungry
		}
		if q.blockerOf(l) != nil {
			// Another flow has taken what there was under a key that they share.
			q.settle(l)
			continue
		}
		item := l.items[0]
		if !q.capacity.Servable(l.Executor, item.Need) {
			l.take()
			q.settle(l)
			return Pick{Item: item, Flow: l.ID}, Oversize
		}
		// First: what its executor has no room for gains nothing if the class is kept for it.
		if q.round.full[l.Executor] || !q.holds(l.Executor, item.Need) {
			q.passOverFull(l, item)
			continue
		}
		if !free.Holds(item.Need) {
			q.passOver(l, item)
			continue
		}
		return q.choose(l, item), Chosen
	}
	return Pick{}, Done
}

// passOver leaves out a flow whose head does not fit, or ends the round when it has
// let others pass for long enough. What only seems to wait must keep nothing from
// the others, so a head that may have left is looked at again first.
func (q *Queue) passOver(l *flow, item Item) {
	if l.doubtful {
		l.reread()
		q.settle(l)
		return
	}
	if q.now.Sub(item.Ready) >= q.cfg.Overtake {
		q.round.reserved = true
		return
	}
	q.round.passed = true
	q.setAside(l)
	q.leaveKeys(l)
}

// passOverFull leaves out a flow for whose head its executor has no room. It keeps
// nothing from others but from those of the same executor.
func (q *Queue) passOverFull(l *flow, item Item) {
	if l.doubtful {
		l.reread()
		q.settle(l)
		return
	}
	if q.now.Sub(item.Ready) >= q.cfg.Overtake {
		q.round.full[l.Executor] = true
	}
	q.round.crowded++
	q.setAside(l)
	q.leaveKeys(l)
}

// leaveKeys has those go on who share keys with a flow that was passed over: what it does
// not take is there for others.
func (q *Queue) leaveKeys(l *flow) {
	for _, name := range l.Keys {
		if k := q.keys[name]; len(k.sleepers) > 0 {
			q.wakeSleepers(k)
		}
	}
}

// setAside takes a flow out of the round.
func (q *Queue) setAside(l *flow) {
	q.round.aside = append(q.round.aside, l)
	l.aside = true
	q.leave(l)
	q.moved(l.owner)
}

func (q *Queue) choose(l *flow, item Item) Pick {
	p := Pick{Item: item, Flow: l.ID, Keys: l.Keys, Reason: q.reason(l), cost: q.cost(item.Need) / l.owner.weight}
	for _, name := range l.Keys {
		q.keys[name].take(q.now)
	}
	l.take()
	q.clock = max(q.clock, l.owner.virtual)
	q.apply(l, p, 1)
	q.settle(l)
	q.serve(l)
	return p
}

// apply lets a pick through (sign 1) or takes that back (-1).
func (q *Queue) apply(l *flow, p Pick, sign int64) {
	need := p.Need.Times(sign)
	l.queued -= sign
	l.running += sign
	l.used = l.used.Plus(need)
	l.owner.virtual += float64(sign) * p.cost
	q.hold(l, need)
}

// cost is what an execution counts for between users who hold the same: the
// largest part of any one resource of the class, or one where none is counted.
func (q *Queue) cost(need Resources) float64 {
	cost := 0.0
	for k, amount := range need {
		if q.total[k] > 0 && q.total[k] < Unlimited {
			cost = max(cost, float64(amount)/float64(q.total[k]))
		}
	}
	if cost == 0 {
		return 1
	}
	return cost
}

// reason says why the head of a flow is chosen.
func (q *Queue) reason(l *flow) string {
	switch {
	case q.round.passed:
		return topics.ScheduledPassedWaitingLarger
	case l.band >= l.Priority:
		return topics.ScheduledAged
	default:
		return topics.ScheduledInTurn
	}
}

// Missed says why a pick does not go through after all.
type Missed int

// Why a pick does not go through.
const (
	// Gone: it waits no more, or for something else; who changed it has told.
	Gone Missed = iota
	// Busy: somebody is changing it at this moment.
	Busy
	// Limited: a key had nothing left to spend.
	Limited
)

// Undo takes back a pick. One that still waits is looked at again in the next round.
// What it spent of its keys is not given back here: what they have after the round
// comes from the tables, by Know.
func (q *Queue) Undo(p Pick, why Missed) {
	l := q.flows[p.Flow]
	q.apply(l, p, -1)
	l.turn().picks--
	if why == Gone {
		// That it has left the queue is told by the feed.
		q.settle(l)
		return
	}
	l.putBack(p.Item)
	if !l.aside {
		q.setAside(l)
	}
}

// Return puts back what was found to be too large and could not be taken out of the
// queue, since somebody is changing it at this moment.
func (q *Queue) Return(p Pick) {
	l := q.flows[p.Flow]
	l.putBack(p.Item)
	q.settle(l)
	q.setAside(l)
}

// NextAt returns when something that is known to wait may go on by itself; zero if
// that only takes somebody's doing.
func (q *Queue) NextAt() time.Time {
	if k, ok := q.alarms.first(); ok && q.Free().Holds(Resources{Slots: 1}) {
		return k.opensAt
	}
	return time.Time{}
}
