package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// workflows starts the instances of messages. The engine has transactions of its own, so
// there are three steps: the keys of the messages are claimed, each with the id of an
// instance, which is a promise; the instances are started under these ids; and the keys are
// told so. Whoever meets a promise that is not told to be kept starts that very instance,
// which is there once.
func (g *Ingest) workflows(ctx context.Context, t *trigger.Compiled, items []*item) ([]Outcome, error) {
	if g.cfg.Workflows == nil {
		return nil, &BlockedError{Cause: trigger.Cause{
			Code: "workflows_off", Message: "this process runs no workflow engine",
			Hint: "Give it the role workflows, or the trigger an execution of executor workflow as its target.",
		}}
	}
	c := g.claimFor(t, items)
	if err := g.cfg.Executions.SubmitGuarded(ctx, nil, c); err != nil {
		return nil, g.judge(ctx, err)
	}
	fates, blocked := c.fates, c.blocked
	var starts []engine.StartRequest
	var at []int
	for i, ft := range fates {
		if ft.made {
			starts, at = append(starts, startOf(t, items[i])), append(at, i)
		}
	}
	if len(starts) > 0 {
		crash.At("ingest.promised")
		_, errs := g.cfg.Workflows.StartInOrder(ctx, starts)
		crash.At("ingest.started")
		fates, blocked = c.started(fates, blocked, at, errs)
	}
	confirmed := &confirmation{claim: c, fates: fates}
	if confirmed.needed() {
		if err := g.cfg.Executions.SubmitGuarded(ctx, nil, confirmed); err != nil {
			return nil, g.judge(ctx, err)
		}
	}
	return outcomesOf(fates), orNil(blocked)
}

// judge tells an error of a transaction that may pass from one that nobody understands.
func (g *Ingest) judge(ctx context.Context, err error) error {
	if ctx.Err() != nil || postgres.IsInfrastructure(err) {
		return fmt.Errorf("ingest: %w", err)
	}
	return internalFault(err)
}

// maxCorrelation is how long the correlation id of an event may be to be passed on.
const maxCorrelation = 255

func startOf(t *trigger.Compiled, it *item) engine.StartRequest {
	s := it.start
	r := engine.StartRequest{
		ID: it.id, DefinitionID: s.DefinitionID, Version: s.Version, BusinessKey: s.BusinessKey, Priority: s.Priority,
		Tenant: s.Tenant, User: s.User, Variables: s.Variables,
	}
	r.Origin = &topics.Origin{Kind: string(t.Type), Trigger: t.ID, Metadata: it.metadata}
	if it.Event != nil && len(it.Event.CorrelationID) <= maxCorrelation {
		r.CorrelationID = it.Event.CorrelationID
	}
	return r
}

// started takes in what the engine says of the starts of fates[at[n]]. Fates end before
// the first that could not be taken.
func (c *claim) started(fates []fate, blocked *BlockedError, at []int, errs []error) ([]fate, *BlockedError) {
	for n, i := range at {
		it := c.items[i]
		refusal, err := startFault(it, errs[n])
		switch {
		case err != nil:
			err.Index = i
			return fates[:i], err
		case refusal != nil && it.stalls(c.t):
			return fates[:i], &BlockedError{Index: i, Cause: poisonCause(refusal), Err: refusal}
		case refusal != nil:
			it.refusal = refusal
			fates[i] = fate{Outcome: Outcome{Status: Refused, Kind: trigger.KindInstance, Err: refusal}, letter: it.Place != nil}
		}
	}
	for i, ft := range fates {
		if ft.first != nil && ft.first.refusal != nil { // a repetition of one that was refused
			c.items[i].refusal = ft.first.refusal
			fates[i] = fate{Outcome: Outcome{Status: Refused, Kind: trigger.KindInstance, Err: ft.first.refusal}, letter: c.items[i].Place != nil}
		}
	}
	return fates, blocked
}

// startFault sorts an error of the engine: the message's, or one that is not.
func startFault(it *item, err error) (*Refusal, *BlockedError) {
	block := func(code, hint string) (*Refusal, *BlockedError) {
		return nil, &BlockedError{Err: err, Cause: trigger.Cause{Code: code, Message: err.Error(), Hint: hint}}
	}
	switch {
	case err == nil, errors.Is(err, engine.ErrConflict):
		// It is there, as an instance of what the target was before.
		return nil, nil
	case errors.Is(err, engine.ErrInvalid):
		return &Refusal{"invalid_request", err.Error()}, nil
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, definitions.ErrNotFound):
		return block("unknown_workflow", fmt.Sprintf("Put the definition %s (millrace workflows apply), or change the target: it goes on by itself then.", it.start.DefinitionID))
	case errors.Is(err, engine.ErrWithoutKafka):
		return block("without_kafka", "Set kafka.brokers.")
	case errors.Is(err, engine.ErrOverloaded), errors.Is(err, engine.ErrStopped):
		return block("overloaded", "It goes on by itself.")
	case postgres.IsInfrastructure(err):
		return block("storage", "It goes on by itself when the database answers.")
	}
	return block("internal", "Look at the log of the process that runs the trigger.")
}

// confirmation tells the keys of messages what has become of the promises, and files the
// letters.
type confirmation struct {
	*claim
	fates []fate
}

// Ask implements store.Guard.
func (*confirmation) Ask(*pgx.Batch) {}

// Decide implements store.Guard.
func (c *confirmation) Decide(ctx context.Context, _ store.Sender, b *pgx.Batch) ([]int, error) {
	var kept []inbox.Claim
	var broken []inbox.Key
	var gone []uuid.UUID
	for i, ft := range c.fates {
		it := c.items[i]
		switch {
		case ft.made, ft.first != nil:
			for _, k := range it.keys {
				kept = append(kept, inbox.Claim{Key: k, Target: targetInstance + ft.ID})
			}
		case ft.Status == Refused:
			broken, gone = append(broken, c.promisedKeys(it)...), append(gone, it.id)
		}
	}
	inbox.Correct(b, c.t.Consumer(), kept)
	inbox.Forget(b, c.t.Consumer(), broken)
	if limited(c.t) {
		c.open.remove(b, gone)
	}
	return nil, settle(ctx, b, c.t, c.items, c.fates)
}

// promisedKeys are those keys of an item under which there is, or may be, a promise of it.
func (c *confirmation) promisedKeys(it *item) []inbox.Key {
	var keys []inbox.Key
	for _, k := range it.keys {
		if _, promised := promise(c.facts.known[k]); promised || c.facts.fresh[k] {
			keys = append(keys, k)
		}
	}
	return keys
}

// needed says whether there is anything to be told.
func (c *confirmation) needed() bool {
	for i, ft := range c.fates {
		if ft.letter || c.items[i].Letter != "" || (ft.made || ft.first != nil || ft.Status == Refused) && len(c.items[i].keys) > 0 {
			return true
		}
	}
	return false
}
