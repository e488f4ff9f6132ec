package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
)

// Spend takes up to n tokens from the bucket of a key, and returns how many there were.
// Where that is fewer than n, wait is how long to wait for the next one if nobody else takes
// it. All processes take from one bucket, by the clock of the database, so the rate holds
// over all of them.
//
// The limit need not be one that was declared, and its name should not be one that could be:
// names of declared limits have no ':'.
func (s *Store) Spend(ctx context.Context, d limits.Definition, key string, n int) (taken int, wait time.Duration, err error) {
	err = postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		tat, now, err := lockBucket(ctx, tx, d.Name, key)
		if err != nil {
			return err
		}
		var next int64
		taken, next, wait = spend(d, tat, now, n)
		if next == tat {
			return nil
		}
		_, err = tx.Exec(ctx, `UPDATE limit_buckets SET tat_nanos = $3, updated_at = clock_timestamp() WHERE limit_name = $1 AND key = $2`,
			d.Name, key, next)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("spend tokens of limit %s: %w", d.Name, err)
	}
	return taken, wait, nil
}

// spend takes as many of n tokens as there are.
func spend(d limits.Definition, tat, now int64, n int) (taken int, next int64, wait time.Duration) {
	taken = min(n, d.Tokens(tat, now))
	next, _ = d.Take(tat, now, taken)
	// A bucket that is told to be empty gives one all the same where the clock was set back.
	for taken < n {
		more, short := d.Take(next, now, 1)
		if short > 0 {
			return taken, next, short
		}
		next, taken = more, taken+1
	}
	return taken, next, 0
}

// lockBucket locks the bucket of a key, which is made where it is missing, and returns what
// it keeps with a time that was read behind the lock.
func lockBucket(ctx context.Context, tx pgx.Tx, name, key string) (tat, now int64, err error) {
	lock := func() error {
		// Two statements in one message: in one of its own the clock might be read before the
		// lock is there.
		var batch pgx.Batch
		batch.Queue(`SELECT tat_nanos FROM limit_buckets WHERE limit_name = $1 AND key = $2 FOR UPDATE`, name, key)
		batch.Queue(`SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint`)
		results := tx.SendBatch(ctx, &batch)
		first := results.QueryRow().Scan(&tat)
		second := results.QueryRow().Scan(&now)
		return errors.Join(first, second, results.Close())
	}
	if err = lock(); !errors.Is(err, pgx.ErrNoRows) {
		return tat, now, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO limit_buckets (limit_name, key) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, key); err != nil {
		return 0, 0, err
	}
	return tat, now, lock()
}
