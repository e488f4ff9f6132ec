package execution

import (
	"slices"
	"sync"

	"github.com/millrace/millrace/topics"
)

// State is where an execution stands.
type State string

// The states. The first four are on the way; the others are terminal.
const (
	Requested   State = "REQUESTED"   // recorded, not yet seen by the coordinator
	Queued      State = "QUEUED"      // valid, waits for admission
	Scheduled   State = "SCHEDULED"   // admitted: capacity is reserved, a task record is out
	Running     State = "RUNNING"     // a worker holds the lease of the current attempt
	Completed   State = "COMPLETED"   // ended well
	Failed      State = "FAILED"      // ended badly, no attempts left
	TimedOut    State = "TIMED_OUT"   // a time limit passed
	Cancelled   State = "CANCELLED"   // somebody asked for it to stop
	Rejected    State = "REJECTED"    // the coordinator refused it
	Quarantined State = "QUARANTINED" // its attempts keep taking workers down
)

// States returns all states, the ones on the way first.
func States() []State {
	return []State{
		Requested, Queued, Scheduled, Running,
		Completed, Failed, TimedOut, Cancelled, Rejected, Quarantined,
	}
}

// Terminal reports whether an execution in this state never leaves it.
func (s State) Terminal() bool {
	switch s {
	case Completed, Failed, TimedOut, Cancelled, Rejected, Quarantined:
		return true
	default:
		return false
	}
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Transition is one legal edge of the state machine: in state From, the event
// leads to To. From is empty for the event that creates the execution.
type Transition struct {
	From  State
	Event string
	To    State
}

// Transitions returns the whole state machine. The table is the source of the
// diagram in the documentation and of the check in every command.
func Transitions() []Transition { return slices.Clone(transitions()) }

var transitions = sync.OnceValue(func() []Transition {
	requested := topics.ExecutionRequested{}.EventType()
	queued := topics.ExecutionQueued{}.EventType()
	rejected := topics.ExecutionRejected{}.EventType()
	scheduled := topics.ExecutionScheduled{}.EventType()
	requeued := topics.ExecutionRequeued{}.EventType()
	started := topics.ExecutionStarted{}.EventType()
	completed := topics.ExecutionCompleted{}.EventType()
	failed := topics.ExecutionFailed{}.EventType()
	timedOut := topics.ExecutionTimedOut{}.EventType()
	cancelled := topics.ExecutionCancelled{}.EventType()
	quarantined := topics.ExecutionQuarantined{}.EventType()
	return []Transition{
		{"", requested, Requested},
		{Requested, queued, Queued},
		{Requested, rejected, Rejected},
		{Requested, cancelled, Cancelled},
		{Requested, timedOut, TimedOut},
		{Queued, scheduled, Scheduled},
		{Queued, rejected, Rejected},
		{Queued, cancelled, Cancelled},
		{Queued, timedOut, TimedOut},
		{Queued, failed, Failed},
		{Scheduled, started, Running},
		{Scheduled, requeued, Queued},
		{Scheduled, cancelled, Cancelled},
		{Scheduled, timedOut, TimedOut},
		{Scheduled, failed, Failed},
		{Running, completed, Completed},
		{Running, failed, Failed},
		{Running, timedOut, TimedOut},
		{Running, cancelled, Cancelled},
		{Running, requeued, Queued},
		{Running, quarantined, Quarantined},
	}
})

// legal reports whether the event may happen in state s.
func legal(s State, event string) bool {
	return slices.ContainsFunc(transitions(), func(t Transition) bool { return t.From == s && t.Event == event })
}

// StateAfter returns the state that an event of this type leads to, and false
// for events that change no state. Each event type leads to one state, whatever
// state it started from: readers need no history to know where they are.
func StateAfter(event string) (State, bool) {
	for _, t := range transitions() {
		if t.Event == event {
			return t.To, true
		}
	}
	return "", false
}
