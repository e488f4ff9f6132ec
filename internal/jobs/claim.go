package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// claimTimeout bounds one claim statement: it does not run in the context of one caller,
// since its jobs may be several callers'.
const claimTimeout = 15 * time.Second

const (
	// pickSQL picks jobs by priority, and within one by type and age. Each type and
	// priority is a range of the index of claimable jobs that is read from its beginning,
	// one after the other and only until there are enough, so nothing is locked that is not
	// taken. Types that have limits are left to pickLimitedSQL.
	pickSQL = `
	WITH picked AS MATERIALIZED (
		SELECT j.id
		FROM (
			SELECT t.type, p.priority
			FROM generate_series(5, 1, -1) AS p(priority) CROSS JOIN unnest($1::text[]) WITH ORDINALITY AS t(type, place)
			WHERE NOT EXISTS (SELECT FROM wf_job_types l WHERE l.job_type = t.type)
			ORDER BY p.priority DESC, t.place
		) AS q, LATERAL (
			SELECT id FROM jobs
			WHERE job_type = q.type AND priority = q.priority AND status = 'UNLOCKED' AND NOT on_hold AND run_at <= statement_timestamp()
			ORDER BY run_at, id LIMIT $2::integer FOR UPDATE SKIP LOCKED
		) AS j LIMIT $2::integer
	)`

	// pickLimitedSQL picks jobs of types that have limits, as many of each as there is room
	// for, and takes them off the bucket of the type. The transaction has locked the limits
	// before, so the count is that after the last claim.
	pickLimitedSQL = `
	WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
	filled AS MATERIALIZED (
		SELECT l.job_type, l.max_running, l.rate, coalesce(least(l.burst,
			coalesce(l.tokens, l.burst) + l.rate * extract(epoch FROM clock.now - coalesce(l.refilled_at, clock.now))), 'infinity') AS tokens
		FROM wf_job_types l, clock WHERE l.job_type = ANY($1)
	), room AS MATERIALIZED (
		SELECT t.type, greatest(0, least($2, floor(f.tokens), f.max_running - (
			SELECT count(*) FROM jobs r WHERE r.job_type = t.type AND r.status = 'LOCKED' AND r.limited)))::integer AS room
		FROM unnest($1::text[]) WITH ORDINALITY AS t(type, place) LEFT JOIN filled f ON f.job_type = t.type
		ORDER BY t.place
	), picked AS MATERIALIZED (
		SELECT j.id, room.type
		FROM room, LATERAL (
			SELECT d.id FROM generate_series(5, 1, -1) AS p(priority), LATERAL (
				SELECT id FROM jobs
				WHERE job_type = room.type AND priority = p.priority AND status = 'UNLOCKED' AND NOT on_hold AND run_at <= statement_timestamp()
				ORDER BY run_at, id LIMIT room.room FOR UPDATE SKIP LOCKED
			) AS d LIMIT room.room
		) AS j LIMIT $2::integer
	), spent AS (
		UPDATE wf_job_types l SET tokens = filled.tokens - taken.n, refilled_at = clock.now
		FROM (SELECT type, count(*) AS n FROM picked GROUP BY type) AS taken, filled, clock
		WHERE l.job_type = taken.type AND filled.job_type = taken.type AND l.rate IS NOT NULL
	)`

	// takeSQL gives what was picked to workers, one slot each, takeToSendSQL to the outbox.
	takeSQL = `
	UPDATE jobs SET status = 'LOCKED', token = token + 1, worker_id = ($3::text[])[u.n], locked_at = clock_timestamp(),
		lock_expires_at = clock_timestamp() + ($4::integer[])[u.n] * interval '1 millisecond', lease_ms = ($4::integer[])[u.n],
		dispatch_id = NULL, limited = `
	takeToSendSQL = `
	UPDATE jobs SET status = 'LOCKED', token = token + 1, worker_id = NULL, locked_at = now(),
		lock_expires_at = NULL, lease_ms = ($4::integer[])[u.n], dispatch_id = ($3::uuid[])[u.n], limited = `
	takenSQL = `
	FROM unnest(ARRAY(SELECT id FROM picked)) WITH ORDINALITY AS u(id, n)
	WHERE jobs.id = u.id
	RETURNING u.n, jobs.id, job_type, instance_id, activity, step, step_id, priority, attempt, retries_remaining, token, expired,
		coalesce(worker_id, ''), locked_at, lock_expires_at, created_at, coalesce(input, (SELECT i.variables FROM wf_instances i WHERE i.id = jobs.instance_id))`

	claimSQL        = pickSQL + takeSQL + `false` + takenSQL
	claimLimitedSQL = pickLimitedSQL + takeSQL + `true` + takenSQL
	sendSQL         = pickSQL + takeToSendSQL + `false` + takenSQL
	sendLimitedSQL  = pickLimitedSQL + takeToSendSQL + `true` + takenSQL

	// lockLimitsSQL keeps others from claiming under the same limits.
	lockLimitsSQL = `SELECT 1 FROM wf_job_types WHERE job_type = ANY($1) ORDER BY job_type FOR UPDATE`

	// refillSQL tells in how many seconds the first of some buckets has a token.
	refillSQL = `
	SELECT coalesce(min((1 - tokens) / rate - extract(epoch FROM clock_timestamp() - refilled_at)), 0)::float8
	FROM wf_job_types WHERE job_type = ANY($1) AND rate IS NOT NULL AND tokens IS NOT NULL`

	// claimableSQL says whether there is something that could have been claimed.
	claimableSQL = `
	SELECT EXISTS (SELECT FROM unnest($1::text[]) AS t(type) WHERE EXISTS (
		SELECT FROM jobs WHERE job_type = t.type AND status = 'UNLOCKED' AND NOT on_hold AND run_at <= statement_timestamp()))`
)

// Claim takes jobs under a lease: by priority, and within one by type and age. When there
// is nothing it waits as long as the request says and returns none then. Requests of this
// process for the same types share statements. Waiting requests are served in the order
// in which they came.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) ([]Job, error) {
	if s.mode != Polling {
		return nil, ErrPollingOff
	}
	if err := s.check(&r); err != nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list, err := s.hub.claim(ctx, r)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	return list, err
}

// check fills in defaults and says what is wrong with a request.
func (s *Store) check(r *ClaimRequest) error {
	if r.WorkerID == "" {
		return fmt.Errorf("%w: a claim needs the id of its worker", ErrInvalid)
	}
	if len(r.WorkerID) > 256 {
		return fmt.Errorf("%w: the id of a worker has at most 256 bytes", ErrInvalid)
	}
	types := slices.Clone(r.Types)
	slices.Sort(types)
	r.Types = slices.Compact(types)
	if len(r.Types) == 0 || len(r.Types) > MaxTypes || r.Types[0] == "" {
		return fmt.Errorf("%w: a claim names 1 to %d job types", ErrInvalid, MaxTypes)
	}
	if strings.ContainsRune(r.WorkerID+strings.Join(r.Types, ""), 0) {
		return fmt.Errorf("%w: names have no zero bytes", ErrInvalid)
	}
	if r.Max < 1 || r.Max > MaxJobs {
		return fmt.Errorf("%w: a claim is for 1 to %d jobs, not %d", ErrInvalid, MaxJobs, r.Max)
	}
	if r.Lease == 0 {
		r.Lease = s.lease
	}
	if r.Lease < LeaseMin || r.Lease > LeaseMax {
		return fmt.Errorf("%w: a lease lasts from %s to %s, not %s", ErrInvalid, LeaseMin, LeaseMax, r.Lease)
	}
	if r.Wait < 0 || r.Wait > WaitMax {
		return fmt.Errorf("%w: a claim waits for at most %s, not %s", ErrInvalid, WaitMax, r.Wait)
	}
	return nil
}

// taken is a job that a statement gave to one of its slots.
type taken struct {
	Job
	slot    int
	expired int
}

// outcome is what a claim has led to.
type outcome struct {
	jobs []taken
	// contended: there was something, but others had it locked.
	contended bool
	// limited: some of the types have limits.
	limited bool
	// again, when it is not 0, is when a limit lets something through.
	again time.Duration
}

// take claims for workers, one slot each. The order of types is the order in which they
// are looked at.
func (s *Store) take(types []string, workers []string, leases []int32) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	free, limited := s.limits.split(ctx, types)
	o := outcome{limited: len(limited) > 0}
	if len(free) > 0 {
		list, err := claim(ctx, s.pool, claimSQL, free, workers, leases)
		if err != nil {
			return outcome{}, err
		}
		o.jobs = list
	}
	if n := len(o.jobs); len(limited) > 0 && n < len(workers) {
		list, again, err := claimLimited(ctx, s.pool, claimLimitedSQL, limited, workers[n:], leases[n:])
		if err != nil && n == 0 {
			return outcome{}, err
		}
		for _, j := range list {
			j.slot += n
			o.jobs = append(o.jobs, j)
		}
		o.again = again
	}
	if len(o.jobs) == 0 && len(free) > 0 {
		if err := s.pool.QueryRow(ctx, claimableSQL, free).Scan(&o.contended); err != nil {
			return outcome{}, err
		}
	}
	return o, nil
}

// batcher sends several statements at once: in one transaction, unless told otherwise.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

var _ batcher = (*pgxpool.Pool)(nil)

func claim[H any](ctx context.Context, db batcher, sql string, types []string, holders []H, leases []int32) ([]taken, error) {
	var b pgx.Batch
	var list []taken
	b.Queue(PlanSQL)
	queueTake(&b, sql, types, holders, leases, &list)
	return list, closed(db.SendBatch(ctx, &b))
}

// claimLimited is claim for types that have limits.
func claimLimited[H any](ctx context.Context, db batcher, sql string, types []string, holders []H, leases []int32) ([]taken, time.Duration, error) {
	var b pgx.Batch
	var list []taken
	var again float64
	b.Queue(PlanSQL)
	b.Queue(lockLimitsSQL, types)
	queueTake(&b, sql, types, holders, leases, &list)
	b.Queue(refillSQL, types).QueryRow(func(row pgx.Row) error { return row.Scan(&again) })
	err := closed(db.SendBatch(ctx, &b))
	return list, time.Duration(again * float64(time.Second)), err
}

func queueTake[H any](b *pgx.Batch, sql string, types []string, holders []H, leases []int32, list *[]taken) {
	b.Queue(sql, types, len(holders), holders, leases).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			t, err := scanTaken(rows)
			if err != nil {
				return err
			}
			*list = append(*list, t)
		}
		slices.SortFunc(*list, func(a, b taken) int { return a.slot - b.slot })
		return rows.Err()
	})
}

func scanTaken(rows pgx.Rows) (taken, error) {
	var t taken
	var ends *time.Time
	var variables []byte
	err := rows.Scan(&t.slot, &t.ID, &t.JobType, &t.InstanceID, &t.Activity, &t.Step, &t.StepID, &t.Priority, &t.Attempt,
		&t.RetriesRemaining, &t.Token, &t.expired, &t.WorkerID, &t.LockedAt, &ends, &t.CreatedAt, &variables)
	t.slot--
	t.Status, t.LockExpiresAt, t.Variables = Locked, timeOf(ends), json.RawMessage(variables)
	if t.Variables == nil {
		t.Variables = json.RawMessage("{}")
	}
	return t, err
}

// closed runs the callbacks of a batch and returns what went wrong first.
func closed(results pgx.BatchResults) error {
	err := results.Close()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Detail != "" {
		return fmt.Errorf("%w (%s)", err, pg.Detail)
	}
	return err
}
