package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
)

// Reprioritize gives an execution that waits another priority; see
// execution.Reprioritize. It returns the execution as it then stands, also together
// with execution.ErrAdmitted or execution.ErrTerminal, when it comes too late.
func (s *Store) Reprioritize(ctx context.Context, id string, priority int, by, reason string) (*execution.Execution, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var e *execution.Execution
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		found, err := lockByID(ctx, tx, []string{id})
		if err != nil {
			return err
		}
		l, ok := found[id]
		if !ok {
			return fmt.Errorf("execution %s: %w", id, ErrNotFound)
		}
		e = l.Execution
		before := e.Version
		if err := e.Reprioritize(l.now, priority, by, reason, s.policy); err != nil || e.Version == before {
			return err
		}
		// Of the request this is all that ever changes, so save does not write it.
		if _, err := tx.Exec(ctx, `UPDATE executions SET request = jsonb_set(request, '{priority}', to_jsonb($2::integer))
			WHERE id = $1::text::uuid`, id, priority); err != nil {
			return fmt.Errorf("update request: %w", err)
		}
		change := &change{}
		change.touch(e)
		return change.save(ctx, tx)
	}, WakeAdmission)
	if err != nil {
		return e, fmt.Errorf("reprioritize: %w", err)
	}
	return e, nil
}
