package linear

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/millrace/millrace/internal/replay"
)

// Turn is a call that concerns one replay session: a Move, or one of the others.
type Turn struct {
	Move replay.Move
	// Advance moves the cursor from From to To, under the fencing Token, and ends the
	// session if Over.
	Advance  bool
	From, To int64
	Over     bool
	Token    int64
	// Look reads state and cursor.
	Look bool
}

// Seen is what the caller of a Turn was told.
type Seen struct {
	// Outcome is Accepted, Stale (of a keeper whose lease is lost), Ended (the state does
	// not allow it) or Unknown.
	Outcome Outcome
	State   replay.State
	At      int64
}

func (s Seen) unknown() bool { return s.Outcome == Unknown }

// session is the state of the model.
type session struct {
	state replay.State
	at    int64
	token int64
}

// apply is what an accepted turn does; not ok where it cannot be accepted.
func (s session) apply(t Turn) (session, bool) {
	switch {
	case t.Look:
		return s, true
	case t.Token != 0 && t.Token < s.token:
		return s, false // another keeper has worked since
	case t.Advance:
		ok := s.at == t.From
		s.at, s.token = t.To, max(s.token, t.Token)
		if t.Over && s.state == replay.Running {
			s.state = replay.Done
		}
		return s, ok
	default:
		next, err := s.state.After(t.Move)
		s.state, s.token = next, max(s.token, t.Token)
		return s, err == nil
	}
}

// step says whether the answer makes sense in the state, and what comes of it.
func (s session) step(t Turn, seen Seen) (bool, session) {
	next, ok := s.apply(t)
	switch seen.Outcome {
	case Unknown:
		if !ok {
			return true, s
		}
		return true, next
	case Stale:
		return true, s // it may have been taken over by somebody who has done nothing yet
	case Ended:
		_, err := s.state.After(t.Move)
		return !t.Advance && !t.Look && err != nil, s
	case Accepted:
	}
	return ok && (seen.State == "" || seen.State == next.state) && (!t.Look || seen.At == next.at), next
}

// SessionModel is the model of one replay session: its states, and a cursor that only
// moves on from where it is, and for no keeper that another has followed.
func SessionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return session{state: replay.Pending} },
		Step: func(state, input, output any) (bool, any) {
			ok, next := state.(session).step(input.(Turn), output.(Seen))
			return ok, next
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
		DescribeState: func(state any) string {
			s := state.(session)
			return fmt.Sprintf("%s at %d, token %d", s.state, s.at, s.token)
		},
	}
}

// CheckSession returns nil when the history of one session can be explained.
func CheckSession(ops []porcupine.Operation, within time.Duration) error {
	return verdict(SessionModel(), ops, within)
}
