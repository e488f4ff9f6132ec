package deadletter

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/postgres"
)

// Status is where a letter stands.
type Status string

// The statuses.
const (
	// Open: nobody has decided about it.
	Open Status = "OPEN"
	// Redriven: the record was given to its consumer again. If that fails too, there
	// is another letter; if it succeeds, nobody tells.
	Redriven Status = "REDRIVEN"
	// Resolved: what the record was to bring about was brought about otherwise. It is
	// set by hand, in SQL.
	Resolved Status = "RESOLVED"
	// Discarded: somebody decided that the record is not needed.
	Discarded Status = "DISCARDED"
)

// Statuses returns all statuses. The caller may change the slice.
func Statuses() []Status { return []Status{Open, Redriven, Resolved, Discarded} }

// Valid reports whether s is one of Statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// Filter selects letters. Fields that are empty select all.
type Filter struct {
	Statuses []Status
	// Topic is the name at the broker of the topic that the record lay in.
	Topic, Consumer, EventType string
	// Class is "message" or "handler".
	Class, Fingerprint string
	// Key is that of the record. Nil selects all.
	Key []byte
	// FailedAfter and FailedBefore bound the last failure, both exclusive.
	FailedAfter, FailedBefore time.Time
}

func (f Filter) conditions() *postgres.Conditions {
	q := &postgres.Conditions{}
	switch len(f.Statuses) {
	case 0:
	case 1: // lets an index serve the order too
		q.Equal("status", string(f.Statuses[0]))
	default:
		q.Where("status = ANY(%s)", f.Statuses)
	}
	q.Equal("topic", f.Topic)
	q.Equal("consumer", f.Consumer)
	q.Equal("event_type", f.EventType)
	q.Equal("class", f.Class)
	q.Equal("fingerprint", f.Fingerprint)
	if f.Key != nil {
		q.Where("key = %s", f.Key)
	}
	if !f.FailedAfter.IsZero() {
		q.Where("last_failed_at > %s", f.FailedAfter)
	}
	if !f.FailedBefore.IsZero() {
		q.Where("last_failed_at < %s", f.FailedBefore)
	}
	return q
}

// identity is the filter as page tokens compare it.
func (f Filter) identity() Filter {
	f.Statuses = slices.Clone(f.Statuses)
	slices.Sort(f.Statuses)
	f.FailedAfter, f.FailedBefore = f.FailedAfter.UTC(), f.FailedBefore.UTC()
	return f
}
