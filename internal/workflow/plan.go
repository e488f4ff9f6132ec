package workflow

import (
	"encoding/json"
	"time"
)

// Plan is a definition that is free of faults, with its expressions compiled: what the
// machine runs on. It holds no state and is safe for concurrent use.
type Plan struct {
	definition *Definition
	steps      []planStep
	byID       map[string]*planStep
	// timeout limits the instance; 0: nothing does.
	timeout time.Duration
}

// Definition returns what the plan was made from. It must not be changed.
func (p *Plan) Definition() *Definition { return p.definition }

// step returns the step with an id; nil: there is none.
func (p *Plan) step(id string) *planStep { return p.byID[id] }

// first returns the entry point.
func (p *Plan) first() *planStep { return &p.steps[0] }

// planStep is a step with its expressions compiled and its durations parsed. What the step
// does not have is nil or 0.
type planStep struct {
	Step
	// index is its position in the definition.
	index int
	// conditions are its ConditionalNextSteps, in the order written.
	conditions             []condition
	transformations, input []assignment
	// items, until and correlation are what the fields of these names give. assignee is
	// nil when the field is a name and no expression.
	items, until, correlation, assignee *Expression
	timeout, duration, due              time.Duration
	boundaries                          []planBoundary
	retry                               retryPolicy
	compensation                        *planCompensation
}

// condition is one way out of a step.
type condition struct {
	*Expression
	target string
}

// assignment gives a variable a value: a literal as it was written, or an expression.
type assignment struct {
	variable string
	literal  json.RawMessage
	*Expression
}

// planBoundary is a boundary event; after is how long after the beginning of the step a
// TIMER is due.
type planBoundary struct {
	BoundaryEvent
	after time.Duration
}

// retryPolicy says when and how failed attempts are repeated: count times at most. maxAge
// of 0 does not end them; on that is empty takes all codes.
type retryPolicy struct {
	count                int
	initial, max, maxAge time.Duration
	multiplier, jitter   float64
	on                   []string
}

// planCompensation undoes a step. timeout limits one attempt.
type planCompensation struct {
	Compensation
	input   []assignment
	retry   retryPolicy
	timeout time.Duration
}
