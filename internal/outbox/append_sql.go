package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

// SQLExecer runs a statement by way of database/sql: *sql.Tx, with any driver for
// PostgreSQL.
type SQLExecer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// LockAndAppendSQL is LockAndAppend for database/sql: the same statement, with the
// texts of arrays.
func LockAndAppendSQL(ctx context.Context, tx SQLExecer, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	c, err := columnsOf(entries)
	if err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	if _, err := tx.ExecContext(ctx, appendSQL, c.texts(bucketsOf(entries))...); err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	return nil
}
