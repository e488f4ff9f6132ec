package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

// Errors of commands. The servers map them to their codes in one table.
var (
	// ErrIllegal: the command does not fit the state that the execution is in.
	ErrIllegal = errors.New("transition not allowed")
	// ErrStaleAttempt: the caller speaks for an attempt that is no longer the
	// current one, or for a lease that another worker holds.
	ErrStaleAttempt = errors.New("attempt is no longer current")
	// ErrAdmitted: the execution has been admitted, and what concerns its place in the
	// queue comes too late.
	ErrAdmitted = errors.New("execution has been admitted")
	// ErrTerminal: the execution has ended.
	ErrTerminal = errors.New("execution has ended")
)

// Execution is one requested run. The zero value is not useful: New makes one,
// the store loads the others.
type Execution struct {
	ID      string
	Request topics.Request
	State   State
	// Version is the number of events recorded so far.
	Version int64
	// Attempt counts from 1 (0 before the first queueing) and is the fencing token
	// of the lease: whoever reports for another attempt is refused.
	Attempt int
	// First is the attempt with which the work began that the current one carries on:
	// those in between have lost their worker, were handed back or postponed, and none has
	// ended by itself. 0, as in rows of earlier versions, means Attempt.
	First int
	// Failures counts the attempts that ended badly by themselves: what the retry
	// policy limits. An attempt lost with its worker is not among them.
	Failures int
	// Deliveries counts the attempts whose lease ran out: the sign of work that
	// takes its worker down. See Policy.DeliveryMemory.
	Deliveries int
	// ReadyAt is when the execution may be admitted at the earliest.
	ReadyAt time.Time
	// Rank is the place in the flow, lowest first: the time from which it may be admitted,
	// less a step for each band of its priority.
	Rank time.Time
	// Waiting is what of its own keeps a queued execution from being admitted.
	Waiting Waiting
	// Flow is where it waits, and what it holds is counted to (see package admission):
	// a UUID; empty before the first queueing.
	Flow string
	// DueAt is when the sweeper has to look next: a limit or a lease ends then.
	// Zero when nothing is due.
	DueAt time.Time

	RequestedAt time.Time
	QueuedAt    time.Time
	ScheduledAt time.Time
	StartedAt   time.Time
	FinishedAt  time.Time

	// Worker and LeaseExpiresAt describe the lease while RUNNING; Worker stays
	// afterwards as the last one that ran it.
	Worker         string
	LeaseExpiresAt time.Time

	// Setback is why the attempt before the current one came to nothing; nil for the
	// first, and after the end.
	Setback *Setback
	// Cancel is set once a cancel was asked for.
	Cancel *CancelRequest
	// Result is set in terminal states.
	Result *Result

	events []Recorded
	stored Stored
}

// Waiting is what of its own keeps a queued execution from being admitted. What lies
// with others, such as limits and capacity, is not known here.
type Waiting int16

// What an execution waits for.
const (
	WaitingForTurn Waiting = iota // nothing of its own: it may be admitted
	WaitingForKey                 // another one with its concurrency key comes first
	WaitingForTime                // it is not ReadyAt yet
	WaitingForSize                // no worker of its class is large enough
)

// Stored is how an execution stands in the tables, as far as the admission has to
// hear of a change.
type Stored struct {
	State   State
	Waiting Waiting
	Rank    time.Time
	Flow    string
}

// MarkStored notes that the execution stands in the tables as it is now.
func (e *Execution) MarkStored() {
	e.stored = Stored{State: e.State, Waiting: e.Waiting, Rank: e.Rank, Flow: e.Flow}
}

// Stored returns how the execution stood when MarkStored was called last; the zero
// value for one that is not in the tables.
func (e *Execution) Stored() Stored { return e.stored }

// CancelRequest says who asked to cancel and why.
type CancelRequest struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Setback is why an attempt came to nothing that is followed by another one.
type Setback struct {
	// Cause is one of topics.RequeuedFailed and those beside it.
	Cause string `json:"cause"`
	// Reason is a stable code, and Message says it in words; of a long one the beginning.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Times is how often in a row it has come to nothing by this cause, and Since when it
	// first did.
	Times int       `json:"times"`
	Since time.Time `json:"since"`
}

// Result is how an execution ended.
type Result struct {
	// Reason is a stable code; empty when COMPLETED.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Limit names the limit that passed when TIMED_OUT: queue, start, run, total.
	Limit string `json:"limit,omitempty"`
	// RetryAfter is how long after its rejection the same request may be accepted;
	// zero when it was not rejected, or would be again.
	RetryAfter topics.Duration `json:"retry_after,omitzero"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	// ValueRef stands for a value that is kept apart.
	ValueRef *topics.ValueReference `json:"value_ref,omitempty"`
	Stdout   topics.StreamSummary   `json:"stdout,omitzero"`
	Stderr   topics.StreamSummary   `json:"stderr,omitzero"`
}

// Recorded is an event that a command recorded, with the version it brought the
// execution to.
type Recorded struct {
	Event    topics.Event
	Sequence int64
	// At is the time of the fact.
	At time.Time
}

// Policy holds the settings of the platform that commands need.
type Policy struct {
	// AgeingStep is how long the work of a user is passed over until it counts as one
	// band of priority more (package admission), so that none stands still for longer
	// than four steps. Default 30 s.
	AgeingStep time.Duration
	// StartLimit is how long a scheduled execution may wait for a worker before
	// it goes back to the queue, where the request sets none. Default 1 m.
	StartLimit time.Duration
	// MaxDeliveries is after how many expired leases an execution is quarantined.
	// Default 5.
	MaxDeliveries int
	// DeliveryMemory is how long an attempt must have been held, of an executor whose work
	// outlives its worker, so that expired leases of before are not counted any more.
	// Default 10 m.
	DeliveryMemory time.Duration
	// LeaseRetryBackoff is how long an execution waits after an expired lease.
	// Default 1 s.
	LeaseRetryBackoff time.Duration
	// MaxPostponed bounds how long an execution waits until it is tried again for which
	// there is no room where its executor runs things, unless the executor itself asks
	// for longer. Default 5 m.
	MaxPostponed time.Duration
}

// DefaultPolicy returns the defaults of Policy.
func DefaultPolicy() Policy {
	return Policy{
		AgeingStep:        30 * time.Second,
		StartLimit:        time.Minute,
		MaxDeliveries:     5,
		DeliveryMemory:    10 * time.Minute,
		LeaseRetryBackoff: time.Second,
		MaxPostponed:      5 * time.Minute,
	}
}

// New records a request. The request must have been normalized (Normalize).
func New(id string, req topics.Request, now time.Time) *Execution {
	e := &Execution{ID: id, Request: req, RequestedAt: now}
	e.record(now, topics.ExecutionRequested{ExecutionID: id, Request: req, RequestedAt: now})
	e.DueAt = earliest(e.queueDeadline(), e.totalDeadline())
	return e
}

// TakeEvents returns the events recorded since the last call and forgets them.
func (e *Execution) TakeEvents() []Recorded {
	events := e.events
	e.events = nil
	return events
}

// record moves the state machine by the event and remembers it. Commands check
// first and record after, so an illegal step here is a bug of the command.
func (e *Execution) record(now time.Time, ev topics.Event) {
	if to, changes := StateAfter(ev.EventType()); changes {
		if !legal(e.State, ev.EventType()) {
			panic(fmt.Sprintf("execution: recorded %s in state %q", ev.EventType(), e.State))
		}
		e.State = to
	}
	e.Version++
	e.events = append(e.events, Recorded{Event: ev, Sequence: e.Version, At: now})
}

// require returns an error unless the event is legal in the current state.
func (e *Execution) require(ev topics.Event) error {
	if legal(e.State, ev.EventType()) {
		return nil
	}
	if e.State.Terminal() {
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, ErrTerminal)
	}
	return fmt.Errorf("execution %s is %s, %s does not apply: %w", e.ID, e.State, ev.EventType(), ErrIllegal)
}

// Slots returns how much capacity the execution takes while scheduled or
// running.
func (e *Execution) Slots() int { return max(e.Request.Requirements.Slots, 1) }

// queueDeadline returns until when the execution must have been scheduled for the
// first time. Waiting until not_before was asked for and is no waiting in the queue.
func (e *Execution) queueDeadline() time.Time {
	if e.Attempt > 1 {
		return time.Time{}
	}
	from := e.RequestedAt
	if nb := e.Request.NotBefore; nb != nil && nb.After(from) {
		from = *nb
	}
	return deadline(from, e.Request.Limits.Queue)
}

func (e *Execution) totalDeadline() time.Time {
	return deadline(e.RequestedAt, e.Request.Limits.Total)
}

func (e *Execution) startDeadline(p Policy) time.Time {
	if limit := e.Request.Limits.Start; limit > 0 {
		return deadline(e.ScheduledAt, limit)
	}
	return e.ScheduledAt.Add(p.StartLimit)
}

// RunDeadline returns when the current attempt must have ended by the request's
// run and total limits, or the zero time.
func (e *Execution) RunDeadline() time.Time {
	return earliest(deadline(e.StartedAt, e.Request.Limits.Run), e.totalDeadline())
}

// deadline returns from plus limit, or the zero time where there is no limit.
func deadline(from time.Time, limit topics.Duration) time.Time {
	if limit <= 0 {
		return time.Time{}
	}
	return from.Add(time.Duration(limit))
}

// earliest returns the earliest of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func passed(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }
