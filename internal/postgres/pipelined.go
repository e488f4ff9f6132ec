package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pipelined is a READ COMMITTED transaction that costs no round trips of its own: BEGIN
// rides with its first statements, COMMIT with its last. One that needs to read before
// it writes takes two round trips, one that only writes takes one.
//
// It is used by one goroutine, and End must be called.
type Pipelined struct {
	conn *pgxpool.Conn
	// begun: BEGIN was queued; open: the server has answered it; over: so it has COMMIT.
	begun, open, over bool
}

// Pipeline takes a connection for a transaction. Nothing is sent yet.
func Pipeline(ctx context.Context, pool *pgxpool.Pool) (*Pipelined, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin transaction: %w", connectCause(err))
	}
	return &Pipelined{conn: conn}, nil
}

// Send runs statements in one round trip. Results go to the functions that were given
// to the batch's queries. After an error only End is left to be called.
func (t *Pipelined) Send(ctx context.Context, b *pgx.Batch) error {
	t.begin(b)
	return t.conn.SendBatch(ctx, b).Close()
}

func (t *Pipelined) begin(b *pgx.Batch) {
	if t.begun {
		return
	}
	t.begun = true
	var begin pgx.Batch
	begin.Queue("begin isolation level read committed").Exec(func(pgconn.CommandTag) error {
		t.open = true
		return nil
	})
	b.QueuedQueries = slices.Insert(b.QueuedQueries, 0, begin.QueuedQueries...)
}

// Commit runs statements and commits, in one round trip. Like a commit of InTx it is not
// interrupted by the end of ctx, and has limit (0: 10 s). ErrInDoubt means that the
// transaction may or may not have been committed; after any other error it was not.
func (t *Pipelined) Commit(ctx context.Context, b *pgx.Batch, limit time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if limit == 0 {
		limit = finishTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	t.begin(b)
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		t.over = tag.String() == "COMMIT"
		return nil
	})
	wasClosed := t.conn.Conn().IsClosed()
	err := t.conn.SendBatch(ctx, b).Close()
	switch {
	case t.over:
		return nil
	case err == nil:
		return fmt.Errorf("commit: %w", pgx.ErrTxCommitRollback)
	case wasClosed:
		return fmt.Errorf("commit: %w", err)
	case sqlState(err) == "" && t.open && !t.conn.Conn().IsClosed() && t.conn.Conn().PgConn().TxStatus() == 'I':
		// A function that was given to one of the queries did not like its result, and
		// the driver asked no further. All statements have run, COMMIT among them.
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	case sqlState(err) != "" && !connectionEnded(err):
		// A statement failed, and the server passed over everything behind it.
		return err
	case !errors.Is(err, pgconn.ErrConnClosed) && pgconn.SafeToRetry(err):
		return fmt.Errorf("commit: %w", err)
	case !t.conn.Conn().IsClosed():
		// The driver refused an argument before anything was sent.
		return err
	default:
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	}
}

// End gives the connection back, and rolls back what was not committed.
func (t *Pipelined) End() {
	if conn := t.conn.Conn(); t.begun && !t.over && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		cleanup, cancel := context.WithTimeout(context.Background(), finishTimeout)
		defer cancel()
		if _, err := conn.Exec(cleanup, "rollback"); err != nil {
			_ = conn.Close(cleanup)
		}
	}
	t.conn.Release()
}

// Repeatable says whether a transaction that failed with err, not ErrInDoubt, may succeed
// when it is run again from its beginning at once: the server gave it up for the sake of
// another one, a plan is outdated, or the connection broke before the commit.
func Repeatable(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrInDoubt):
		return false
	case sqlState(err) != "":
		return abortedForAnother(err) || stalePlan(err) || sqlState(err) == "57P01"
	}
	return brokenConnection(err) && !errors.Is(err, context.DeadlineExceeded)
}

// Backoff waits before the next attempt at a transaction, for a random time, so that
// two that stood in each other's way do not meet again in step. It returns ctx's error.
func Backoff(ctx context.Context, attempt int) error {
	return sleep(ctx, rand.N(txBackoff<<min(attempt, 8)))
}

// Outcome of a transaction whose commit is in doubt.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed"
	Aborted   Outcome = "aborted"
)

// Resolve finds out what became of a transaction, by the id that pg_current_xact_id gave
// it. The server may still be at it, so it asks until there is an answer, or ctx ends.
func Resolve(ctx context.Context, pool *pgxpool.Pool, xid string) (Outcome, error) {
	for attempt := 1; ; attempt++ {
		var status *string
		err := pool.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status)
		switch {
		case err == nil && status != nil && *status != "in progress":
			return Outcome(*status), nil
		case sqlState(err) == "22023":
			// An id that this server has not given out yet: it is another one, which took
			// over without having heard of the transaction.
			return Aborted, nil
		case err == nil && status == nil:
			return "", fmt.Errorf("transaction %s is too long ago: %w", xid, ErrInDoubt)
		case err != nil && !IsInfrastructure(err):
			return "", fmt.Errorf("look for transaction %s: %w: %w", xid, ErrInDoubt, err)
		}
		if sleep(ctx, txBackoff<<min(attempt, 8)) != nil {
			return "", fmt.Errorf("transaction %s: %w", xid, ErrInDoubt)
		}
	}
}
