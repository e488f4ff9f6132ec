package outbox

import (
	"bytes"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/topics"
)

// shard is one shard for as long as we hold its lease.
type shard struct {
	number int
	held   *lease.Held
	// edge is before all rows that the next scan has to find, but for those of
	// transactions that the view knows to be open.
	edge edge
	// since is when it was gained.
	since time.Time
	// fresh until a sweep has told which of its aggregates wait.
	fresh bool
	// hungry when the last scan left open rows unread.
	hungry bool
	// leaving: nothing more is published; drained is closed when nothing is under
	// way any more.
	leaving bool
	drained chan struct{}
	// gone: its rows are not ours to touch any more.
	gone bool
	// busy counts rows in calls and rows that are not marked yet.
	busy int
}

// row is one outbox row in memory.
type row struct {
	seq int64
	// created is the time in the row, which says in which partition it is.
	created     time.Time
	shard       *shard
	shardNumber int
	id          string
	lane        laneKey
	topic       topics.Topic
	record      topics.Record
	attempts    int
	// version is that of the aggregate which the row's event led to; 0: unknown.
	version int64
	// leader is the row that this one follows, if it has no version of its own: an
	// earlier one of its transaction.
	leader *row
	bytes  int
	// born is when it was written: the database's clock until it was read, ours
	// since.
	born time.Time
	// scanned is the number of the scan that has brought it, 0 when it was handed over.
	scanned uint64
	// damage is why the row cannot be turned into a record, if it cannot.
	damage error
}

// laneKey names an aggregate.
type laneKey struct{ kind, id string }

// lane is the rows of one aggregate, in order. It exists while there are any, and
// while the aggregate waits for a rejected row.
type lane struct {
	key   laneKey
	shard *shard
	rows  []*row // waiting to be published
	// calling counts rows in a call; none other is sent meanwhile.
	calling int
	// ready: it stands in the queue of lanes that have something to publish.
	ready bool
	// waiting: a rejected row holds it up. Only a sweep that began after the
	// rejection was written down, and no longer finds it in the way, ends that.
	waiting bool
	// unwritten: the rejection is not written down yet; writtenAt is the number of
	// the last scan that had begun when it was.
	unwritten bool
	writtenAt uint64
	// blockedSince is when the row was written that it waits for.
	blockedSince time.Time
}

// add puts a row in its place.
func (l *lane) add(r *row) {
	if n := len(l.rows); n == 0 || l.rows[n-1].seq < r.seq {
		l.rows = append(l.rows, r)
		return
	}
	at, _ := slices.BinarySearchFunc(l.rows, r.seq, func(x *row, seq int64) int {
		switch {
		case x.seq < seq:
			return -1
		case x.seq > seq:
			return 1
		}
		return 0
	})
	l.rows = slices.Insert(l.rows, at, r)
}

// run returns the rows at the head of the lane that may be sent together: those
// for one topic and key, whose order the publisher keeps, and what follows an event
// in its transaction, for another topic, where nobody can see which was first. A row
// that was rejected before goes alone.
func (l *lane) run(maxRows, maxBytes int) []*row {
	first := l.rows[0]
	size := first.bytes
	n := 1
	for ; n < len(l.rows) && n < maxRows && first.attempts == 0 && first.damage == nil; n++ {
		next := l.rows[n]
		size += next.bytes
		if size > maxBytes || !next.along(l.rows[n-1], first) {
			break
		}
	}
	return l.rows[:n:n]
}

// along reports whether a row may be sent together with those from first to last.
func (r *row) along(last, first *row) bool {
	switch {
	case r.attempts > 0 || r.damage != nil:
		return false
	case r.leader != nil && (last == r.leader || last.leader == r.leader):
		return true
	}
	return r.topic == first.topic && last.leader == nil &&
		first.record.Key != nil && r.record.Key != nil && bytes.Equal(r.record.Key, first.record.Key)
}

// live reports whether rows of the shard may be published now, and for how long.
func (s *shard) live() (time.Duration, bool) {
	if s.gone || s.leaving {
		return 0, false
	}
	left := s.held.Remaining()
	return left, left > 0
}
