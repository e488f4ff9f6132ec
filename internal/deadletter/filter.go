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
	// is another letter.
	Redriven Status = "REDRIVEN"
	// Resolved: the consumer has processed the redriven record, or the record of a
	// letter that this one led to.
	Resolved Status = "RESOLVED"
	// Discarded: somebody decided that the record is not needed.
	Discarded Status = "DISCARDED"
	// Deleted: the record was destroyed. Such letters are archived.
	Deleted Status = "DELETED"
)

// Statuses returns all statuses. The caller may change the slice.
func Statuses() []Status { return []Status{Open, Redriven, Resolved, Discarded, Deleted} }

// Valid reports whether s is one of Statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// Filter selects letters. Fields that are empty select all.
type Filter struct {
	Statuses []Status `json:"statuses,omitempty"`
	// Topic is the name at the broker of the topic that the record lay in.
	Topic     string `json:"topic,omitempty"`
	Consumer  string `json:"consumer,omitempty"`
	EventType string `json:"event_type,omitempty"`
	// Class is "message" or "handler".
	Class       string `json:"class,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Key is that of the record. Nil selects all.
	Key []byte `json:"key,omitempty"`
	// Heads selects letters behind which their key waits in a lane.
	Heads bool `json:"heads,omitempty"`
	// FailedAfter and FailedBefore bound the last failure, both exclusive.
	FailedAfter  time.Time `json:"failed_after,omitzero"`
	FailedBefore time.Time `json:"failed_before,omitzero"`
	Archived     Archived  `json:"archived,omitempty"`
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
	if f.Heads {
		q.Where("id IN (SELECT head FROM parked_lanes)")
	}
	if !f.FailedAfter.IsZero() {
		q.Where("last_failed_at > %s", f.FailedAfter)
	}
	if !f.FailedBefore.IsZero() {
		q.Where("last_failed_at < %s", f.FailedBefore)
	}
	switch f.Archived {
	case NotArchived:
		q.Where("archived_at IS NULL")
	case OnlyArchived:
		q.Where("archived_at IS NOT NULL")
	case AnyArchived:
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
