package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DispatchStatus tells how jobs reach workers, and how far a switch of the mode has come.
type DispatchStatus struct {
	Mode Mode
	// Pending are dispatches whose record waits to be published, Rejected those that the
	// broker refuses and somebody has to look at (the outbox says why).
	Pending, Rejected int64
	// Claimable are jobs that could be claimed or dispatched now; Later those whose time
	// has not come; OnHold those of suspended instances. Locked are held by workers or on
	// their way to them.
	Claimable, Later, OnHold, Locked int64
	// OtherMode are locked jobs that reached their workers in the mode that this one
	// is not. They finish under their lease, or come back when it ends.
	OtherMode int64
	// Waiting are claims of this process that wait for jobs.
	Waiting int64
	// Fault says what keeps jobs from being dispatched; empty: nothing.
	Fault string
}

// Drained reports whether nothing is left of the other mode.
func (d DispatchStatus) Drained() bool {
	return d.OtherMode == 0 && (d.Mode == KafkaOutbox || d.Pending+d.Rejected == 0)
}

const statusSQL = `
	SELECT count(*) FILTER (WHERE status = 'UNLOCKED' AND NOT on_hold AND run_at <= now()),
		count(*) FILTER (WHERE status = 'UNLOCKED' AND NOT on_hold AND run_at > now()),
		count(*) FILTER (WHERE status = 'LOCKED'),
		count(*) FILTER (WHERE status = 'LOCKED' AND (dispatch_id IS NOT NULL) <> $1)
	FROM (
		SELECT status, on_hold, run_at, dispatch_id FROM jobs WHERE status = 'UNLOCKED' AND NOT on_hold
		UNION ALL
		SELECT status, on_hold, run_at, dispatch_id FROM jobs WHERE status = 'LOCKED'
	) AS open`

const onHoldSQL = `SELECT count(*) FROM jobs WHERE status = 'UNLOCKED' AND on_hold`

const pendingSQL = `
	SELECT count(*) FILTER (WHERE o.status = 'PENDING'), count(*) FILTER (WHERE o.status = 'FAILED')
	FROM jobs j
	JOIN outbox_events o ON o.id = j.dispatch_id AND o.aggregate_type = 'job'
		AND o.created_at >= j.locked_at - interval '1 hour' AND o.created_at < j.locked_at + interval '1 day'
	WHERE j.status = 'LOCKED' AND j.lock_expires_at IS NULL`

// DispatchStatus counts open jobs. It reads all of them.
func (s *Store) DispatchStatus(ctx context.Context) (DispatchStatus, error) {
	d := DispatchStatus{Mode: s.mode, Waiting: int64(s.Waiting())}
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(statusSQL, s.mode == KafkaOutbox).QueryRow(func(row pgx.Row) error {
		return row.Scan(&d.Claimable, &d.Later, &d.Locked, &d.OtherMode)
	})
	b.Queue(onHoldSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&d.OnHold) })
	b.Queue(pendingSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&d.Pending, &d.Rejected) })
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return DispatchStatus{}, fmt.Errorf("read the status of dispatches: %w", err)
	}
	if err := s.Ready(ctx); err != nil {
		d.Fault = err.Error()
	}
	return d, nil
}
