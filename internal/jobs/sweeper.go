package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// sweepBatch is how many expired leases are handed over at once.
	sweepBatch = 256
	// sweepPoll is how long the sweeper waits at most: leases that other processes have
	// granted since may end sooner than what it knows of.
	sweepPoll = time.Second
)

// Sweeper finds leases that have run out and hands them to a Reporter. Any number may
// run: what two of them find is judged under the lock of the job, and the second finds
// nothing to do. One that is killed has written nothing; the next finds the same.
type Sweeper struct {
	store    *Store
	reporter Reporter
	log      *slog.Logger
}

// NewSweeper returns a sweeper.
func NewSweeper(s *Store, r Reporter) *Sweeper { return &Sweeper{store: s, reporter: r, log: s.log} }

// Run sweeps until ctx ends, and returns nil then. It wakes when the next lease ends.
func (w *Sweeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next, err := w.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "leases of jobs could not be swept, this will be repeated", "error", err)
			next = sweepPoll
		}
		timer.Reset(next)
	}
}

// place is where a sweep has come to: leases in the order of their ends.
type place struct {
	ends time.Time
	id   uuid.UUID
}

const (
	expiredSQL = `
	SELECT id, instance_id, activity, job_type, token, expired + 1, coalesce(worker_id, ''), lock_expires_at
	FROM jobs
	WHERE status = 'LOCKED' AND lock_expires_at <= statement_timestamp() AND lock_expires_at >= $1 AND (lock_expires_at, id) > ($1, $2)
	ORDER BY lock_expires_at, id LIMIT $3`

	nextExpirySQL = `
	SELECT extract(epoch FROM lock_expires_at - clock_timestamp())::float8
	FROM jobs WHERE status = 'LOCKED' AND lock_expires_at > statement_timestamp() ORDER BY lock_expires_at LIMIT 1`
)

// Sweep hands over all leases that have run out, and returns how long to wait until the
// next one does, at most a second.
func (w *Sweeper) Sweep(ctx context.Context) (time.Duration, error) {
	var from place
	var failed error
	for {
		list, last, err := w.expired(ctx, from)
		if err != nil {
			return 0, err
		}
		if len(list) > 0 {
			// What cannot be handed over does not keep what comes behind it.
			if err := w.reporter.JobsExpired(ctx, list); err != nil {
				failed = fmt.Errorf("hand over %d expired leases: %w", len(list), err)
			} else {
				w.count(list)
			}
		}
		if len(list) < sweepBatch {
			break
		}
		from = last
	}
	if failed != nil {
		return 0, failed
	}
	return w.next(ctx)
}

func (w *Sweeper) expired(ctx context.Context, from place) ([]Expired, place, error) {
	var list []Expired
	last := from
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(expiredSQL, from.ends, from.id, sweepBatch).Query(func(rows pgx.Rows) error {
		var e Expired
		_, err := pgx.ForEachRow(rows, []any{&e.JobID, &e.InstanceID, &e.Activity, &e.JobType, &e.Token, &e.Expired, &e.WorkerID, &last.ends}, func() error {
			e.Quarantine = e.Expired > MaxExpired
			last.id = e.JobID
			list = append(list, e)
			return nil
		})
		return err
	})
	if err := w.store.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, place{}, fmt.Errorf("read expired leases: %w", err)
	}
	return list, last, nil
}

func (w *Sweeper) count(list []Expired) {
	w.store.metrics.expired.Add(float64(len(list)))
	for _, e := range list {
		if e.Quarantine {
			w.store.metrics.quarantined.Inc()
		}
	}
}

// next returns how long it is until a lease ends.
func (w *Sweeper) next(ctx context.Context) (time.Duration, error) {
	wait := sweepPoll
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(nextExpirySQL).Query(func(rows pgx.Rows) error {
		var seconds float64
		_, err := pgx.ForEachRow(rows, []any{&seconds}, func() error {
			wait = min(wait, max(0, time.Duration(seconds*float64(time.Second)))+time.Millisecond)
			return nil
		})
		return err
	})
	if err := w.store.pool.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("read the next end of a lease: %w", err)
	}
	return wait, nil
}
