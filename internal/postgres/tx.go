package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// TxAttempts is how often InTx runs a transaction that the server aborts for
	// the sake of another one.
	TxAttempts = 4

	txBackoff     = 5 * time.Millisecond
	finishTimeout = 10 * time.Second
)

// ErrInDoubt means that a commit was sent and no answer came: the transaction
// may or may not have been committed.
var ErrInDoubt = errors.New("outcome of the commit is unknown")

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a READ COMMITTED transaction and commits when it returns nil.
// When fn returns an error or panics, the transaction is rolled back, and the
// error or panic goes on to the caller.
//
// A transaction that the server aborts because of a deadlock or a serialization
// failure is run again from its beginning, TxAttempts times in all, so fn must not
// have effects outside the transaction that cannot be repeated. Nothing else is
// repeated.
//
// A commit is not interrupted by the end of ctx, since that would only leave its
// outcome unknown; it has 10 s. See ErrInDoubt.
func InTx(ctx context.Context, db Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := runTx(ctx, db, fn)
		if err == nil || attempt == TxAttempts || !abortedForAnother(err) {
			return err
		}
		// The backoff is random so that two transactions that deadlocked do not
		// meet again in step.
		if sleep(ctx, rand.N(txBackoff<<attempt)) != nil {
			return err
		}
	}
}

func runTx(ctx context.Context, db Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	finished := false
	defer func() {
		if finished {
			return
		}
		// After an error, a panic or runtime.Goexit. The connection must come back
		// clean even though ctx may have ended; a failed rollback closes it.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		_ = tx.Rollback(cleanup)
	}()

	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	finished = true
	return commit(ctx, tx)
}

func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	wasClosed := tx.Conn().IsClosed()
	err := tx.Commit(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgconn.ErrConnClosed) && !wasClosed:
		// The driver also says "closed", and "safe to retry", when the connection broke
		// while it waited for the answer: the commit was sent.
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed), pgconn.SafeToRetry(err):
		// The server rolled back, or nothing was sent.
		return fmt.Errorf("commit: %w", err)
	case sqlState(err) != "" && !connectionEnded(err):
		// The server answered the commit with an error, such as a deferred
		// constraint that does not hold: it is rolled back.
		return fmt.Errorf("commit: %w", err)
	default:
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	}
}

// connectionEnded reports an error of the server with which it also ended the
// session. It may have been sent on after the commit was durable.
func connectionEnded(err error) bool {
	switch sqlState(err) {
	case "57P01", "57P02", "57P03", "57P05":
		return true
	}
	return false
}

func abortedForAnother(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01":
		return true
	}
	return false
}
