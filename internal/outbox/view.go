package outbox

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// clockMargin is how far the database's clock may be set back before rows are
	// written that have a place behind others and an earlier time.
	clockMargin = time.Hour
	// pledgeEvery is how old the newest pledge may become before a sweep asks for one.
	pledgeEvery = time.Hour
	day         = 24 * time.Hour
)

// edge is a place before rows: their seq is above, and they were written at that
// time or later. The zero edge is before all rows.
type edge struct {
	seq int64
	at  time.Time // by the database's clock
}

func lower(a, b edge) edge {
	if b.seq < a.seq {
		a.seq = b.seq
	}
	if b.at.Before(a.at) {
		a.at = b.at
	}
	return a
}

// snapshot is what a scan says about the moment that it shows.
type snapshot struct {
	// started is when the server was started: another server, another start.
	started time.Time
	clock   time.Time
	// drawn is where the sequence stood.
	drawn int64
	// xmax: transactions from that id on, and those in running, had not ended.
	xmax    int64
	running []int64
}

// pledge is an edge that stands before all rows of all transactions with an id
// above xid.
type pledge struct {
	xid int64
	edge
}

// open is a transaction that had not ended when a scan began, and the edge before
// its rows.
type open struct {
	xid int64
	edge
	// ended: a scan that could not reach as far as its rows found it so.
	ended bool
}

// view remembers what scans have seen, to know which rows a later one may meet for
// the first time; see "Where a scan begins" in the package documentation. The zero
// value has seen nothing.
type view struct {
	// era counts how often everything was forgotten.
	era  int
	seen bool
	last snapshot
	// ahead is the edge before rows of all transactions of which the last scan saw
	// nothing; open are those of which it knew.
	ahead   edge
	open    []open
	pledges []pledge // ascending by xid, and so by edge
	// lastAt is our own time at the last scan, for guessing the database's.
	lastAt time.Time
}

// forget begins again.
func (v *view) forget() { *v = view{era: v.era + 1} }

// foreign reports whether a snapshot is not a later one of the same database: a
// standby took over, a backup was restored, or the clock was set back.
func (v *view) foreign(s snapshot) bool {
	return v.seen && (!s.started.Equal(v.last.started) || s.xmax < v.last.xmax || s.drawn < v.last.drawn ||
		s.clock.Before(v.last.clock.Add(-clockMargin)))
}

// note takes in the snapshot of a scan that found everything from where it began.
func (v *view) note(s snapshot) {
	was := make(map[int64]edge, len(v.open))
	for _, o := range v.open {
		was[o.xid] = o.edge
	}
	still := make([]open, len(s.running))
	for i, xid := range s.running {
		before, known := was[xid]
		if !known {
			before = v.before(xid)
		}
		still[i] = open{xid: xid, edge: before}
	}
	v.open, v.ahead = still, v.before(s.xmax)
	// Of the pledges that hold for all of what is to come, the last says most.
	for len(v.pledges) > 1 && v.pledges[1].xid < s.xmax {
		v.pledges = v.pledges[1:]
	}
	v.seen, v.last, v.lastAt = true, s, time.Now()
}

// before returns the edge before all rows of transactions with that id or above.
func (v *view) before(xid int64) edge {
	at := edge{}
	for _, p := range v.pledges {
		if p.xid >= xid {
			break
		}
		at = p.edge
	}
	return at
}

// pledged notes a transaction id that was assigned after the database had stood
// at the edge.
func (v *view) pledged(era int, xid int64, at edge) {
	if era != v.era || xid == 0 || at.at.IsZero() {
		return
	}
	for _, p := range v.pledges {
		if p.xid <= xid && p.seq >= at.seq {
			return
		}
	}
	v.pledges = slices.DeleteFunc(v.pledges, func(p pledge) bool { return p.xid >= xid && p.seq <= at.seq })
	n, _ := slices.BinarySearchFunc(v.pledges, xid, func(p pledge, xid int64) int { return int(min(max(p.xid-xid, -1), 1)) })
	v.pledges = slices.Insert(v.pledges, n, pledge{xid, at})
}

// here is the edge before rows of transactions that begin now.
func (v *view) here() edge {
	if !v.seen {
		return edge{}
	}
	return edge{v.last.drawn, v.last.clock}
}

// wantsPledge reports whether the pledges are so old that scans would look into
// days that are long done.
func (v *view) wantsPledge() bool {
	return len(v.pledges) == 0 || v.last.clock.Sub(v.pledges[len(v.pledges)-1].at) > pledgeEvery
}

// window is the time in which a scan looks for rows.
type window struct{ since, until time.Time } // zero: without end

// window returns where to look for rows that lie behind the edge, or belong to
// transactions that turned out to have ended.
func (v *view) window(from edge) window {
	from = lower(from, v.ahead)
	for _, o := range v.open {
		if o.ended {
			from = lower(from, o.edge)
		}
	}
	if from.at.IsZero() || !v.seen {
		return window{}
	}
	return window{
		since: from.at.Add(-clockMargin).Truncate(day),
		until: v.last.clock.Add(time.Since(v.lastAt)).Truncate(day).Add(2 * day),
	}
}

// reaches reports whether a scan that looked into the window can have found all
// that its snapshot shows. If not, the view remembers how far the next has to go.
func (v *view) reaches(w window, s snapshot) bool {
	all := w.until.IsZero() || s.clock.Add(clockMargin).Before(w.until)
	if !all {
		v.last.clock, v.lastAt = s.clock, time.Now()
	}
	if w.since.IsZero() {
		return all
	}
	for i, o := range v.open {
		if !slices.Contains(s.running, o.xid) && o.at.Add(-clockMargin).Before(w.since) {
			v.open[i].ended, all = true, false
		}
	}
	return all
}

// bounds are the ends of a window as the database compares them.
func (w window) bounds() (since, until pgtype.Timestamptz) {
	return bound(w.since, pgtype.NegativeInfinity), bound(w.until, pgtype.Infinity)
}

func bound(at time.Time, end pgtype.InfinityModifier) pgtype.Timestamptz {
	if at.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: end, Valid: true}
	}
	return pgtype.Timestamptz{Time: at, Valid: true}
}
