// Package orchestrator hands the replies of participants on saga_events to the engine, which
// leads the sagas on.
//
// Replies of one saga are taken in order, those of several at the same time, so that they
// share the engine's transactions. A reply that nobody waits for any more (it came twice, or
// after a time-out) changes nothing. After a crash replies come again, which is the same.
// While the engine cannot take any, the partition waits. Replayed history is dropped.
package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Name of the consumer. Renaming it reads the topic again from the start.
const Name = "saga-replies"

// Engine takes replies; *engine.Engine is one.
type Engine interface {
	Reply(ctx context.Context, r engine.CommandReply) error
}

// concurrent is how many sagas of a batch are led on at once.
const concurrent = 64

// NewConsumer returns the consumer saga-replies.
func NewConsumer(e Engine, log *slog.Logger) pipeline.Consumer {
	o := orchestrator{engine: e, log: log}
	return pipeline.Consumer{
		Name:   Name,
		Topic:  topics.SagaEvents,
		Handle: pipeline.OnBatch(o.take),
		// A fault of the engine is one of the database: it is waited for. What is left are
		// replies that name no saga at all.
		Delivery: pipeline.Delivery{Backoff: pipeline.Backoff{Initial: 100 * time.Millisecond}},
	}
}

type orchestrator struct {
	engine Engine
	log    *slog.Logger
}

// take hands a batch on: the replies of each saga in order.
func (o orchestrator) take(ctx context.Context, batch []topics.SagaReply) error {
	order := make([]string, 0, len(batch))
	bySaga := make(map[string][]topics.SagaReply, len(batch))
	for _, r := range batch {
		if bySaga[r.SagaID] == nil {
			order = append(order, r.SagaID)
		}
		bySaga[r.SagaID] = append(bySaga[r.SagaID], r)
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, concurrent)
	errs := make([]error, len(order))
	for i, saga := range order {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = o.replies(ctx, bySaga[saga])
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// replies hands the replies of one saga on, up to the first that fails.
func (o orchestrator) replies(ctx context.Context, list []topics.SagaReply) error {
	for _, r := range list {
		if err := o.reply(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (o orchestrator) reply(ctx context.Context, r topics.SagaReply) error {
	command, err := read(r)
	if err != nil {
		return pipeline.Malformed(fmt.Errorf("reply of %s: %w", r.Participant, err))
	}
	crash.At("saga.reply_read")
	err = o.engine.Reply(ctx, command)
	if errors.Is(err, engine.ErrInvalid) {
		// The saga cannot take what the participant gave, and must not wait for it for ever.
		command.Result, command.Retryable = nil, false
		command.Failure = &workflow.Failure{Code: "bad_reply", Message: err.Error()}
		err = o.engine.Reply(ctx, command)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrConflict):
		o.log.DebugContext(ctx, "reply is not waited for", "saga_id", r.SagaID, "command_id", r.CommandID, "outcome", r.Outcome, "error", err)
		return nil
	case errors.Is(err, engine.ErrOverloaded), errors.Is(err, engine.ErrStopped):
		return pipeline.Infrastructure(fmt.Errorf("reply to saga %s: %w", r.SagaID, err))
	case errors.Is(err, engine.ErrNotFound):
		return pipeline.Permanent(fmt.Errorf("reply to saga %s: %w", r.SagaID, err))
	}
	return fmt.Errorf("reply to saga %s: %w", r.SagaID, err)
}

// read translates a reply. What was done counts whichever attempt did it; a failure is
// that of its attempt only, for the next one may be under way.
func read(r topics.SagaReply) (engine.CommandReply, error) {
	out := engine.CommandReply{Actor: r.Participant}
	var err error
	if out.InstanceID, err = uuid.Parse(r.SagaID); err != nil {
		return out, fmt.Errorf("saga id %q: %w", r.SagaID, err)
	}
	if out.CommandID, err = uuid.Parse(r.CommandID); err != nil {
		return out, fmt.Errorf("command id %q: %w", r.CommandID, err)
	}
	if r.Outcome == topics.SagaDone {
		out.Result = r.Output
		if len(out.Result) == 0 {
			out.Result = json.RawMessage("{}")
		}
		return out, nil
	}
	out.Attempt = r.Attempt
	out.Failure = &workflow.Failure{Code: r.Outcome}
	if f := r.Failure; f != nil {
		out.Failure.Code, out.Failure.Message, out.Retryable = f.Reason, f.Message, f.Retryable
	}
	return out, nil
}
