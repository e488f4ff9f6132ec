package app

import (
	"context"
	"errors"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
)

// Executions is what a consumer may do to executions themselves. A constructor that
// is given to Consumer may ask for it.
type Executions interface {
	// Cancel asks an execution to stop: one that does not run yet ends at once as
	// CANCELLED, a running one is stopped by its worker. by and reason are told to
	// whoever looks. It is a transaction of its own, committed when Cancel returns,
	// and may be repeated: an execution that has ended is left as it is, without an
	// error. An execution that does not exist is an error.
	Cancel(ctx context.Context, id, by, reason string) error
}

// executions implements Executions.
type executions struct{ store *store.Store }

func newExecutions(st *store.Store) Executions { return executions{st} }

// Cancel implements Executions.
func (e executions) Cancel(ctx context.Context, id, by, reason string) error {
	_, err := e.store.Cancel(ctx, id, by, reason)
	if errors.Is(err, execution.ErrTerminal) {
		return nil
	}
	return err
}
