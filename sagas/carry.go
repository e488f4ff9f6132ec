package sagas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// What may come of a command, as saga_participations has it: the outcomes of a reply.
// "refused" is also written for a command that was not seen yet, by its compensation.

// participation is a row of saga_participations.
type participation struct {
	outcome         string // empty: there is none
	issue           int64
	failure, output json.RawMessage
}

// call is a command with what is known of it.
type call struct {
	topics.SagaCommand
	id, undoes uuid.UUID
	now        time.Time // by the clock of the database
	// own is what came of it before, other what came of the command that it compensates.
	own, other participation
}

// handle carries a command out, or finds that it was, and replies. An error leaves
// nothing behind: the command is delivered again.
func (p Participant) handle(ctx context.Context, tx pipeline.Tx, c topics.SagaCommand) error {
	called, err := p.load(ctx, tx, c)
	if err != nil {
		return err
	}
	reply, settled := called.settled()
	if !settled {
		if reply, err = p.act(ctx, tx, called); err != nil {
			return err
		}
	}
	reply.SagaID, reply.CommandID, reply.Attempt, reply.Participant = c.SagaID, c.CommandID, c.Attempt, p.name
	// Replies are ordered by themselves: the saga's own events are written under the lock
	// of its instance, which a participant does not have.
	return tx.Publish(ctx, pipeline.Outgoing{Event: reply, AggregateType: "saga-reply"})
}

func (p Participant) load(ctx context.Context, tx pipeline.Tx, c topics.SagaCommand) (*call, error) {
	called := &call{SagaCommand: c, now: time.Now()}
	var err error
	if called.id, err = uuid.Parse(c.CommandID); err != nil {
		return nil, pipeline.Malformed(fmt.Errorf("command id %q: %w", c.CommandID, err))
	}
	ids := []uuid.UUID{called.id}
	if c.Compensation {
		if called.undoes, err = uuid.Parse(c.CompensatesCommandID); err != nil {
			return nil, pipeline.Malformed(fmt.Errorf("compensates command id %q: %w", c.CompensatesCommandID, err))
		}
		ids = append(ids, called.undoes)
	}
	if _, err := uuid.Parse(c.SagaID); err != nil {
		return nil, pipeline.Malformed(fmt.Errorf("saga id %q: %w", c.SagaID, err))
	}
	// One row for each id, with nulls where nothing is known of it.
	rows, err := tx.Query(ctx, `
		SELECT asked.id, clock_timestamp(), coalesce(s.outcome, ''), coalesce(s.issue, 0), s.failure, s.output
		FROM unnest($2::uuid[]) AS asked (id)
		LEFT JOIN saga_participations s ON s.participant = $1 AND s.command_id = asked.id`, p.name, ids)
	if err != nil {
		return nil, fmt.Errorf("load its participation: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var found participation
		if err := rows.Scan(&id, &called.now, &found.outcome, &found.issue, &found.failure, &found.output); err != nil {
			return nil, fmt.Errorf("load its participation: %w", err)
		}
		if id == called.id {
			called.own = found
		} else {
			called.other = found
		}
	}
	return called, rows.Err()
}

// settled answers a command that needs nothing to be done.
func (c *call) settled() (topics.SagaReply, bool) {
	switch c.own.outcome {
	case topics.SagaDone:
		return topics.SagaReply{Outcome: topics.SagaDone, Output: c.own.output}, true
	case topics.SagaRefused:
		return refusal(CodeCompensated, "the command was compensated before it came", false), true
	case topics.SagaNotDone:
		if c.own.issue >= c.Issue {
			var failure topics.Failure
			_ = json.Unmarshal(c.own.failure, &failure) // it was written by this package
			return topics.SagaReply{Outcome: topics.SagaNotDone, Failure: &failure}, true
		}
	}
	// A compensation has to be brought about, however late.
	if !c.Compensation && c.Deadline != nil && !c.now.Before(*c.Deadline) {
		return refusal(CodeLate, fmt.Sprintf("the command came %s after its deadline", c.now.Sub(*c.Deadline).Round(time.Millisecond)), true), true
	}
	return topics.SagaReply{}, false
}

func refusal(code, message string, retryable bool) topics.SagaReply {
	return topics.SagaReply{
		Outcome: topics.SagaRefused, Failure: &topics.Failure{Reason: code, Message: message, Retryable: retryable},
	}
}

// act carries the command out and notes what came of it.
func (p Participant) act(ctx context.Context, tx pipeline.Tx, c *call) (topics.SagaReply, error) {
	h, err := p.find(c.SagaCommand)
	if err != nil {
		return topics.SagaReply{}, err
	}
	if c.Compensation {
		// Refuse what comes late, in the transaction that says that it is undone.
		if c.other.outcome != topics.SagaDone {
			if err := p.note(ctx, tx, c, c.undoes, participation{outcome: topics.SagaRefused}); err != nil {
				return topics.SagaReply{}, err
			}
			return topics.SagaReply{Outcome: topics.SagaDone}, p.note(ctx, tx, c, c.id, participation{outcome: topics.SagaDone})
		}
	}
	output, failure, err := p.run(ctx, tx, c, h)
	if err != nil {
		return topics.SagaReply{}, err
	}
	if failure != nil {
		text, err := json.Marshal(failure)
		if err != nil {
			return topics.SagaReply{}, fmt.Errorf("encode its failure: %w", err)
		}
		return topics.SagaReply{Outcome: topics.SagaNotDone, Failure: failure},
			p.note(ctx, tx, c, c.id, participation{outcome: topics.SagaNotDone, failure: text})
	}
	return topics.SagaReply{Outcome: topics.SagaDone, Output: output},
		p.note(ctx, tx, c, c.id, participation{outcome: topics.SagaDone, output: output})
}

// note writes down what came of a command. Nothing replaces what is done.
func (p Participant) note(ctx context.Context, tx pipeline.Tx, c *call, id uuid.UUID, n participation) error {
	tag, err := tx.Exec(ctx, `
		INSERT INTO saga_participations AS s (participant, command_id, saga_id, outcome, issue, failure, output)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (participant, command_id) DO UPDATE
		SET outcome = excluded.outcome, issue = excluded.issue, failure = excluded.failure, output = excluded.output, at = excluded.at
		WHERE s.outcome <> 'done'`,
		p.name, id, c.SagaID, n.outcome, c.Issue, nullable(n.failure), nullable(n.output))
	if err != nil {
		return fmt.Errorf("note that it is %s: %w", n.outcome, err)
	}
	if tag.RowsAffected() == 0 {
		return errors.New("note what came of it: another delivery of the command was quicker; it is tried again")
	}
	return nil
}

func nullable(text json.RawMessage) any {
	if len(text) == 0 {
		return nil
	}
	return text
}

// run calls the step under a savepoint. A failure is the step's and is told to the saga;
// an error is not its fault, or not known to be: the command comes again.
func (p Participant) run(ctx context.Context, tx pipeline.Tx, c *call, h handler) (json.RawMessage, *topics.Failure, error) {
	back, err := savepoint(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	within := ctx
	if !c.Compensation && c.Deadline != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, c.Deadline.Sub(c.now))
		defer cancel()
	}
	step := &stepTx{Tx: tx, command: c.SagaCommand}
	output, err := guarded(func() (json.RawMessage, error) { return h.run(within, step, c.Payload, c.other.output) })
	if err == nil {
		if err := back(false); err != nil {
			return nil, nil, err
		}
		return output, nil, tx.Publish(ctx, step.events...)
	}
	if class := (middleware.Classifier{}).Classify(ctx, err); class == middleware.InfrastructureFault || class == middleware.ShutdownFault {
		return nil, nil, err
	}
	// Where the connection went with the step, this fails, and so does the delivery.
	if err := back(true); err != nil {
		return nil, nil, err
	}
	return nil, failureOf(err), nil
}

// savepoint begins one and returns what ends it; without a real transaction neither does
// anything.
func savepoint(ctx context.Context, tx pipeline.Tx) (end func(undo bool) error, err error) {
	under, ok := pipeline.PgxTx(tx)
	if !ok {
		return func(bool) error { return nil }, nil
	}
	var nested pgx.Tx
	if nested, err = under.Begin(ctx); err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	return func(undo bool) error {
		if undo {
			if err := nested.Rollback(ctx); err != nil {
				return pipeline.Infrastructure(fmt.Errorf("undo the step: %w", err))
			}
			return nil
		}
		if err := nested.Commit(ctx); err != nil {
			return fmt.Errorf("end the savepoint: %w", err)
		}
		return nil
	}, nil
}

// guarded makes a panic the failure of the step.
func guarded(fn func() (json.RawMessage, error)) (output json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			output, err = nil, &Failure{Code: CodePanic, Message: fmt.Sprint("the step panicked: ", r), Retryable: true}
		}
	}()
	return fn()
}
