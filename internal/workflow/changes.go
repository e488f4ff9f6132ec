package workflow

import (
	"encoding/json"
	"time"
)

// Changes are what an input leads to. All of them are stored in one transaction, or none.
type Changes struct {
	// State is the state afterwards.
	State State
	// Begin are activities that begin, and those whose next attempt is due: Activity.Attempt
	// tells which. A job is begun again with the number that it has and keeps its input.
	Begin []Activity
	// Void are the numbers of open activities that nobody needs any more: jobs are
	// cancelled, child instances too. What an input reports as ended is not among them.
	Void []int
	// Set are timers that are set; setting one that exists moves it. Unset are timers that
	// are void, all of them: when the state is final, none is left. The timer that fired
	// may be among them.
	Set   []Timer
	Unset []Timer
	// Deferred is true when the instance is suspended and the input was kept in
	// State.Deferred: it counts as taken, and what it leads to comes with Resume.
	Deferred bool
	// Entries are the journal of this input, in order.
	Entries []Entry
	// Next is set when another workflow is to be started: see
	// Definition.AutoStartNextWorkflow.
	Next string
}

// ActivityKind says who does an activity.
type ActivityKind string

// The kinds of activities.
const (
	// JobActivity is a job for workers, UserActivity a user task, SignalActivity a signal
	// to wait for. A TIMER step has a timer and no activity.
	JobActivity    ActivityKind = "job"
	UserActivity   ActivityKind = "user"
	SignalActivity ActivityKind = "signal"
	// ChildActivity is an instance of another workflow, CommandActivity a command to a
	// participant.
	ChildActivity   ActivityKind = "child"
	CommandActivity ActivityKind = "command"
)

// Activity is something that others do for a step. Jobs keep their number over their
// attempts: a retry of a job puts the same job up again.
type Activity struct {
	// N is its number in the instance, from 1: with the instance's id it identifies it.
	N    int
	Kind ActivityKind
	// Step is the open step that it is for, without its activities.
	Step OpenStep
	// Attempt counts its attempts from 1.
	Attempt int
	// JobType, or the definition that a child runs, or the command and its participant.
	JobType         string
	WorkflowID      string
	WorkflowVersion int
	CommandType     string
	Participant     string
	// RetriesRemaining is how many failures are left before the step fails.
	RetriesRemaining int
	// Input is what it gets, when that is not the instance's variables as they are: a JSON
	// object. Nil means the variables, or, of a job's later attempts, what it had.
	Input json.RawMessage
	// Turn is the number of the item of a FOREACH, from 0.
	Turn int
	// Compensation is true when it undoes a step (number Step.Compensates); Undoes is the
	// number of the activity whose effect that is.
	Compensation bool
	Undoes       int
	// DueAt is when a job may run at the earliest, or when a user task should be done;
	// zero: at once, any time.
	DueAt time.Time
	// Assignee and Groups are of a user task. Signal and CorrelationKey are what a
	// WAIT can be found by; CorrelationKey is empty when it can only be by its instance.
	Assignee       string
	Groups         []string
	Signal         string
	CorrelationKey string
}

// TimerKind says what a timer is for.
type TimerKind string

// The kinds of timers.
const (
	// TotalTimer limits the instance; Step and Index are 0.
	TotalTimer TimerKind = "total"
	// StepTimer limits a step, BoundaryTimer is one of its boundary events (Index is its
	// position), WaitTimer is what a TIMER step waits for.
	StepTimer     TimerKind = "step"
	BoundaryTimer TimerKind = "boundary"
	WaitTimer     TimerKind = "wait"
	// RetryTimer is when the next attempt of an activity (Index is its number) is due,
	// AttemptTimer limits the attempt of one (commands, compensations).
	RetryTimer   TimerKind = "retry"
	AttemptTimer TimerKind = "attempt"
)

// Timer is something that is due at a time. Step, Kind and Index identify it within the
// instance.
type Timer struct {
	Step  int       `json:"step,omitempty"`
	Kind  TimerKind `json:"kind,omitempty"`
	Index int       `json:"index,omitempty"`
	DueAt time.Time `json:"due_at,omitzero"`
}

// EntryKind is what an entry of the journal tells; it is also the kind of the audit log's
// line.
type EntryKind string

// The kinds of entries.
const (
	InstanceStarted      EntryKind = "instance-started"
	InstanceCompleted    EntryKind = "instance-completed"
	InstanceFailed       EntryKind = "instance-failed"
	InstanceCancelled    EntryKind = "instance-cancelled"
	InstanceSuspended    EntryKind = "instance-suspended"
	InstanceResumed      EntryKind = "instance-resumed"
	InstanceRetried      EntryKind = "instance-retried"
	InstanceWaiting      EntryKind = "instance-waiting"
	InstanceCompensating EntryKind = "instance-compensating"
	InstanceCompensated  EntryKind = "instance-compensated"
	InstanceStuck        EntryKind = "instance-needs-attention"
	InstanceResolved     EntryKind = "instance-resolved"
	StepEntered          EntryKind = "step-entered"
	StepCompleted        EntryKind = "step-completed"
	StepFailed           EntryKind = "step-failed"
	// StepSkipped ends a step that nobody needs any more.
	StepSkipped EntryKind = "step-skipped"
	// JobDispatched tells of each attempt that is in Changes.Begin, be it a job, a command
	// or a child (ActivityKind). It ends with one of the others: JobRetried says that the
	// attempt failed and another one follows, at DueAt.
	JobDispatched     EntryKind = "job-dispatched"
	JobCompleted      EntryKind = "job-completed"
	JobFailed         EntryKind = "job-failed"
	JobRetried        EntryKind = "job-retried"
	JobCancelled      EntryKind = "job-cancelled"
	TimerWasFired     EntryKind = "timer-fired"
	SignalReceived    EntryKind = "signal-received"
	SignalKept        EntryKind = "signal-kept"
	UserTaskCreated   EntryKind = "user-task-created"
	UserTaskDone      EntryKind = "user-task-completed"
	UserTaskCancelled EntryKind = "user-task-cancelled"
	VariablesSet      EntryKind = "variables-set"
	CompensationSkips EntryKind = "compensation-skipped"
	// InputDeferred tells that something (Name: the input's kind) came while the instance
	// was suspended. The entries of what it leads to follow on InstanceResumed.
	InputDeferred EntryKind = "input-deferred"
	// NextDelayed and NextStarted are written by whoever starts instances: the one of the
	// definition Name that is to follow could not be started (Failure says why), and is
	// after all.
	NextDelayed EntryKind = "next-workflow-delayed"
	NextStarted EntryKind = "next-workflow-started"
)

// Entry is one line of the journal: what happened, in the order in which it did. History,
// the audit log and the lifecycle events are read off it.
type Entry struct {
	Kind EntryKind `json:"kind"`
	// Step, StepID, StepType and StepAttempt are the step that it is about, if any; BeganAt
	// is when that began: zero means with this input. A step that ends with the input in
	// which it began has no StepEntered.
	Step        int       `json:"step,omitempty"`
	StepID      string    `json:"step_id,omitempty"`
	StepType    StepType  `json:"step_type,omitempty"`
	StepAttempt int       `json:"step_attempt,omitempty"`
	BeganAt     time.Time `json:"began_at,omitzero"`
	// Activity and Attempt are the activity that it is about, if any; Turn that of a
	// FOREACH. DueAt is when the attempt may begin at the earliest; zero: at once.
	Activity     int          `json:"activity,omitempty"`
	ActivityKind ActivityKind `json:"activity_kind,omitempty"`
	Attempt      int          `json:"attempt,omitempty"`
	Turn         int          `json:"turn,omitempty"`
	DueAt        time.Time    `json:"due_at,omitzero"`
	// InDoubt is true when nobody knows whether what failed, or was given up, had its
	// effect all the same.
	InDoubt bool `json:"in_doubt,omitempty"`
	// Compensates is the number of the step that this one undoes.
	Compensates int `json:"compensates,omitempty"`
	// Output is the result of the step, or the variables that were set.
	Output  json.RawMessage `json:"output,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// Name is a signal's name, the kind of a timer, or the kind of a deferred input.
	Name   string `json:"name,omitempty"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}
