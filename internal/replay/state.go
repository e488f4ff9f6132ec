package replay

import (
	"errors"
	"fmt"
	"slices"
)

// State is where a session stands.
type State string

// The states. Done and Cancelled are final.
const (
	// Pending: it waits for its turn, since only so many sessions run at once.
	Pending State = "PENDING"
	Running State = "RUNNING"
	// Paused: somebody asked for it.
	Paused State = "PAUSED"
	// Stopped: it cannot go on, for a reason that waiting does not mend. It can be
	// resumed once somebody has mended it.
	Stopped   State = "STOPPED"
	Done      State = "DONE"
	Cancelled State = "CANCELLED"
)

// States returns all states. The caller may change the slice.
func States() []State { return []State{Pending, Running, Paused, Stopped, Done, Cancelled} }

// Valid reports whether s is one of States.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Final reports whether nothing leads out of the state.
func (s State) Final() bool { return s == Done || s == Cancelled }

// Move is something that happens to a session.
type Move string

// The moves. Pause, Resume and Cancel are people's, the others the keeper's.
const (
	// Start: it is its turn.
	Start  Move = "start"
	Pause  Move = "pause"
	Resume Move = "resume"
	Cancel Move = "cancel"
	// Stop: it cannot go on.
	Stop Move = "stop"
	// Finish: all is published.
	Finish Move = "finish"
)

// Moves returns all moves. The caller may change the slice.
func Moves() []Move { return []Move{Start, Pause, Resume, Cancel, Stop, Finish} }

// ErrState: the state of the session does not allow what was asked for.
var ErrState = errors.New("the state of the replay does not allow that")

// After returns the state that a move leads to, or an error that wraps ErrState.
// What people ask for twice is no error the second time: a call whose answer was
// lost can be repeated.
func (s State) After(m Move) (State, error) {
	switch m {
	case Start:
		if s == Pending {
			return Running, nil
		}
	case Pause:
		if s == Pending || s == Running || s == Paused {
			return Paused, nil
		}
	case Resume:
		if s == Paused || s == Stopped {
			return Pending, nil
		}
		if s == Pending || s == Running {
			return s, nil
		}
	case Cancel:
		if s != Done && s.Valid() {
			return Cancelled, nil
		}
	case Stop:
		if s == Running {
			return Stopped, nil
		}
	case Finish:
		if s == Running {
			return Done, nil
		}
	}
	return s, fmt.Errorf("%s a replay that is %s: %w", m, s, ErrState)
}
