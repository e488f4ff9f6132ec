package workflow

import (
	"encoding/json"
	"time"
)

// Status is where an instance is.
type Status string

// The statuses. The last four are final.
const (
	// Active instances have something to do, Waiting ones wait for a person or a signal.
	Active  Status = "ACTIVE"
	Waiting Status = "WAITING"
	// Suspended instances take what ends and begin nothing until they are resumed.
	Suspended Status = "SUSPENDED"
	// Compensating instances undo what they did. NeedsAttention ones could not.
	Compensating   Status = "COMPENSATING"
	NeedsAttention Status = "NEEDS_ATTENTION"
	Completed      Status = "COMPLETED"
	Failed         Status = "FAILED"
	Cancelled      Status = "CANCELLED"
	// Compensated instances failed, or were cancelled, and have undone what they did.
	Compensated Status = "COMPENSATED"
)

// Final says whether no input leads out of s, but a person's retry.
func (s Status) Final() bool {
	return s == Completed || s == Failed || s == Cancelled || s == Compensated
}

// State is an instance between two inputs. It is stored as it is: what an instance needs
// to go on is here and in its variables, and nowhere else.
type State struct {
	Status Status `json:"-"`
	// Version counts the inputs that changed something, from 1.
	Version int64 `json:"-"`
	// Variables is the JSON object that steps read and write.
	Variables json.RawMessage `json:"-"`
	// Failure says why the instance failed, is compensating or was cancelled.
	Failure *Failure `json:"failure,omitempty"`
	// StartedAt and EndedAt are when; zero: not yet.
	StartedAt time.Time `json:"-"`
	EndedAt   time.Time `json:"-"`

	// LastStep is the number of the youngest step: steps are numbered from 1 in the order
	// in which they begin.
	LastStep int `json:"last_step,omitempty"`
	// LastActivity is the number of the youngest activity; see Activity.N.
	LastActivity int `json:"last_activity,omitempty"`
	// Attempts counts the times that each step was entered, by its position in the
	// definition. Steps behind the end were not.
	Attempts []int `json:"attempts,omitempty"`
	// Undoing counts the times that the compensation of each step was begun, likewise.
	Undoing []int `json:"undoing,omitempty"`
	// Open are the steps that have begun and not ended, oldest first.
	Open []OpenStep `json:"open,omitempty"`
	// Forks are the gateways whose branches have not all arrived, oldest first.
	Forks []Fork `json:"forks,omitempty"`
	// Undo are the steps that have a compensation and may have had an effect, in the order
	// in which they ended. A compensation that is done is taken off the end.
	Undo []Undo `json:"undo,omitempty"`
	// Signals are those that came before a WAIT asked for them, oldest first.
	Signals []Signal `json:"signals,omitempty"`
	// Deferred are inputs that came while the instance was suspended, in order.
	Deferred []Input `json:"deferred,omitempty"`
	// Owed is the definition of the instance that is to follow this one and could not be
	// started yet. Whoever starts instances sets and clears it; the machine does not look.
	Owed string `json:"owed,omitempty"`
	// TimeoutAt is when the total timer is due, while it is set.
	TimeoutAt time.Time `json:"timeout_at,omitzero"`
	// Suspended is the status before the suspension.
	Suspended Status `json:"suspended,omitempty"`
	// CancelAfter is set when an instance compensates because it was cancelled: it is
	// CANCELLED if a person ends that.
	CancelAfter bool `json:"cancel_after,omitempty"`
	// Stuck says why a compensation could not be brought about, while the instance needs
	// attention.
	Stuck *Failure `json:"stuck,omitempty"`
	// Reopen is where the tokens stood when the instance failed, that of the failed step
	// first. RetryFailed puts them there again.
	Reopen []Place `json:"reopen,omitempty"`
}

// Place is where a token stands.
type Place struct {
	StepID string `json:"step"`
	// Fork is the number of the innermost fork (the N of its gateway), 0 outside of any;
	// Branch the number of the branch within it, from 0.
	Fork   int `json:"fork,omitempty"`
	Branch int `json:"branch,omitempty"`
}

// Failure says why something did not succeed.
type Failure struct {
	// Code is a stable word in snake_case: "timeout", "decision_no_branch_matched", or
	// what the worker said; "failed" when it said nothing.
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	StepID  string `json:"step_id,omitempty"`
}

// OpenStep is a token: a step that has begun and not ended.
type OpenStep struct {
	// N numbers the steps of the instance; see State.LastStep.
	N int `json:"n"`
	Place
	// Attempt counts how often the step was entered, from 1; of a compensation, how often
	// one of the step was begun.
	Attempt int `json:"attempt"`
	// BeganAt is when the step began.
	BeganAt time.Time `json:"began_at"`
	// Activities are those that are open: one, or the turns of a FOREACH.
	Activities []OpenActivity `json:"activities,omitempty"`
	// InDoubt is the number of the activity an attempt at which ended without an answer (its
	// lease or its time ran out), so that what it was to do may be done; 0: none.
	InDoubt int `json:"in_doubt,omitempty"`
	// Turns is the progress of a FOREACH.
	Turns *Turns `json:"turns,omitempty"`
	// Fired are the boundary timers (by their position) that have fired.
	Fired []int `json:"fired,omitempty"`
	// Compensates is the N of the step that this one undoes; 0: it is no compensation.
	Compensates int `json:"compensates,omitempty"`
}

// OpenActivity is something that others do for an open step.
type OpenActivity struct {
	// N is its number in the instance; see Activity.N.
	N    int          `json:"n"`
	Kind ActivityKind `json:"kind"`
	// Turn is the number of the item of a FOREACH, from 0.
	Turn int `json:"turn,omitempty"`
	// Failures counts its failed attempts.
	Failures int `json:"failures,omitempty"`
	// Paused is set while it waits for its next attempt (a retry timer is set).
	Paused bool `json:"paused,omitempty"`
	// TimerAt is when its retry timer or attempt timer is due, if it has one. A timer that
	// is due at another time was meant for an earlier attempt.
	TimerAt time.Time `json:"timer_at,omitzero"`
}

// Turns is the progress of a FOREACH.
type Turns struct {
	// Items are the elements; those whose turn is done are null.
	Items []json.RawMessage `json:"items"`
	// Next is the number of the first item that was not begun.
	Next int `json:"next"`
	// Results are what the turns gave, null for those that are not done; Done how many are.
	Results []json.RawMessage `json:"results"`
	Done    int               `json:"done"`
}

// Fork is a PARALLEL_GATEWAY whose branches have not all arrived.
type Fork struct {
	// N is the number of the gateway's step, the Place where it stands.
	N int `json:"n"`
	Place
	// Arrived are the branches that have reached the join, in the order in which they did;
	// ArrivedAt is when the first one did.
	Arrived   []int     `json:"arrived,omitempty"`
	ArrivedAt time.Time `json:"arrived_at,omitzero"`
}

// Undo is a step that has a compensation and may have had an effect.
type Undo struct {
	N      int    `json:"n"`
	StepID string `json:"step"`
	// Activity is the number of the activity that had the effect, the last one of several.
	Activity int `json:"activity,omitempty"`
	// Result is what the step gave.
	Result json.RawMessage `json:"result,omitempty"`
	// InDoubt is true when nobody knows whether it had an effect: it was given up while
	// others were at it.
	InDoubt bool `json:"in_doubt,omitempty"`
}

// Signal is one that came before its WAIT.
type Signal struct {
	Name      string          `json:"name"`
	Variables json.RawMessage `json:"variables,omitempty"`
}
