package query

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/postgres"
)

// timeoutGrace is how much later than the server the context ends a statement.
const timeoutGrace = time.Second

// settings hold for the statement that is sent with them.
//
// A plan for unknown arguments would be wrong for most of them: what is best for the
// few FAULTED is not for the many COMPLETED. Compiling to machine code costs more than
// it saves even in the longest of these statements.
const settings = `SELECT set_config('statement_timeout', $1::text, true), set_config('plan_cache_mode', 'force_custom_plan', true),
  set_config('jit', 'off', true), set_config('default_transaction_read_only', 'on', true)`

// run sends a statement and calls each for every row. Settings and statement go
// together, in one round trip and one implicit transaction, which bounds the settings.
//
// The driver may have to describe the statement first, where no setting holds yet and
// a lock may be in the way; the end of that wait is the context's, which costs the
// connection.
func (s *Store) run(caller context.Context, sql string, args []any, each func(pgx.Rows) error) (err error) {
	ctx, cancel := context.WithTimeout(caller, s.limits.Timeout+timeoutGrace)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(settings, strconv.FormatInt(s.limits.Timeout.Milliseconds(), 10))
	batch.Queue(sql, args...)
	results := s.db.SendBatch(ctx, batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
		err = s.fault(caller, err)
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
func (s *Store) fault(caller context.Context, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	canceled := ok && pg.Code == "57014" || errors.Is(err, context.DeadlineExceeded)
	switch {
	case canceled && caller.Err() == nil:
		return fmt.Errorf("%w: no answer within %s; narrow the filter, or ask for fields that have an index", ErrTimeout, s.limits.Timeout)
	case !ok:
		return err
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
