package workflow

import (
	"encoding/json"
	"errors"
	"time"
)

// Kind says what an Input tells.
type Kind string

// The kinds of inputs.
const (
	// Start begins the instance. The state is new: Status is empty, Variables are set.
	Start Kind = "start"
	// ActivityCompleted and ActivityFailed tell of an attempt at an activity (job, command,
	// subworkflow): Activity, Result or Failure, Retryable.
	ActivityCompleted Kind = "activity_completed"
	ActivityFailed    Kind = "activity_failed"
	// TimerFired tells that a timer is due: Timer.
	TimerFired Kind = "timer_fired"
	// Signalled tells of a signal, by the id of the WAIT's step or its signal's name (Name),
	// or for the open activity that Activity numbers: Result. One that comes before the WAIT
	// is kept.
	Signalled Kind = "signalled"
	// UserTaskCompleted tells that a person did what the step Name asks for (the oldest that
	// is open, or the one that Activity numbers): Result, Actor.
	UserTaskCompleted Kind = "user_task_completed"
	// Cancel, Suspend and Resume are a person's: Actor, Reason. Cancel compensates when
	// Compensate is set.
	Cancel  Kind = "cancel"
	Suspend Kind = "suspend"
	Resume  Kind = "resume"
	// RetryFailed opens the step again that failed the instance (also a compensation that
	// needs attention), or the step Name ("resume from step"): Actor. Result, when set, is
	// merged into the variables before.
	RetryFailed Kind = "retry_failed"
	// SkipCompensation takes the compensation that needs attention for done: Actor, Reason.
	SkipCompensation Kind = "skip_compensation"
	// Compensate undoes what an instance has done whatever its status: Actor, Reason.
	Compensate Kind = "compensate"
	// Resolve ends an instance that needs attention as it is: Actor, Reason.
	Resolve Kind = "resolve"
)

// Input is something that happened to an instance.
type Input struct {
	Kind Kind `json:"kind"`
	// At is when, by the clock of the database.
	At time.Time `json:"at"`
	// Activity is the number of the activity that it is about.
	Activity int `json:"activity,omitempty"`
	// Attempt is that of the activity; 0 means whichever is open.
	Attempt int `json:"attempt,omitempty"`
	// Timer is the timer that is due, as it was set: one that was moved since is stale.
	Timer Timer `json:"timer,omitzero"`
	// Name is a step id or a signal's name.
	Name string `json:"name,omitempty"`
	// Result is a JSON object (or, of a command or subworkflow, any JSON).
	Result json.RawMessage `json:"result,omitempty"`
	// Failure says why an attempt failed; Retryable that another one may help.
	Failure   *Failure `json:"failure,omitempty"`
	Retryable bool     `json:"retryable,omitempty"`
	// RetryAfter, when it is not 0, is how long to wait for that attempt; it takes the place
	// of what the policy's backoff would say.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Compensate bool          `json:"compensate,omitempty"`
	// Actor is who: a worker, a person; empty: the engine.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// ErrStale is wrapped by the error of an input that does not fit the state as it is. The
// text says which state that is. Nothing has changed.
var ErrStale = errors.New("the instance is not where this belongs")

// ErrBadInput is wrapped by the error of an input that no state could take: a step that
// the plan does not have, a result that is no object, variables that are too large.
var ErrBadInput = errors.New("the instance cannot take this")

// ErrTooLarge is wrapped, beside ErrBadInput, by the error of a result with which the
// variables would be larger than their limit. A job whose completion is refused so is
// open still: it can be failed.
var ErrTooLarge = errors.New("the variables are too large")
