package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// Identified is a request with the id, a UUID, that its execution will have.
type Identified struct {
	ID string
	// Request has been normalized (execution.Normalize). Its idempotency key is not
	// claimed: that is for the guard.
	Request topics.Request
}

// Sender runs statements in one round trip of a transaction.
type Sender interface {
	Send(ctx context.Context, b *pgx.Batch) error
}

// Guard is the caller's part of the transaction of SubmitGuarded. Both methods are called
// again when the transaction is run again, and have no effects outside of it.
type Guard interface {
	// Ask queues what is to be locked, claimed and read first.
	Ask(b *pgx.Batch)
	// Decide is called when that has been answered, and says which of the requests become
	// executions, by their index, ascending. It queues into b what is to be written with
	// them. An error undoes everything and is SubmitGuarded's.
	Decide(ctx context.Context, tx Sender, b *pgx.Batch) ([]int, error)
}

// SubmitGuarded records those requests as new executions that the guard lets through, and
// puts their events into the outbox, all in one transaction of two round trips. They get
// their places within concurrency keys in their order.
//
// An error means that nothing was stored, or, when it wraps postgres.ErrInDoubt, that
// nobody could be asked whether it was.
//
// Locks are taken in this order: the guard's, then those of concurrency keys.
func (s *Store) SubmitGuarded(ctx context.Context, requests []Identified, g Guard) error {
	for attempt := 1; ; attempt++ {
		err := s.submitGuarded(ctx, requests, g)
		switch {
		case err == nil:
			return nil
		case attempt == postgres.TxAttempts, !postgres.Repeatable(err) && !errors.Is(err, errAborted), postgres.Backoff(ctx, attempt) != nil:
			return fmt.Errorf("submit: %w", err)
		}
	}
}

// errAborted says that a transaction whose commit was in doubt was rolled back.
var errAborted = errors.New("the transaction was rolled back")

func (s *Store) submitGuarded(ctx context.Context, requests []Identified, g Guard) error {
	var written outbox.Written
	ctx = outbox.Gathering(ctx, &written)
	tx, err := postgres.Pipeline(ctx, s.pool)
	if err != nil {
		return err
	}
	defer tx.End()

	var first pgx.Batch
	g.Ask(&first)
	places := askPlaces(&first, requests)
	var now time.Time
	var xid string
	first.Queue(`SELECT clock_timestamp(), pg_current_xact_id()::text`).QueryRow(func(row pgx.Row) error { return row.Scan(&now, &xid) })
	if err := tx.Send(ctx, &first); err != nil {
		return err
	}

	var b queued
	kept, err := g.Decide(ctx, tx, &b.batch)
	if err != nil {
		return err
	}
	if err := writeNew(ctx, &b, requests, kept, places, now.UTC()); err != nil {
		return err
	}
	if len(kept) > 0 {
		crash.At("submit.guarded")
	}
	if err := tx.Commit(ctx, &b.batch, 0); err != nil {
		if err = s.resolve(ctx, xid, err); err != nil {
			return err
		}
		// What was to be handed over is not known; the relay finds it.
		s.waker.Wake(outbox.WakeName)
		return nil
	}
	if !s.relay.Hand(&written) {
		s.waker.Wake(outbox.WakeName)
	}
	return nil
}

// writeNew queues the rows and events of the requests that are kept.
func writeNew(ctx context.Context, b *queued, requests []Identified, kept []int, places []*int64, now time.Time) error {
	if len(kept) == 0 {
		return nil
	}
	change, seqs := &change{}, make([]*int64, len(kept))
	for i, k := range kept {
		change.touch(execution.New(requests[k].ID, requests[k].Request, now))
		seqs[i] = places[k]
	}
	if err := insert(ctx, b, change.executions, seqs); err != nil {
		return fmt.Errorf("insert executions: %w", err)
	}
	return change.publish(ctx, b)
}

// askPlaces queues what draws the places of requests within their concurrency keys; see
// drawConcurrencySeqs. Those that are not kept leave a gap, which does no harm.
func askPlaces(b *pgx.Batch, requests []Identified) []*int64 {
	places := make([]*int64, len(requests))
	var keyed []int
	var locks []string
	for i, r := range requests {
		if key := r.Request.ConcurrencyKey; key != "" {
			keyed, locks = append(keyed, i), append(locks, concurrencyLock(r.Request))
		}
	}
	if len(keyed) == 0 {
		return places
	}
	b.Queue(lockConcurrencyKeys, locks)
	b.Queue(drawConcurrencyPlaces, len(keyed)).Query(func(rows pgx.Rows) error {
		seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		for n, i := range keyed {
			places[i] = &seqs[n]
		}
		return nil
	})
	return places
}

// resolve finds out what became of a commit that failed; nil means that it has happened.
func (s *Store) resolve(ctx context.Context, xid string, err error) error {
	if !errors.Is(err, postgres.ErrInDoubt) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doubtTimeout)
	defer cancel()
	switch outcome, resolveErr := postgres.Resolve(ctx, s.pool, xid); {
	case resolveErr != nil:
		return fmt.Errorf("%w: %w", err, resolveErr)
	case outcome == postgres.Committed:
		return nil
	default:
		return errAborted
	}
}

// doubtTimeout is how long the server is asked what became of a transaction.
const doubtTimeout = 10 * time.Second
