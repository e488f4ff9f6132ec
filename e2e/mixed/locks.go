package main

import (
	"context"
	"time"
)

const (
	// holdFor is for how long somebody keeps the outbox while the schema is migrated, as a
	// slow report or a forgotten session would. A migration that stood in line for its lock
	// would have everybody wait behind it for as long.
	holdFor = 6 * time.Second
	// waitMost is the longest that a statement of the load may wait for a lock of a table:
	// a migration gives up standing in line after a second, and the machine may be busy.
	waitMost = 3 * time.Second
)

// occupy keeps a lock of the outbox that writers share, for holdFor.
func (in *installation) occupy(ctx context.Context, held chan<- struct{}) error {
	tx, err := in.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `LOCK TABLE outbox_events IN ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	close(held)
	pause(ctx, holdFor)
	return nil
}

// watchLocks returns the longest that a statement that reads or writes rows was seen to
// wait for the lock of a table, until ctx ends.
func (in *installation) watchLocks(ctx context.Context) (worst time.Duration) {
	for pause(ctx, 50*time.Millisecond) {
		var seconds float64
		err := in.db.QueryRow(ctx, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 FROM pg_locks
			WHERE NOT granted AND locktype = 'relation' AND mode IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')`).Scan(&seconds)
		if err == nil {
			worst = max(worst, time.Duration(seconds*float64(time.Second)))
		}
	}
	return worst
}
