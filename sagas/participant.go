package sagas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Tx is the transaction of a step: what it does with it, the note that its command was
// carried out and the reply are committed together, or none of them. It ends when the
// step returns.
type Tx interface {
	pipeline.Tx
	// Command is what the step carries out. Its CommandID is the same for every attempt:
	// a key of idempotency for calls of others.
	Command() topics.SagaCommand
}

// Participant carries out commands of sagas. Make one with NewParticipant.
type Participant struct {
	name     string
	handlers map[string]handler
	// about is added to the error of an unknown command.
	about string
	err   error
}

// handler carries out one type of command. done is the output of the command that it
// compensates.
type handler struct {
	undo bool
	run  func(ctx context.Context, tx Tx, payload, done json.RawMessage) (output json.RawMessage, err error)
}

// Handling is how a participant carries out one type of command. Make one with Handle or
// Undo.
type Handling struct {
	command string
	handler handler
	err     error
}

// Handle carries out commands of that type. In and Out must come through JSON as they are;
// members of Out become variables of the saga, unless its definition keeps them under one
// name. An error undoes what fn did; see Fail.
func Handle[In, Out any](command string, fn func(ctx context.Context, tx Tx, in In) (Out, error)) Handling {
	h := Handling{command: command, err: errors.Join(checkState(reflect.TypeFor[In]()), checkState(reflect.TypeFor[Out]()))}
	if fn == nil {
		h.err = errors.New("the function is nil")
	}
	h.handler.run = func(ctx context.Context, tx Tx, payload, _ json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := read(payload, &in); err != nil {
			return nil, err
		}
		out, err := fn(ctx, tx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
	return h
}

// Undo carries out compensations of that type: fn is given what the command was given,
// which Millrace sends again, and what came of it. It is only called when the command was
// carried out.
func Undo[In, Out any](command string, fn func(ctx context.Context, tx Tx, in In, done Out) error) Handling {
	h := Handling{command: command, err: errors.Join(checkState(reflect.TypeFor[In]()), checkState(reflect.TypeFor[Out]()))}
	if fn == nil {
		h.err = errors.New("the function is nil")
	}
	h.handler.undo = true
	h.handler.run = func(ctx context.Context, tx Tx, payload, done json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := read(payload, &in); err != nil {
			return nil, err
		}
		var out Out
		if err := read(done, &out); err != nil {
			return nil, err
		}
		return nil, fn(ctx, tx, in, out)
	}
	return h
}

func read(text json.RawMessage, into any) error {
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return Fail(CodeBadPayload, "read %T: %v", into, err)
	}
	return nil
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,79}$`)

// NewParticipant returns a participant of that name. Mistakes are reported by Validate.
func NewParticipant(name string, handlings ...Handling) Participant {
	p := Participant{name: name, handlers: make(map[string]handler, len(handlings))}
	var errs []error
	if !nameForm.MatchString(name) {
		errs = append(errs, fmt.Errorf("the name is not 1 to 80 lower-case letters, digits, '-' and '_'"))
	}
	if len(handlings) == 0 {
		errs = append(errs, errors.New("it handles no command"))
	}
	for _, h := range handlings {
		if _, twice := p.handlers[h.command]; twice {
			errs = append(errs, fmt.Errorf("command %q: is handled twice", h.command))
		}
		if h.command == "" {
			errs = append(errs, errors.New("a command has no name"))
		}
		if h.err != nil {
			errs = append(errs, fmt.Errorf("command %q: %w", h.command, h.err))
		}
		p.handlers[h.command] = h.handler
	}
	if len(errs) > 0 {
		p.err = fmt.Errorf("participant %q: %w", name, errors.Join(errs...))
	}
	return p
}

// Name is by what sagas address the participant.
func (p Participant) Name() string { return p.name }

// Validate reports everything that is wrong with the participant, at once.
func (p Participant) Validate() error { return p.err }

// Batches are small: the commands of one share a transaction, and what steps lock.
const participantBatch = 32

// Consumer returns the consumer "saga-<name>" of the participant. A saga's commands come
// in order; one that cannot be handled at all, because its type is unknown, holds the
// later ones of its saga back until it is redriven or discarded.
func (p Participant) Consumer() pipeline.Consumer {
	return pipeline.Consumer{
		Name:   "saga-" + p.name,
		Topic:  topics.SagaCommands,
		Handle: pipeline.OnBatchTx(p.handleAll),
		// The participation says whether a command was carried out.
		GuardedByState: true,
		BatchSize:      participantBatch,
		Delivery:       pipeline.Delivery{Ordered: pipeline.PerKey},
	}
}

func (p Participant) handleAll(ctx context.Context, tx pipeline.Tx, batch []topics.SagaCommand) error {
	for _, c := range batch {
		if c.Participant != p.name {
			continue
		}
		if err := p.handle(ctx, tx, c); err != nil {
			return fmt.Errorf("command %s (%s) of saga %s: %w", c.CommandID, c.Type, c.SagaID, err)
		}
	}
	return nil
}

// find returns the handler of a command. The error makes it a dead letter.
func (p Participant) find(c topics.SagaCommand) (handler, error) {
	h, known := p.handlers[c.Type]
	if !known {
		return h, fmt.Errorf("participant %s does not know it%s: run a program that does and redrive the dead letter; until then the saga waits", p.name, p.about)
	}
	if h.undo != c.Compensation {
		is := map[bool]string{true: "a compensation", false: "no compensation"}
		return h, pipeline.Malformed(fmt.Errorf("it is sent as %s, and the participant knows it as %s", is[c.Compensation], is[h.undo]))
	}
	return h, nil
}

// stepTx is the Tx of one command. What it publishes is handed on once the step has
// succeeded, for a savepoint does not take events back.
type stepTx struct {
	pipeline.Tx
	command topics.SagaCommand
	events  []topics.Event
}

// Command implements Tx.
func (t *stepTx) Command() topics.SagaCommand { return t.command }

// Publish implements pipeline.Tx.
func (t *stepTx) Publish(_ context.Context, events ...topics.Event) error {
	t.events = append(t.events, events...)
	return nil
}

// quoted lists names for people.
func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
