package linear

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/millrace/millrace/internal/execution"
)

// Kind is what a client asks of an execution.
type Kind string

// The kinds.
const (
	Submit    Kind = "submit"
	Queue     Kind = "queue"     // for validation and the admission queue
	Admit     Kind = "admit"     // one execution of a round
	Claim     Kind = "claim"     // the lease was obtained; asking in vain says nothing
	Heartbeat Kind = "heartbeat" // one attempt of many
	Finish    Kind = "finish"    // the end of an attempt
	Expire    Kind = "expire"    // a lease or a limit has run out
	Cancel    Kind = "cancel"
	Read      Kind = "read"
)

// Call is a client's call that concerns one execution.
type Call struct {
	Kind      Kind
	Execution string
	Worker    string
	Attempt   int
	// Leads is the state that a Finish or an Expire leads to when it is accepted:
	// Queued stands for another attempt, or for the end if a cancel was asked for.
	Leads execution.State
}

// Answer is what the client was told.
type Answer struct {
	Outcome Outcome
	// State, Attempt and Worker are those of an execution that was returned.
	State   execution.State
	Attempt int
	Worker  string
	// Cancel is whether a heartbeat brought back a cancel.
	Cancel bool
}

func (a Answer) unknown() bool { return a.Outcome == Unknown }

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	// Stale: the caller is not the holder (any more).
	Stale Outcome = "stale"
	// Ended: the execution has ended.
	Ended Outcome = "ended"
	// Unknown: no answer came, such as of a commit in doubt.
	Unknown Outcome = "unknown"
)

// lease is the state of the model: everything about one execution that answers
// depend on.
type lease struct {
	state   execution.State
	attempt int
	worker  string
	cancel  bool
}

func (s lease) held(c Call) bool {
	return s.state == execution.Running && s.attempt == c.Attempt && s.worker == c.Worker
}

// apply is what an accepted call does; not ok where it cannot be accepted.
func (s lease) apply(c Call) (lease, bool) {
	switch c.Kind {
	case Submit:
		return lease{state: execution.Requested}, s.state == ""
	case Queue:
		if s.state == execution.Requested {
			s.state, s.attempt = execution.Queued, 1
		}
		return s, s.state != "" // a repeated event changes nothing
	case Admit:
		ok := s.state == execution.Queued && s.attempt == c.Attempt
		s.state = execution.Scheduled
		return s, ok
	case Claim:
		ok := s.state == execution.Scheduled && s.attempt == c.Attempt
		s.state, s.worker = execution.Running, c.Worker
		return s, ok
	case Finish:
		return s.leave(c.Leads), s.held(c)
	case Expire:
		ok := s.attempt == c.Attempt && (s.state == execution.Running || s.state == execution.Scheduled && c.Leads == execution.Queued)
		return s.leave(c.Leads), ok
	case Cancel:
		ok := s.state != "" && !s.state.Terminal()
		if s.state == execution.Running {
			s.cancel = true
		} else {
			s.state = execution.Cancelled
		}
		return s, ok
	default: // Heartbeat and Read change nothing
		return s, true
	}
}

// leave ends the attempt. What was asked to stop is not tried again.
func (s lease) leave(to execution.State) lease {
	switch {
	case to == execution.Queued && s.cancel:
		to = execution.Cancelled
	case to == execution.Queued:
		s.attempt++
	}
	s.state = to
	return s
}

// step says whether the answer makes sense in the state, and what comes of it.
func (s lease) step(c Call, a Answer) (bool, lease) {
	switch a.Outcome {
	case Unknown:
		if next, ok := s.apply(c); ok {
			return true, next
		}
		return true, s
	case Stale:
		if c.Kind == Heartbeat {
			return !s.held(c), s // it does not tell why
		}
		return s.state != "" && !s.state.Terminal() && !s.held(c), s
	case Ended:
		return s.state.Terminal(), s
	case Accepted:
	}
	next, ok := s.apply(c)
	return ok && told(c, a, s, next), next
}

// told reports whether what an accepted call brought back is what was the case.
func told(c Call, a Answer, before, after lease) bool {
	switch c.Kind {
	case Heartbeat:
		return before.held(c) && before.cancel == a.Cancel
	case Cancel:
		return after.state == a.State && after.attempt == a.Attempt
	case Read:
		return before.state == a.State && before.attempt == a.Attempt &&
			(before.state != execution.Running || before.worker == a.Worker)
	default:
		return true
	}
}

// LeaseModel is the model of one execution, for histories of any number of them.
func LeaseModel() porcupine.Model {
	return porcupine.Model{
		Partition: byExecution,
		Init:      func() any { return lease{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(lease).step(input.(Call), output.(Answer))
		},
		DescribeOperation: func(input, output any) string {
			return describe(input.(Call), output.(Answer))
		},
		DescribeState: func(state any) string {
			s := state.(lease)
			return fmt.Sprintf("%s, attempt %d, worker %s, cancel %v", s.state, s.attempt, s.worker, s.cancel)
		},
	}
}

func describe(c Call, a Answer) string {
	text := fmt.Sprintf("%s attempt %d of %s by %q", c.Kind, c.Attempt, c.Execution, c.Worker)
	if c.Leads != "" {
		text += fmt.Sprintf(" to %s", c.Leads)
	}
	text += " -> " + string(a.Outcome)
	if a.State != "" {
		text += fmt.Sprintf(" (%s, attempt %d)", a.State, a.Attempt)
	}
	return text
}

// byExecution splits a history, in the order in which executions first appear.
func byExecution(ops []porcupine.Operation) [][]porcupine.Operation {
	var parts [][]porcupine.Operation
	at := map[string]int{}
	for _, op := range ops {
		id := op.Input.(Call).Execution
		i, ok := at[id]
		if !ok {
			i = len(parts)
			at[id] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// CheckLeases returns nil when the history can be explained, and otherwise an error
// that tells the operations of the first execution that cannot.
func CheckLeases(ops []porcupine.Operation, within time.Duration) error {
	model := LeaseModel()
	end := time.Now().Add(within)
	model.Partition = nil
	for _, part := range byExecution(ops) {
		if err := verdict(model, part, time.Until(end)); err != nil {
			return err
		}
	}
	return nil
}
