package projections

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/millrace/millrace/topics"
)

// Order says what puts the events of a row in order.
type Order uint8

const (
	// ByVersion orders by the version of the aggregate (the sequence of the event), which
	// Millrace's own events carry. Marks are stored as bigint.
	ByVersion Order = iota
	// ByTime orders by the time of the event, clamped (see MaxAhead), and then by its
	// identity: for events of programs that number nothing, and for rows to which events
	// of many aggregates contribute. Marks are stored as uuid.
	ByTime
	// ByVersionOrTime is ByVersion for events that Millrace wrote and numbered, and ByTime
	// for all others: for rows of one aggregate, of Millrace or of another program. Marks
	// are stored as uuid.
	ByVersionOrTime
)

// MaxAhead is how far the time of an event may lie after the time at which the
// broker took it. An event that claims to be later is kept and flagged, and ranks as
// if it had been exactly this much ahead, so that it does not win for ever.
const MaxAhead = 5 * time.Minute

// A Mark places an event among all the events that speak of a row: a byte of rank,
// eight of time or version, seven of identity, compared from left to right. The zero
// Mark comes before every event.
type Mark [16]byte

// compare returns -1, 0 or 1 as m comes before, is, or comes after other.
func (m Mark) compare(other Mark) int { return bytes.Compare(m[:], other[:]) }

// version is the mark as ByVersion stores it; 0 where there is none.
func (m Mark) version() int64 {
	return int64(binary.BigEndian.Uint64(m[1:9]))
}

// ranked returns the mark with a rank.
func (m Mark) ranked(rank uint8) Mark {
	m[0] = rank
	return m
}

func versionMark(version int64) (m Mark) {
	binary.BigEndian.PutUint64(m[1:9], uint64(max(version, 0)))
	return m
}

// timeMark returns the mark of an event of that time. Two events of one time are told
// apart by a hash of their identity, which no order of arrival can change.
func timeMark(at time.Time, source, id string) (m Mark) {
	// The sign is flipped, so that times before 1970 come first.
	binary.BigEndian.PutUint64(m[1:9], uint64(nanos(at))^(1<<63))
	hash := sha256.New()
	hash.Write([]byte(source))
	hash.Write([]byte{0})
	hash.Write([]byte(id))
	copy(m[9:], hash.Sum(nil))
	return m
}

var (
	earliestNano = time.Unix(0, math.MinInt64)
	latestNano   = time.Unix(0, math.MaxInt64)
)

// nanos is the time in nanoseconds since 1970; those that do not fit (before 1678,
// after 2261) become the nearest that does.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(earliestNano):
		return math.MinInt64
	case t.After(latestNano):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// An Event is what Apply is given: an event with the record that carried it and its
// place in the history.
type Event struct {
	topics.Envelope
	// Record is the record as it lay in the topic.
	Record topics.Record
	// At is the time of the event, or of the record where the event has none, at most
	// MaxAhead after the time of the record.
	At time.Time
	// Future says that the event claims a later time than that.
	Future bool
}

// NewEvent returns the event that a record carried, with its time clamped.
func NewEvent(env topics.Envelope, record topics.Record) Event {
	e := Event{Envelope: env, Record: record, At: env.Time}
	if e.At.IsZero() {
		e.At = record.Timestamp
	}
	// A record without a time of its own has not been at a broker.
	if limit := record.Timestamp.Add(MaxAhead); !record.Timestamp.IsZero() && e.At.After(limit) {
		e.At, e.Future = limit, true
	}
	return e
}

// mark returns the mark of the event in a table of that order, and whether it has one.
func (e Event) mark(order Order) (Mark, bool) {
	numbered := e.Sequence > 0
	switch {
	case order == ByVersion:
		return versionMark(e.Sequence), numbered
	case order == ByVersionOrTime && numbered && e.Source == topics.DefaultSource:
		return versionMark(e.Sequence), true
	default:
		return timeMark(e.At, e.Source, e.ID), true
	}
}
