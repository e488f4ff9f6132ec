package sagas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/millrace/millrace/pipeline"
)

// DefaultTimeout is how long a step may take with all its attempts, unless its Timeout
// says otherwise. Participants that are down are waited for as long.
const DefaultTimeout = 15 * time.Minute

// Saga is a process of several steps. Make one with New.
type Saga struct {
	name, description string
	state             reflect.Type
	steps             []StepSpec
	within            time.Duration
	err               error
}

// StepSpec is a step of a saga. Make one with Step or Remote.
type StepSpec struct {
	name string
	// participant and command are of a remote step; empty: the saga's own.
	participant, command string
	state                reflect.Type
	run                  *handler
	policy               policy
	undo                 *undoing
	fields               []string
	output               string
	errs                 []error
}

// undoing is the compensation of a step.
type undoing struct {
	command string // of a remote step
	state   reflect.Type
	run     *handler
	policy  policy
}

// policy is how often and how long something is attempted.
type policy struct {
	timeout time.Duration
	retry   *RetryPolicy
}

// New returns the saga of that name, with its steps in the order in which they are taken.
// S is its state: a struct that comes through JSON as it is. Mistakes are reported by
// Validate. Renaming a saga makes it another one, and its participant a new consumer.
func New[S any](name string, steps ...StepSpec) Saga {
	s := Saga{name: name, state: reflect.TypeFor[S](), steps: slices.Clone(steps)}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !nameForm.MatchString(name) {
		fail("the name is not 1 to 80 lower-case letters, digits, '-' and '_'")
	}
	if err := checkState(s.state); err != nil {
		fail("state: %w", err)
	}
	if len(steps) == 0 {
		fail("it has no steps")
	}
	seen := make(map[string]bool, len(steps))
	for _, step := range steps {
		if seen[step.name] {
			fail("step %q: the name is taken", step.name)
		}
		seen[step.name] = true
		for _, err := range step.problems(s.state) {
			fail("step %q: %w", step.name, err)
		}
	}
	if len(errs) > 0 {
		s.err = fmt.Errorf("saga %q: %w", name, errors.Join(errs...))
	}
	return s
}

// Within limits the saga as a whole: what is not done by then is given up and compensated.
// Without it there is no such limit.
func (s Saga) Within(d time.Duration) Saga {
	s.within = d
	if d <= 0 {
		s.err = errors.Join(s.err, fmt.Errorf("saga %q: within %s: want more than nothing", s.name, d))
	}
	return s
}

// Described sets what lists say of the saga.
func (s Saga) Described(text string) Saga {
	s.description = text
	return s
}

// Name is what instances are started by.
func (s Saga) Name() string { return s.name }

// Validate reports everything that is wrong with the saga, at once.
func (s Saga) Validate() error { return s.err }

// Step is a step that this program takes: action reads and changes the state, and does
// what it does with tx. What it needs beside is its receiver's, or a closure's; the
// context holds nothing but time and trace.
func Step[S any](name string, action func(ctx context.Context, tx Tx, state *S) error, opts ...StepOption) StepSpec {
	spec := StepSpec{name: name, state: reflect.TypeFor[S]()}
	if action == nil {
		spec.errs = append(spec.errs, errors.New("the action is nil"))
	}
	spec.run = onState(action, false)
	return spec.with(opts)
}

// Remote is a step of another participant: the command of that type is sent to it with
// the state (or the Fields of it), and what it outputs is merged into the state.
func Remote(name, participant, command string, opts ...StepOption) StepSpec {
	spec := StepSpec{name: name, participant: participant, command: command}
	if participant == "" || command == "" {
		spec.errs = append(spec.errs, errors.New("a remote step needs a participant and a command"))
	}
	return spec.with(opts)
}

func (s StepSpec) with(opts []StepOption) StepSpec {
	for _, o := range opts {
		o.applyStep(&s)
	}
	return s
}

// onState makes a handler of a step of the saga itself.
func onState[S any](fn func(ctx context.Context, tx Tx, state *S) error, undo bool) *handler {
	return &handler{undo: undo, run: func(ctx context.Context, tx Tx, payload, done json.RawMessage) (json.RawMessage, error) {
		// A compensation sees what the step left, also when the saga has never heard of it.
		payload, err := overlaid(payload, done)
		if err != nil {
			return nil, Fail(CodeBadPayload, "read the state: %v", err)
		}
		var state S
		if err := read(payload, &state); err != nil {
			return nil, err
		}
		before, err := json.Marshal(&state)
		if err != nil {
			return nil, Fail(CodeBadPayload, "write the state: %v", err)
		}
		if err := fn(ctx, tx, &state); err != nil {
			return nil, err
		}
		after, err := json.Marshal(&state)
		if err != nil {
			return nil, Fail(CodeBadPayload, "write the state: %v", err)
		}
		return changed(before, after)
	}}
}

// problems are what is wrong with the step of a saga with that state.
func (s StepSpec) problems(state reflect.Type) []error {
	errs := slices.Clone(s.errs)
	if !nameForm.MatchString(s.name) {
		errs = append(errs, errors.New("the name is not 1 to 80 lower-case letters, digits, '-' and '_'"))
	}
	if s.run != nil && s.state != state {
		errs = append(errs, fmt.Errorf("the action takes *%v, and the state of the saga is %v", s.state, state))
	}
	errs = append(errs, s.policy.problems()...)
	if s.undo == nil {
		return errs
	}
	for _, err := range s.undo.policy.problems() {
		errs = append(errs, fmt.Errorf("compensation: %w", err))
	}
	switch {
	case s.run != nil && s.undo.run == nil:
		errs = append(errs, errors.New("CompensateBy is for remote steps: use Compensate"))
	case s.run == nil && s.undo.run != nil:
		errs = append(errs, errors.New("Compensate is for steps of this program: use CompensateBy"))
	case s.run != nil && s.undo.state != state:
		errs = append(errs, fmt.Errorf("the compensation takes *%v, and the state of the saga is %v", s.undo.state, state))
	}
	return errs
}

// compensationPrefix begins the type of the command that undoes a step of the saga itself.
const compensationPrefix = "compensate:"

// Participant carries out the steps that this program takes itself.
func (s Saga) Participant() Participant {
	p := Participant{
		name: s.name, handlers: make(map[string]handler), err: s.err,
		about: fmt.Sprintf(": in this program saga %s has the steps %s", s.name, quoted(s.stepNames())),
	}
	for _, step := range s.steps {
		if step.run != nil {
			p.handlers[step.name] = *step.run
		}
		if step.run != nil && step.undo != nil && step.undo.run != nil {
			p.handlers[compensationPrefix+step.name] = *step.undo.run
		}
	}
	return p
}

// Consumers returns what the program has to consume for the saga: its participant,
// unless all its steps are remote.
func (s Saga) Consumers() []pipeline.Consumer {
	if p := s.Participant(); len(p.handlers) > 0 {
		return []pipeline.Consumer{p.Consumer()}
	}
	return nil
}

func (s Saga) stepNames() []string {
	names := make([]string, len(s.steps))
	for i, step := range s.steps {
		names[i] = step.name
	}
	return names
}
