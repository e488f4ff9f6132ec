package workflow

import "encoding/json"

// StepType is the kind of a step.
type StepType string

// The kinds of steps.
const (
	// ServiceTask offers a job to workers.
	ServiceTask StepType = "SERVICE_TASK"
	// UserTask waits for a person.
	UserTask StepType = "USER_TASK"
	// Decision takes the first of its branches whose expression is true.
	Decision StepType = "DECISION"
	// Transformation sets variables.
	Transformation StepType = "TRANSFORMATION"
	// Wait waits for a signal.
	Wait StepType = "WAIT"
	// ParallelGateway starts several branches, JoinGateway waits for all of them.
	ParallelGateway StepType = "PARALLEL_GATEWAY"
	JoinGateway     StepType = "JOIN_GATEWAY"
	// End ends the instance.
	End StepType = "END"
	// TimerStep waits for a time.
	TimerStep StepType = "TIMER"
	// ForEach does something once for each element of a list.
	ForEach StepType = "FOREACH"
	// Subworkflow runs an instance of another definition.
	Subworkflow StepType = "SUBWORKFLOW"
	// Command sends a command to a participant and waits for its reply. It is the step of
	// sagas that are defined in Go.
	Command StepType = "COMMAND"
)

// Definition is a workflow as it is written. Fields are camelCase, as the engine whose
// format it is writes them; what that engine does not know is marked with a plus.
type Definition struct {
	// ID is the natural key: at most 256 of letters, digits, '_', ':' and '-'. Required.
	ID string `json:"id"`
	// Version is given by the server: 1, 2, ... What an upload says is ignored.
	Version int `json:"version,omitempty"`
	// Name is for people. Required.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// AutoStartNextWorkflow starts an instance of NextWorkflowID, with the variables at
	// the end, when an instance completes.
	AutoStartNextWorkflow bool   `json:"autoStartNextWorkflow,omitempty"`
	NextWorkflowID        string `json:"nextWorkflowId,omitempty"`
	// Steps begin with the entry point. Required.
	Steps []Step `json:"steps"`
	// Metadata is kept and not looked at.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Timeout (+) limits the instance as a whole, ISO 8601. It fails when it is over.
	Timeout string `json:"timeout,omitempty"`
	// OnFailure (+) says what a failed instance does: "compensate" (the default) or
	// "fail", which leaves things as they are.
	OnFailure string `json:"onFailure,omitempty"`
}

// Step is a node of the graph. Type says which fields mean something.
type Step struct {
	// ID is unique in the definition, Name for people. Both and Type are required.
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Type        StepType `json:"type"`
	Description string   `json:"description,omitempty"`
	// NextStep is the step that follows. Without one the branch ends here.
	NextStep string `json:"nextStep,omitempty"`
	// ConditionalNextSteps are tried in the order written. DECISION needs them; on a
	// task they take the place of NextStep.
	ConditionalNextSteps Branches `json:"conditionalNextSteps,omitempty"`
	// Transformations are made in the order written, each seeing those before it.
	Transformations Assignments `json:"transformations,omitempty"`
	// ParallelNextSteps begin the branches of a PARALLEL_GATEWAY, JoinStep ends them.
	ParallelNextSteps []string `json:"parallelNextSteps,omitempty"`
	JoinStep          string   `json:"joinStep,omitempty"`
	// JobType is what workers ask for. Defaults to the step's ID. On a USER_TASK it is a
	// label for lists.
	JobType string `json:"jobType,omitempty"`
	// DelegateClass is kept and not looked at.
	DelegateClass string `json:"delegateClass,omitempty"`
	// RetryCount is how often a failed attempt is repeated. Retry.Count takes its place.
	RetryCount     int             `json:"retryCount,omitempty"`
	BoundaryEvents []BoundaryEvent `json:"boundaryEvents,omitempty"`

	// Retry (+) says when and how failed attempts are repeated.
	Retry *Retry `json:"retry,omitempty"`
	// Timeout (+) limits the step with all its attempts, ISO 8601. What is over fails with
	// code "timeout", which is not repeated.
	Timeout string `json:"timeout,omitempty"`
	// Compensation (+) undoes the completed step when the instance fails later.
	Compensation *Compensation `json:"compensation,omitempty"`
	// Input (+) are the variables that the activity gets, in place of all of them.
	Input Assignments `json:"input,omitempty"`
	// OutputVariable (+) takes the result of the activity as one variable; without it the
	// result is merged into the variables.
	OutputVariable string `json:"outputVariable,omitempty"`
	// Assignee, CandidateGroups and Due (+; a duration) are of a USER_TASK. Assignee may be
	// an expression "${...}".
	Assignee        string   `json:"assignee,omitempty"`
	CandidateGroups []string `json:"candidateGroups,omitempty"`
	Due             string   `json:"due,omitempty"`
	// Signal and CorrelationKey (+) let a WAIT be found without its instance's id: by the
	// name of the signal (default: the step's ID) and the value of an expression "${...}".
	Signal         string `json:"signal,omitempty"`
	CorrelationKey string `json:"correlationKey,omitempty"`
	// Duration or Until (+) is how long a TIMER waits: ISO 8601, or an expression "${...}"
	// that gives an RFC 3339 time or seconds since 1970.
	Duration string `json:"duration,omitempty"`
	Until    string `json:"until,omitempty"`
	// WorkflowID and WorkflowVersion (+; 0: the latest) name what a SUBWORKFLOW, or each
	// turn of a FOREACH, runs.
	WorkflowID      string `json:"workflowId,omitempty"`
	WorkflowVersion int    `json:"workflowVersion,omitempty"`
	// Items (+) is an expression "${...}" that gives the list of a FOREACH. Each element
	// is a turn: a job of JobType, or an instance of WorkflowID, that sees it as variable
	// Item (default "item") and its number, from 0, as Index (default "index").
	// At most MaxParallel turns are open at once (0: as many as have inputs of four times the
	// limit of the variables). Their results become the list OutputVariable, in the order of
	// the items. A FOREACH over nothing goes on at once.
	Items       string `json:"items,omitempty"`
	Item        string `json:"item,omitempty"`
	Index       string `json:"index,omitempty"`
	MaxParallel int    `json:"maxParallel,omitempty"`
	// CommandType (+) is the type of the command of a COMMAND step, Participant whom it
	// is for.
	CommandType string `json:"commandType,omitempty"`
	Participant string `json:"participant,omitempty"`
}

// Branch is one way out of a decision.
type Branch struct{ Expression, Step string }

// Branches are a JSON object whose members are in the order in which they were written.
type Branches []Branch

// Assignment gives a variable a value: any JSON, or an expression as a string "${...}".
type Assignment struct {
	Variable string
	Value    json.RawMessage
}

// Assignments are a JSON object whose members are in the order in which they were
// written.
type Assignments []Assignment

// BoundaryEvent is something that may happen while its step is open.
type BoundaryEvent struct {
	// Type is "TIMER", or "ERROR" (+), which takes the step's failure once it is final and
	// always interrupts.
	Type string `json:"type"`
	// Duration is how long after the step's beginning a TIMER is due, ISO 8601.
	Duration string `json:"duration,omitempty"`
	// Interrupting ends the step when the timer is due; otherwise it goes on.
	Interrupting bool `json:"interrupting,omitempty"`
	// TargetStepID is the step that is opened. Required.
	TargetStepID string `json:"targetStepId"`
	// Codes (+) are the failure codes that an ERROR takes; empty: all.
	Codes []string `json:"codes,omitempty"`
	// ErrorVariable (+) gets {code, message, stepId} of the failure. Default "error".
	ErrorVariable string `json:"errorVariable,omitempty"`
}

// Retry says when and how failed attempts are repeated.
type Retry struct {
	// Count is how often: 0 means never.
	Count int `json:"count"`
	// Initial is how long after the first failure (ISO 8601; default: at once); each wait
	// is Multiplier times (default 2) the one before, at most Max (default PT1H).
	Initial    string  `json:"initial,omitempty"`
	Multiplier float64 `json:"multiplier,omitempty"`
	Max        string  `json:"max,omitempty"`
	// Jitter, from 0 to 1, is the part of a wait that is random. Default 0.
	Jitter float64 `json:"jitter,omitempty"`
	// MaxAge ends the attempts so long after the step began, ISO 8601.
	MaxAge string `json:"maxAge,omitempty"`
	// On are the failure codes that are repeated; empty: all that workers call retryable.
	On []string `json:"on,omitempty"`
}

// Compensation is the activity that undoes a step: a job of JobType, or a command.
type Compensation struct {
	JobType     string `json:"jobType,omitempty"`
	CommandType string `json:"commandType,omitempty"`
	// Participant is whom the command is for. Default: that of the step.
	Participant string `json:"participant,omitempty"`
	// Input are the variables that it gets. Default: those of the instance, and the
	// step's result as "result".
	Input Assignments `json:"input,omitempty"`
	// Retry defaults to 5 repetitions from PT1S on. Timeout (ISO 8601) limits one attempt
	// and defaults to PT5M.
	Retry   *Retry `json:"retry,omitempty"`
	Timeout string `json:"timeout,omitempty"`
}
