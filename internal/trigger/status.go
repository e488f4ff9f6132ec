package trigger

import "time"

// State says how a trigger, a member or a partition is doing.
type State string

// The states.
const (
	// StateDisabled: it is switched off.
	StateDisabled State = "disabled"
	// StateStarting: no member has said yet that it receives.
	StateStarting State = "starting"
	// StateRunning: it receives.
	StateRunning State = "running"
	// StateError: something stands still. Cause says what, and what to do.
	StateError State = "error"
	// StateUnowned: no process runs it, though one should.
	StateUnowned State = "unowned"
)

// Cause says why something stands still.
type Cause struct {
	// Code is stable, such as "broker_unreachable", "authentication_failed",
	// "topic_missing", "limit_reached", "poison", "storage".
	Code string `json:"code"`
	// Message says it in words, and Hint what to do.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// MemberReport is what a member tells of itself.
type MemberReport struct {
	State State `json:"state"`
	// Cause is set in StateError.
	Cause *Cause `json:"cause,omitempty"`
	// Since is when the state began, NextTry when the member tries again.
	Since   time.Time `json:"since"`
	NextTry time.Time `json:"next_try,omitzero"`
	// Attempts counts the tries since it stood.
	Attempts int `json:"attempts,omitempty"`
	// Notes are warnings that stop nothing, such as offsets that will expire.
	Notes      []Cause           `json:"notes,omitempty"`
	Partitions []PartitionReport `json:"partitions,omitempty"`
	// Effective are the settings in use, by name, with where each comes from.
	Effective []Setting `json:"effective,omitempty"`
}

// ScheduleReport is how the schedule of a trigger is doing. No member has it: whichever
// process sees that a time has come fires it.
type ScheduleReport struct {
	MemberReport
	// NextAt is the next time, zero when none is left; LastAt the latest that fired.
	NextAt time.Time `json:"next_at,omitzero"`
	LastAt time.Time `json:"last_at,omitzero"`
}

// PartitionReport is how one partition of a Kafka trigger is doing.
type PartitionReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// TopicID tells the topic from one of the same name before it, in hex; empty if it is
	// not known.
	TopicID string `json:"topic_id,omitempty"`
	State   State  `json:"state"`
	Cause   *Cause `json:"cause,omitempty"`
	// Offset is that of the next message, or of the one that cannot be taken, whose key is Key.
	Offset    int64  `json:"offset"`
	Key       []byte `json:"key,omitempty"`
	Committed int64  `json:"committed"`
	// End is the offset behind the last message in the log, -1 if it is not known.
	End      int64     `json:"end"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts,omitempty"`
	NextTry  time.Time `json:"next_try,omitzero"`
}

// Setting is a value in use and where it comes from.
type Setting struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
	// Source is "definition", "default" or "installation".
	Source string `json:"source"`
}

// Status is how a trigger is doing in the whole installation.
type Status struct {
	ID       string `json:"id"`
	UID      string `json:"uid"`
	Type     Type   `json:"type"`
	Revision int64  `json:"revision"`
	// State is the worst of members and partitions; Cause, Since and NextTry are those of
	// the one that is worst for the longest time.
	State   State     `json:"state"`
	Cause   *Cause    `json:"cause,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	NextTry time.Time `json:"next_try,omitzero"`
	// Notes are warnings that stop nothing.
	Notes []Cause `json:"notes,omitempty"`
	// NextAt is the next time of a schedule, zero when none is left; LastAt the latest that
	// fired.
	NextAt time.Time `json:"next_at,omitzero"`
	LastAt time.Time `json:"last_at,omitzero"`
	// Lag is how many messages wait in its topics; nil where it has none, or it is not known.
	Lag        *int64            `json:"lag,omitempty"`
	Members    []MemberStatus    `json:"members"`
	Partitions []PartitionStatus `json:"partitions,omitempty"`
	Effective  []Setting         `json:"effective,omitempty"`
}

// MemberStatus is one member of a trigger. In StateUnowned the rest is what the last owner
// said.
type MemberStatus struct {
	Member int `json:"member"`
	// Owner is the process that runs it, or did last.
	Owner    string    `json:"owner,omitempty"`
	State    State     `json:"state"`
	Cause    *Cause    `json:"cause,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	NextTry  time.Time `json:"next_try,omitzero"`
	Attempts int       `json:"attempts,omitempty"`
	// Revision is that of the definition it runs.
	Revision   int64     `json:"revision,omitempty"`
	ReportedAt time.Time `json:"reported_at,omitzero"`
}

// PartitionStatus is one partition, and which member has it. In StateUnowned the rest is
// what the last owner said.
type PartitionStatus struct {
	PartitionReport
	Member     int       `json:"member"`
	ReportedAt time.Time `json:"reported_at"`
}

// states are all states, the worst first.
var states = [...]State{StateError, StateUnowned, StateStarting, StateRunning, StateDisabled}

// Worse reports whether a trigger in this state needs attention more than one in the other.
// No state is the best.
func (s State) Worse(than State) bool { return s.rank() < than.rank() }

func (s State) rank() int {
	for i, state := range states {
		if s == state {
			return i
		}
	}
	return len(states)
}
