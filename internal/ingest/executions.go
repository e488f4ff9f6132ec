package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
)

// executions makes the executions of messages in one transaction; where that is refused,
// in halves, so that each is judged for itself.
func (g *Ingest) executions(ctx context.Context, t *trigger.Compiled, items []*item) ([]Outcome, error) {
	c := g.claimFor(t, items)
	err := g.cfg.Executions.SubmitGuarded(ctx, c.requests, c)
	if err == nil {
		crash.At("ingest.created")
		return outcomesOf(c.fates), orNil(c.blocked)
	}
	switch {
	case ctx.Err() != nil, postgres.IsInfrastructure(err):
		return nil, fmt.Errorf("ingest: %w", err)
	case len(items) > 1:
		g.log.DebugContext(ctx, "a batch of a trigger is made in halves", "trigger", t.ID, "messages", len(items), "error", err)
		return inHalves(items, func(half []*item) ([]Outcome, error) { return g.executions(ctx, t, half) })
	case items[0].refusal == nil && refusedByDatabase(err):
		items[0].refusal = &Refusal{"invalid_request", "the database refuses what the message is mapped to: " + err.Error()}
		return g.executions(ctx, t, items)
	}
	return nil, internalFault(err)
}

// inHalves makes the first half, and the second one when the first is done.
func inHalves(items []*item, make func([]*item) ([]Outcome, error)) ([]Outcome, error) {
	half := len(items) / 2
	outcomes, err := make(items[:half])
	if err != nil {
		return outcomes, err
	}
	rest, err := make(items[half:])
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		blocked.Index += half
	}
	return append(outcomes, rest...), err
}

// refusedByDatabase says whether the data is at fault: they break a constraint, do not fit
// a type, or are beyond a limit of the program (an index row that is too large).
func refusedByDatabase(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return postgres.IsConstraint(err) || ok && len(pg.Code) == 5 && pg.Code[:2] == "54"
}

// internalFault stalls: what nobody understands is not passed over.
func internalFault(err error) error {
	return &BlockedError{Err: err, Cause: trigger.Cause{
		Code: "internal", Message: "the message could not be stored: " + err.Error(),
		Hint: "This is no fault that is known to mend itself. Look at the log, and report it.",
	}}
}

func outcomesOf(fates []fate) []Outcome {
	outcomes := make([]Outcome, len(fates))
	for i, ft := range fates {
		outcomes[i] = ft.Outcome
	}
	return outcomes
}

// orNil returns no error for a nil pointer.
func orNil(blocked *BlockedError) error {
	if blocked == nil {
		return nil
	}
	return blocked
}
