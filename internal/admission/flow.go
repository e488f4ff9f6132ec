package admission

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/limits"
)

// FlowID identifies a flow: it is a digest of what the flow stands for, so that
// whoever queues an execution knows its flow without asking.
type FlowID = uuid.UUID

// Flow says what a flow stands for.
type Flow struct {
	ID       FlowID
	Class    string
	Tenant   string
	User     string
	Executor string
	// Priority is 1 to 5.
	Priority int
	// Keys are those of the limits that its executions are under while they wait.
	Keys []limits.Key
}

// NewFlow returns the flow of these properties.
func NewFlow(class, tenant, user, executor string, priority int, keys []limits.Key) Flow {
	l := Flow{Class: class, Tenant: tenant, User: user, Executor: executor, Priority: priority, Keys: keys}
	parts := []string{class, tenant, user, executor, strconv.Itoa(priority)}
	for _, k := range keys {
		parts = append(parts, k.Limit, k.Value)
	}
	// Each part comes with its length, so that no two lists give the same text.
	var text []byte
	for _, part := range parts {
		text = strconv.AppendInt(text, int64(len(part)), 10)
		text = append(append(text, ':'), part...)
	}
	sum := sha256.Sum256(text)
	copy(l.ID[:], sum[:])
	return l
}

// Place is a place in a flow.
type Place struct {
	Rank time.Time
	ID   string
}

func (p Place) before(o Place) bool {
	if !p.Rank.Equal(o.Rank) {
		return p.Rank.Before(o.Rank)
	}
	return p.ID < o.ID
}

// Item is a queued execution that nothing of its own stands in the way of.
type Item struct {
	Place
	// Ready is since when it may be admitted.
	Ready time.Time
	Need  Resources
}

// The number of items of a flow that are read at once: it starts at the first and
// doubles up to the last each time all are used up in one round.
const (
	windowMin = 16
	windowMax = 1024
)

// flow is a flow with what the queue knows of it.
type flow struct {
	Flow
	owner *owner
	// items are those at the head that were read, in their order.
	items []Item
	// Everything that waits up to the cursor is among the items; behind it there may
	// be more, unless the flow is complete.
	cursor   Place
	complete bool
	window   int
	// doubtful is set while some of the items may have left the flow unseen, or moved.
	doubtful bool
	// taken is the place of the item that was last taken from the head.
	taken Place

	queued, running int64
	used            Resources

	// band is where it is: the band it counts as, or away.
	band int
	// risesAt is when it may count as a higher one.
	risesAt time.Time
	// aside is set while it is left out of a round.
	aside bool
	// blocker is the key that it sleeps at, if it does.
	blocker *key
}

// away is the band of a flow that is not to be chosen from.
const away = -1

// head returns the place of the first item, or the earliest that it can have.
func (l *flow) head() (Place, bool) {
	switch {
	case len(l.items) > 0:
		return l.items[0].Place, true
	case !l.complete:
		return l.cursor, true
	}
	return Place{}, false
}

// arrived notes that something has come into the flow, at that rank or later.
func (l *flow) arrived(rank time.Time) {
	l.complete = false
	if rank.After(l.cursor.Rank) {
		return
	}
	// Behind this point it has to be read again. An id is never empty, so the place
	// is before all of that rank.
	l.cursor = Place{Rank: rank}
	l.items = l.items[:l.index(l.cursor)]
}

// take takes the first item.
func (l *flow) take() {
	l.taken = l.items[0].Place
	l.items = l.items[1:]
}

// reread has the items read again, from the first on. What was taken in this round is
// not to be met once more: the tables do not know of that yet.
func (l *flow) reread() {
	l.doubtful = false
	first := l.items[0].Place
	l.arrived(first.Rank)
	if l.taken.before(first) && l.cursor.before(l.taken) {
		l.cursor = l.taken
	}
}

// index returns where among the items a place is.
func (l *flow) index(p Place) int {
	i, _ := slices.BinarySearchFunc(l.items, p, func(item Item, p Place) int {
		if item.before(p) {
			return -1
		}
		return 1
	})
	return i
}

// putBack puts back an item that was taken from the head.
func (l *flow) putBack(item Item) {
	l.items = slices.Insert(l.items, l.index(item.Place), item)
}

// starved reports whether the flow should be read on.
func (l *flow) starved() bool { return !l.complete && len(l.items) <= l.window/4 }

// owner is a user with what the queue knows of them.
type owner struct {
	tenant, user string
	weight       float64
	used         Resources
	// share is the largest share of any one resource of the class that is in use, by
	// weight.
	share float64
	// over says that this is as much as is due, if all who want some get theirs.
	over bool
	// virtual grows with what is let through, by weight.
	virtual float64
	held    bool
	// counted is true while the weight is part of Queue.weight.
	counted bool
	flows   map[*flow]struct{}
	// turns say, by priority, when something of theirs was last let through.
	turns [bands]turn
	// ready has the flows that may be chosen from, by band.
	ready [bands]*ordered[*flow]
}

// turn is when something of one user and priority was last let through: what waits
// there has not been waiting for its turn since before that.
type turn struct {
	at time.Time
	// before is what that was before the round, and picks how many of the round count.
	before time.Time
	picks  int
	// risen are the flows that count as a higher band than their priority.
	risen map[*flow]struct{}
}

// turn returns the turn that the flow takes.
func (l *flow) turn() *turn { return &l.owner.turns[l.Priority-1] }

// first is the order of users within a band: those who do not hold what is due to
// them come first, in the order of what they were let through with. Among the others
// the one who holds the least comes first.
func (o *owner) first(other *owner) bool {
	switch {
	case o.over != other.over:
		return other.over
	case o.over && o.share != other.share:
		return o.share < other.share
	case o.virtual != other.virtual:
		return o.virtual < other.virtual
	case o.tenant != other.tenant:
		return o.tenant < other.tenant
	default:
		return o.user < other.user
	}
}

func earlierHead(a, b *flow) bool {
	p, _ := a.head()
	q, _ := b.head()
	if p == q {
		return a.ID.String() < b.ID.String()
	}
	return p.before(q)
}
