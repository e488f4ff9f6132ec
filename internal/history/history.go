package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

// The short names of the event types that are judged: what is left of the type
// without "millrace.execution." and the version.
const (
	Requested   = "requested"
	Queued      = "queued"
	Rejected    = "rejected"
	Scheduled   = "scheduled"
	Started     = "started"
	Requeued    = "requeued"
	Completed   = "completed"
	Failed      = "failed"
	TimedOut    = "timed_out"
	Cancelled   = "cancelled"
	Quarantined = "quarantined"
	Expired     = "lease_expired"
	// Task is the record for the workers. It is no event of the execution and has no
	// place in its sequence.
	Task = "task"
)

const (
	typePrefix = "millrace.execution."
	podPrefix  = "millrace.pod."
	typeSuffix = ".v1"
)

// Event is one event, reduced to what decisions are judged by.
type Event struct {
	Type string
	// ID is the identity of the event: the same event found twice is one.
	ID string
	// Sequence is its place in the history of the execution, from 1; 0 for a Task.
	Sequence int64
	// At is the time of the fact.
	At time.Time
	Details
}

// Details are the fields of the events' data that are judged. Those that a type
// does not have are zero.
type Details struct {
	Attempt    int             `json:"attempt"`
	Priority   int             `json:"priority"`
	ReadyAt    time.Time       `json:"ready_at"`
	Worker     string          `json:"worker"`
	Admitter   string          `json:"admitter"`
	Reason     string          `json:"reason"`
	Cause      string          `json:"cause"`
	RetryAfter topics.Duration `json:"retry_after"`
}

// Final reports whether the event ends its execution.
func (e Event) Final() bool {
	s, changes := execution.StateAfter(typePrefix + e.Type + typeSuffix)
	return changes && s.Terminal()
}

// ofPod reports whether the event is about a pod of the execution. What becomes of pods
// may be told after the end, and has its place in the sequence.
func (e Event) ofPod() bool { return strings.HasPrefix(e.Type, podPrefix) }

// releases reports whether what the execution had taken of the capacity is free
// after the event.
func (e Event) releases() bool { return e.Final() || e.Type == Requeued }

// decodeEvent reads an event as it lies in the outbox or in the log.
func decodeEvent(eventType, id string, sequence int64, at time.Time, data []byte) (Event, error) {
	e := Event{
		Type: strings.TrimSuffix(strings.TrimPrefix(eventType, typePrefix), typeSuffix),
		ID:   id, Sequence: sequence, At: at.UTC(),
	}
	if err := json.Unmarshal(data, &e.Details); err != nil {
		return e, fmt.Errorf("event %s of type %s: %w", id, eventType, err)
	}
	return e, nil
}

// Life is one execution: what its row says and what its events tell.
type Life struct {
	ID      string
	Request topics.Request
	// Place is its number among the executions of its concurrency key, 0 without one.
	Place int64
	// State, Attempt and Version are those of the row. State is empty when there is
	// no row.
	State   execution.State
	Attempt int
	Version int64
	// Events are in the order of their sequence, Tasks beside them.
	Events []Event
	Tasks  []Event
}

// arrange sorts the events by their sequence and drops copies.
func (l *Life) arrange() {
	for _, list := range []*[]Event{&l.Events, &l.Tasks} {
		slices.SortStableFunc(*list, func(a, b Event) int {
			if a.Sequence != b.Sequence {
				return int(a.Sequence - b.Sequence)
			}
			return strings.Compare(a.ID, b.ID)
		})
		*list = slices.CompactFunc(*list, func(a, b Event) bool { return a.ID == b.ID })
	}
}

// End returns the event that ended the execution, if any has.
func (l *Life) End() (Event, bool) {
	i := slices.IndexFunc(l.Events, Event.Final)
	if i < 0 {
		return Event{}, false
	}
	return l.Events[i], true
}

// Hold is a stretch of time for which an execution has what it asked for: from the
// admission of an attempt to its release.
type Hold struct {
	Life    *Life
	Attempt int
	From    time.Time
	// To is zero while it lasts.
	To time.Time
}

// Holds returns the stretches for which the execution was admitted.
func (l *Life) Holds() []Hold {
	var holds []Hold
	for _, e := range l.Events {
		open := len(holds) > 0 && holds[len(holds)-1].To.IsZero()
		switch {
		case e.Type == Scheduled:
			holds = append(holds, Hold{Life: l, Attempt: e.Attempt, From: e.At})
		case open && e.releases():
			holds[len(holds)-1].To = e.At
		}
	}
	return holds
}

// Wait is a stretch of time for which an attempt waits to be admitted.
type Wait struct {
	Life    *Life
	Attempt int
	// From is since when it could be admitted: it is queued and ready.
	From time.Time
	// Rank is its place in the queue without the step of ageing: ready at, with the
	// priority beside it.
	ReadyAt  time.Time
	Priority int
	// To is when it was admitted or stopped waiting; zero while it lasts. Admitted
	// says which.
	To       time.Time
	Admitted bool
}

// Waits returns the stretches for which the execution waited.
func (l *Life) Waits() []Wait {
	var waits []Wait
	priority := l.Request.Priority
	for _, e := range l.Events {
		open := len(waits) > 0 && waits[len(waits)-1].To.IsZero()
		switch {
		case e.Type == Queued || e.Type == Requeued:
			if e.Priority > 0 {
				priority = e.Priority
			}
			from := e.At
			if e.ReadyAt.After(from) {
				from = e.ReadyAt
			}
			waits = append(waits, Wait{Life: l, Attempt: e.Attempt, From: from, ReadyAt: e.ReadyAt, Priority: priority})
		case open && (e.Type == Scheduled || e.Final()):
			waits[len(waits)-1].To, waits[len(waits)-1].Admitted = e.At, e.Type == Scheduled
		}
	}
	return waits
}

// History is what is known of a set of executions.
type History struct{ Lives []*Life }

// Violation is one promise that was broken.
type Violation struct {
	// Check names the promise: "once", "sequence", "state", "forgotten", "capacity",
	// "rate", "concurrency", "key", "order".
	Check string
	// Subject is the execution, class, limit or key it is about; Text says what is
	// wrong.
	Subject, Text string
}

// String is the violation as one line.
func (v Violation) String() string { return v.Check + ": " + v.Subject + ": " + v.Text }

// verdict gathers violations.
type verdict struct{ found []Violation }

func (v *verdict) add(check, subject, format string, args ...any) {
	v.found = append(v.found, Violation{Check: check, Subject: subject, Text: fmt.Sprintf(format, args...)})
}
