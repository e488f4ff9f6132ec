package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

const (
	// dispatchPoll is how often jobs are looked for that became due, sendBatch how many
	// are put into the outbox at once.
	dispatchPoll = 250 * time.Millisecond
	sendBatch    = 500
	// leasePoll is how often it is looked which records were published, leaseBatch how many
	// of them at once. Leases begin at the time of publication all the same.
	leasePoll  = time.Second
	leaseBatch = 500
	// backlogEvery is how often what waits to be published is counted, up to backlogMax.
	backlogEvery = 5 * time.Second
	backlogMax   = 100_000
	// voidAfter is how old a dispatch must be to be voided while jobs are polled, after the
	// first time: a process that still dispatches may just have written it.
	voidAfter = 10 * time.Second
)

// kafkaDispatcher brings jobs to workers over Kafka.
type kafkaDispatcher struct {
	lease  time.Duration
	topics *topicKeeper
}

func (*kafkaDispatcher) Mode() Mode { return KafkaOutbox }

func (d *kafkaDispatcher) dispatch(r ready) (uuid.UUID, outbox.Entry, bool, error) {
	if !d.topics.has(r.jobType) {
		return uuid.UUID{}, outbox.Entry{}, false, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.UUID{}, outbox.Entry{}, false, err
	}
	return id, entryOf(r, id), true, nil
}

// Dispatches sees to the dispatches that do not happen within the transaction of their
// job. Any number may run.
//
// Where jobs go over Kafka, it puts into the outbox what became due, or whose topic was
// not there, or which a limit held back, or which polling has left. Where they are
// polled, it voids dispatches that were not published, so that their jobs can be claimed.
// In both modes the leases of what was published begin.
type Dispatches struct {
	store *Store
	log   *slog.Logger
	// after is the dispatch behind which the next look begins, voidOlder how old a
	// dispatch is that is voided.
	after     uuid.UUID
	voidOlder time.Duration
}

// NewDispatches returns what Run runs.
func NewDispatches(s *Store) *Dispatches { return &Dispatches{store: s, log: s.log} }

// Run works until ctx ends, and returns nil then.
func (d *Dispatches) Run(ctx context.Context) error {
	wakes, stop := d.store.signals.Subscribe(wakeDispatch)
	defer stop()
	d.attempt(ctx, "adopt", d.adopt)
	send, leases, backlog := time.NewTicker(dispatchPoll), time.NewTicker(leasePoll), time.NewTicker(backlogEvery)
	defer send.Stop()
	defer leases.Stop()
	defer backlog.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-leases.C:
			d.attempt(ctx, "begin leases", d.settleAll)
			continue
		case <-backlog.C:
			d.attempt(ctx, "count the backlog", d.Backlog)
			continue
		case <-wakes:
		case <-send.C:
		}
		if d.store.mode == KafkaOutbox {
			d.attempt(ctx, "send", d.sendAll)
		}
	}
}

func (d *Dispatches) attempt(ctx context.Context, what string, fn func(context.Context) error) {
	if err := fn(ctx); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "dispatches of jobs are behind, this will be repeated", "step", what, "error", err)
	}
}

// adopt takes over what the other mode has left, once at the start.
func (d *Dispatches) adopt(ctx context.Context) error {
	if err := d.settleAll(ctx); err != nil {
		return err
	}
	d.voidOlder = voidAfter
	if d.store.mode != KafkaOutbox {
		return nil
	}
	return d.sendAll(ctx)
}

const backlogSQL = `SELECT count(*) FROM (SELECT FROM dispatch_outbox LIMIT $1) AS waiting`

// Backlog tells the metrics how many records wait to be published.
func (d *Dispatches) Backlog(ctx context.Context) error {
	var n float64
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(backlogSQL, backlogMax).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	if err := d.store.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("count dispatches: %w", err)
	}
	d.store.metrics.backlog.Set(n)
	return nil
}

// claimableTypesSQL finds the types of which something waits, one look-up for each.
const claimableTypesSQL = `
	WITH RECURSIVE found AS (
		(SELECT job_type FROM jobs WHERE status = 'UNLOCKED' AND NOT on_hold ORDER BY job_type LIMIT 1)
		UNION ALL
		SELECT (SELECT j.job_type FROM jobs j WHERE j.status = 'UNLOCKED' AND NOT j.on_hold AND j.job_type > f.job_type ORDER BY j.job_type LIMIT 1)
		FROM found f WHERE f.job_type IS NOT NULL
	)
	SELECT job_type FROM found WHERE job_type IS NOT NULL`

// sendAll puts everything into the outbox that may go there now.
func (d *Dispatches) sendAll(ctx context.Context) error {
	types, err := d.claimableTypes(ctx)
	if err != nil {
		return err
	}
	ready := types[:0]
	for _, t := range types {
		if d.store.topics.has(t) {
			ready = append(ready, t)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	free, limited := d.store.limits.split(ctx, ready)
	for _, part := range []struct {
		types []string
		sql   string
	}{{free, sendSQL}, {limited, sendLimitedSQL}} {
		for len(part.types) > 0 {
			n, err := d.send(ctx, part.sql, part.types)
			if err != nil {
				return err
			}
			if n < sendBatch {
				break
			}
		}
	}
	return nil
}

func (d *Dispatches) claimableTypes(ctx context.Context) ([]string, error) {
	var types []string
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(claimableTypesSQL).Query(func(rows pgx.Rows) (err error) {
		types, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return types, d.store.pool.SendBatch(ctx, &b).Close()
}

// send puts up to sendBatch jobs into the outbox, in one transaction.
func (d *Dispatches) send(ctx context.Context, sql string, types []string) (int, error) {
	ids, leases := make([]uuid.UUID, sendBatch), make([]int32, sendBatch)
	for i := range ids {
		var err error
		if ids[i], err = uuid.NewV7(); err != nil {
			return 0, err
		}
		leases[i] = int32(d.store.lease.Milliseconds())
	}
	var list []taken
	err := postgres.InTx(ctx, d.store.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if sql == sendLimitedSQL {
			list, _, err = claimLimited(ctx, tx, sql, types, ids, leases)
		} else {
			list, err = claim(ctx, tx, sql, types, ids, leases)
		}
		if err != nil || len(list) == 0 {
			return err
		}
		entries := make([]outbox.Entry, len(list))
		for i, j := range list {
			entries[i] = entryOf(ready{
				id: j.ID, instance: j.InstanceID, step: j.Step, stepID: j.StepID, jobType: j.JobType, priority: j.Priority,
				attempt: j.Attempt, retries: j.RetriesRemaining,
				token: j.Token, created: j.CreatedAt, payload: j.Variables,
			}, ids[j.slot])
		}
		return outbox.LockAndAppend(ctx, tx, entries...)
	})
	if err != nil {
		return 0, fmt.Errorf("dispatch jobs: %w", err)
	}
	if len(list) > 0 {
		d.store.metrics.dispatched.Add(float64(len(list)))
		d.store.wakeRelay()
	}
	return len(list), nil
}

// fate is what became of the record of a dispatch.
type fate struct {
	job, dispatch uuid.UUID
	// ends is when the lease ends, once the record is published.
	ends *time.Time
	// lost is true when there will be no record: the row was skipped, or is gone.
	lost bool
	// old is true when it was dispatched long ago, failed when the broker rejects it.
	old, failed bool
}

// fatesSQL reads what became of dispatches whose leases have not begun, in their order.
// What was dispatched just now is left out: it is probably done before that matters.
const fatesSQL = `
	SELECT j.id, j.dispatch_id, CASE WHEN o.status = 'PUBLISHED' THEN o.published_at + j.lease_ms * interval '1 millisecond' END,
		coalesce(o.status = 'SKIPPED', j.locked_at < now() - interval '2 days'),
		j.locked_at < now() - $3::float8 * interval '1 second', coalesce(o.status = 'FAILED', false)
	FROM (
		SELECT id, dispatch_id, locked_at, lease_ms FROM jobs
		WHERE status = 'LOCKED' AND lock_expires_at IS NULL AND dispatch_id > $1
			AND locked_at < now() - least($3::float8, 0.3) * interval '1 second'
		ORDER BY dispatch_id LIMIT $2
	) AS j
	LEFT JOIN LATERAL (
		SELECT status, published_at FROM outbox_events o
		WHERE o.id = j.dispatch_id AND o.aggregate_type = 'job'
			AND o.created_at >= j.locked_at - interval '1 hour' AND o.created_at < j.locked_at + interval '1 day'
		LIMIT 1
	) AS o ON true
	ORDER BY j.dispatch_id`

// settleAll looks at all dispatches whose leases have not begun, in pages. When a whole
// page brings nothing, so would probably the next: it goes on there the next time.
func (d *Dispatches) settleAll(ctx context.Context) error {
	for {
		page, err := d.fates(ctx)
		if err != nil {
			return err
		}
		changed, err := d.settle(ctx, page)
		if err != nil {
			return err
		}
		if len(page) < leaseBatch {
			d.after = uuid.UUID{}
			return nil
		}
		d.after = page[len(page)-1].dispatch
		if changed == 0 && (d.voidOlder > 0 || d.store.mode == KafkaOutbox) {
			return nil
		}
	}
}

func (d *Dispatches) fates(ctx context.Context) ([]fate, error) {
	var page []fate
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(fatesSQL, d.after, leaseBatch, d.voidOlder.Seconds()).Query(func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f fate, err error) {
			err = row.Scan(&f.job, &f.dispatch, &f.ends, &f.lost, &f.old, &f.failed)
			return f, err
		})
		return err
	})
	if err := d.store.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read what became of dispatches: %w", err)
	}
	return page, nil
}

const (
	// beginSQL begins leases, or ends those of dispatches without a record, so that the
	// sweep finds them.
	beginSQL = `
	WITH begun AS (SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS u(id, dispatch, ends)),
	mine AS MATERIALIZED (
		SELECT j.id, b.ends FROM begun b JOIN jobs j ON j.id = b.id
		WHERE j.status = 'LOCKED' AND j.lock_expires_at IS NULL AND j.dispatch_id = b.dispatch
		FOR UPDATE OF j SKIP LOCKED
	)
	UPDATE jobs SET lock_expires_at = coalesce(m.ends, clock_timestamp()) FROM mine m WHERE jobs.id = m.id`

	// voidSQL takes dispatches back: first the jobs, then their rows, as far as they are not
	// published. A record that is on its way to the broker all the same finds its job
	// claimed by others, or belongs to nobody until then: reports of it are judged as ever.
	voidSQL = `
	WITH void AS (SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS u(id, dispatch)),
	mine AS MATERIALIZED (
		SELECT j.id, j.dispatch_id, j.locked_at FROM void v JOIN jobs j ON j.id = v.id
		WHERE j.status = 'LOCKED' AND j.lock_expires_at IS NULL AND j.dispatch_id = v.dispatch
		FOR UPDATE OF j SKIP LOCKED
	), skipped AS (
		UPDATE outbox_events o SET status = 'SKIPPED', last_error = 'jobs are polled'
		FROM mine m
		WHERE o.id = m.dispatch_id AND o.aggregate_type = 'job' AND o.status IN ('PENDING', 'FAILED')
			AND o.created_at >= m.locked_at - interval '1 hour' AND o.created_at < m.locked_at + interval '1 day'
		RETURNING o.id
	)
	UPDATE jobs SET status = 'UNLOCKED', dispatch_id = NULL, worker_id = NULL, limited = false
	FROM mine m JOIN skipped s ON s.id = m.dispatch_id WHERE jobs.id = m.id
	RETURNING jobs.job_type`
)

// settle writes what a page of fates means, and returns how many jobs that changed.
func (d *Dispatches) settle(ctx context.Context, page []fate) (int64, error) {
	var jobs, dispatches, voidJobs, voidDispatches []uuid.UUID
	var ends []*time.Time
	for _, f := range page {
		switch {
		case f.ends != nil || f.lost:
			jobs, dispatches, ends = append(jobs, f.job), append(dispatches, f.dispatch), append(ends, f.ends)
		case f.old && d.store.mode == Polling:
			voidJobs, voidDispatches = append(voidJobs, f.job), append(voidDispatches, f.dispatch)
		}
	}
	var changed int64
	var types []string
	var b pgx.Batch
	b.Queue(PlanSQL)
	if len(jobs) > 0 {
		b.Queue(beginSQL, jobs, dispatches, ends)
	}
	if len(voidJobs) > 0 {
		b.Queue(voidSQL, voidJobs, voidDispatches).Query(func(rows pgx.Rows) (err error) {
			types, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	}
	if b.Len() == 1 {
		return 0, nil
	}
	if err := d.store.pool.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("settle dispatches: %w", err)
	}
	changed = int64(len(jobs) + len(types))
	if len(types) > 0 {
		d.log.InfoContext(ctx, "dispatches that were not published are void, their jobs can be claimed", "jobs", len(types))
		d.store.signals.Wake(outbox.ResolvedName)
		d.store.Woken(types)
	}
	return changed, nil
}
