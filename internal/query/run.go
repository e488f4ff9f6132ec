package query

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/postgres"
)

// settings hold for the statement that is sent with them.
//
// A plan for unknown arguments would be wrong for most of them: what is best for the
// few FAULTED is not for the many COMPLETED. Compiling to machine code costs more than
// it saves even in the longest of these statements.
const settings = `SELECT set_config('statement_timeout', $1::text, true), set_config('plan_cache_mode', 'force_custom_plan', true),
  set_config('jit', 'off', true), set_config('default_transaction_read_only', 'on', true)`

// run sends a statement and calls each for every row. Settings and statement go
// together, in one round trip and one implicit transaction, which bounds the settings.
func (s *Store) run(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) (err error) {
	batch := &pgx.Batch{}
	batch.Queue(settings, strconv.FormatInt(s.limits.Timeout.Milliseconds(), 10))
	batch.Queue(sql, args...)
	results := s.db.SendBatch(ctx, batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
		err = s.fault(ctx, err)
	}()
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fault says in the words of this package what the database refused.
func (s *Store) fault(ctx context.Context, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pg.Code == "57014" && ctx.Err() == nil: // query_canceled, and not by the caller
		return fmt.Errorf("%w: no answer within %s; narrow the filter, or ask for fields that have an index", ErrTimeout, s.limits.Timeout)
	case postgres.IsConstraint(err):
		// Class 22: a value that the checks let through and that the database cannot
		// compare with.
		return &InvalidError{Code: "invalid", Message: "the database refuses a value of the filter: " + pg.Message}
	}
	return err
}

func notFound(s *Schema, id string) error {
	return fmt.Errorf("%s: %q: %w", s.Name, clip(id), ErrNotFound)
}
