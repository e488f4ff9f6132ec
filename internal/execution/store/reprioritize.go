package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/limits"
)

// Reprioritize gives an execution that waits another priority; see
// execution.Reprioritize. It returns the execution as it then stands, also together
// with execution.ErrAdmitted or execution.ErrTerminal, when it comes too late.
func (s *Store) Reprioritize(ctx context.Context, id string, priority int, by, reason string) (*execution.Execution, error) {
	e, err := s.command(ctx, id, func(ctx context.Context, tx pgx.Tx, l loaded) error {
		before := l.Version
		if err := l.Reprioritize(l.now, priority, by, reason, s.policy); err != nil || l.Version == before {
			return err
		}
		// Of the request this is all that ever changes, so save does not write it.
		if _, err := tx.Exec(ctx, `UPDATE executions SET request = jsonb_set(request, '{priority}', to_jsonb($2::integer))
			WHERE id = $1::text::uuid`, id, priority); err != nil {
			return fmt.Errorf("update request: %w", err)
		}
		return moveFlow(ctx, tx, l.Execution)
	}, WakeAdmission)
	if err != nil {
		return e, fmt.Errorf("reprioritize: %w", err)
	}
	return e, nil
}

// moveFlow puts a queued execution into the flow of its priority.
func moveFlow(ctx context.Context, tx pgx.Tx, e *execution.Execution) error {
	if e.Flow == "" {
		return nil // it is in none yet
	}
	var keys []limits.Key
	if err := tx.QueryRow(ctx, `SELECT keys FROM admission_flows WHERE id = $1::text::uuid`, e.Flow).Scan(&keys); err != nil {
		return fmt.Errorf("read flow: %w", err)
	}
	r := e.Request
	flow := admission.NewFlow(r.ResourceClass, r.Tenant, r.User, r.Executor, r.Priority, keys)
	e.Flow = flow.ID.String()
	return saveFlows(ctx, tx, []admission.Flow{flow})
}
