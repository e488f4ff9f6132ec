package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
)

// querier is what reads need of a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Get returns an execution as it stands, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id string) (*execution.Execution, error) {
	return get(ctx, s.pool, id)
}

func get(ctx context.Context, q querier, id string) (*execution.Execution, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM executions WHERE id = $1::text::uuid`, id)
	if err != nil {
		return nil, fmt.Errorf("get execution: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("execution %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get execution: %w", err)
	}
	return found.Execution, nil
}

// checkID keeps what is not an id away from the database: there is no execution
// of that name, which is all that its author has to know.
func checkID(id string) error {
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
		return fmt.Errorf("execution %q: %w", id, ErrNotFound)
	}
	return nil
}

// Cancel asks for an execution to stop; see execution.RequestCancel. It returns
// the execution as it then stands, also together with execution.ErrTerminal when
// it has ended already.
func (s *Store) Cancel(ctx context.Context, id, by, reason string) (*execution.Execution, error) {
	e, err := s.command(ctx, id, func(_ context.Context, _ pgx.Tx, l loaded) error {
		return l.RequestCancel(l.now, by, reason)
	}, WakeCancel, WakeAdmission)
	if err != nil {
		return e, fmt.Errorf("cancel: %w", err)
	}
	return e, nil
}
