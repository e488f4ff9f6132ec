package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/outbox"
)

// ready is a job that may run now: what a dispatcher needs of it.
type ready struct {
	id, instance     uuid.UUID
	step             int
	stepID, jobType  string
	priority         int
	attempt, retries int
	token            int64
	created          time.Time
	payload          json.RawMessage
}

// Dispatcher brings jobs to workers.
type Dispatcher interface {
	// Mode says how.
	Mode() Mode
	// dispatch returns the entry of the outbox that takes a job to workers, and its id.
	// Without one, the job waits to be claimed.
	dispatch(r ready) (id uuid.UUID, e outbox.Entry, ok bool, err error)
}

// pollingDispatcher lets workers come for their jobs.
type pollingDispatcher struct{}

func (pollingDispatcher) Mode() Mode { return Polling }

func (pollingDispatcher) dispatch(ready) (uuid.UUID, outbox.Entry, bool, error) {
	return uuid.UUID{}, outbox.Entry{}, false, nil
}

const (
	// insertSQL puts jobs up; those with a dispatch are locked until they come back.
	insertSQL = `
	INSERT INTO jobs (id, instance_id, activity, step, step_id, job_type, status, priority, run_at, attempt, retries_remaining,
		token, locked_at, lease_ms, input, dispatch_id)
	SELECT id, instance_id, activity, step, step_id, job_type, CASE WHEN dispatch_id IS NULL THEN 'UNLOCKED' ELSE 'LOCKED' END, priority,
		coalesce(run_at, clock_timestamp()), attempt, retries, (dispatch_id IS NOT NULL)::integer,
		CASE WHEN dispatch_id IS NOT NULL THEN now() END, CASE WHEN dispatch_id IS NOT NULL THEN $13::integer END, input, dispatch_id
	FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::smallint[], $8::timestamptz[],
		$9::integer[], $10::integer[], $11::json[], $12::uuid[])
		AS u(id, instance_id, activity, step, step_id, job_type, priority, run_at, attempt, retries, input, dispatch_id)`

	// againSQL puts jobs up once more. Who held it last is kept, since an expired holder
	// may still complete it; what goes over Kafka belongs to nobody. One that was finished
	// failed while its instance was suspended, and only now it shows that another attempt
	// follows.
	againSQL = `
	UPDATE jobs SET status = CASE WHEN u.dispatch_id IS NULL THEN 'UNLOCKED' ELSE 'LOCKED' END,
		attempt = u.attempt, retries_remaining = u.retries, run_at = coalesce(u.run_at, clock_timestamp()),
		expired = CASE WHEN u.expired THEN jobs.expired + 1 ELSE 0 END,
		token = jobs.token + (u.dispatch_id IS NOT NULL)::integer,
		worker_id = CASE WHEN u.dispatch_id IS NULL THEN jobs.worker_id END,
		locked_at = CASE WHEN u.dispatch_id IS NULL THEN jobs.locked_at ELSE now() END,
		lease_ms = CASE WHEN u.dispatch_id IS NULL THEN jobs.lease_ms ELSE $8::integer END,
		lock_expires_at = NULL, finished_at = NULL, limited = false, dispatch_id = u.dispatch_id, input = coalesce(u.input, jobs.input)
	FROM unnest($1::uuid[], $2::integer[], $3::integer[], $4::timestamptz[], $5::boolean[], $6::json[], $7::uuid[])
		AS u(id, attempt, retries, run_at, expired, input, dispatch_id)
	WHERE jobs.id = u.id`

	finishSQL = `
	UPDATE jobs SET status = u.status, worker_id = coalesce(nullif(u.worker, ''), jobs.worker_id), finished_at = clock_timestamp()
	FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u(id, status, worker)
	WHERE jobs.id = u.id`

	cancelSQL = `
	UPDATE jobs SET status = 'CANCELLED', finished_at = clock_timestamp()
	WHERE id = ANY($1) AND status IN ('UNLOCKED', 'LOCKED')`

	holdSQL = `UPDATE jobs SET on_hold = $2 WHERE id = ANY($1) AND status IN ('UNLOCKED', 'LOCKED') AND on_hold <> $2`

	// releaseSQL also says what may be claimed now.
	releaseSQL = holdSQL + ` RETURNING job_type`
)

// Queue queues the statements of writes. What it returns is for the same transaction,
// and for afterwards.
func (s *Store) Queue(b *pgx.Batch, w Writes) (Queued, error) {
	var q Queued
	if err := s.queueInsert(b, w, &q); err != nil {
		s.Abandoned(q)
		return Queued{}, err
	}
	if err := s.queueAgain(b, w.Again, &q); err != nil {
		s.Abandoned(q)
		return Queued{}, err
	}
	s.queueFinish(b, w.Finish, &q)
	if len(w.Cancel) > 0 {
		b.Queue(cancelSQL, w.Cancel)
	}
	if len(w.Hold) > 0 {
		b.Queue(holdSQL, w.Hold, true)
	}
	if len(w.Release) > 0 {
		b.Queue(releaseSQL, w.Release, false).Query(s.wakeReleased)
	}
	return q, nil
}

// wakeReleased has those look who wait for what a resumed instance offers. They may look
// before the commit; their poll finds what they missed then.
func (s *Store) wakeReleased(rows pgx.Rows) error {
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, t := range types {
		s.hub.dueAt(t, time.Now().Add(releasedAfter))
	}
	return err
}

// releasedAfter is about how long a transaction takes to commit.
const releasedAfter = 10 * time.Millisecond

// offer dispatches a job that may run now, or notes that it can be claimed.
func (s *Store) offer(r ready, runAt time.Time, q *Queued) (uuid.NullUUID, error) {
	if runAt.After(time.Now()) {
		s.hub.dueAt(r.jobType, runAt)
		return uuid.NullUUID{}, nil
	}
	if s.limits.mayLimit(r.jobType) {
		// Whoever claims or dispatches under the limit counts.
		q.Types = append(q.Types, r.jobType)
		return uuid.NullUUID{}, nil
	}
	id, entry, ok, err := s.dispatcher.dispatch(r)
	if err != nil {
		return uuid.NullUUID{}, fmt.Errorf("dispatch job %s: %w", r.id, err)
	}
	if !ok {
		q.Types = append(q.Types, r.jobType)
		return uuid.NullUUID{}, nil
	}
	q.Entries = append(q.Entries, entry)
	return uuid.NullUUID{UUID: id, Valid: true}, nil
}

func (s *Store) queueInsert(b *pgx.Batch, writes Writes, q *Queued) error {
	n := len(writes.Insert)
	if n == 0 {
		return nil
	}
	ids, instances, dispatches := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.NullUUID, n)
	activities, steps, attempts, retries := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	stepIDs, types, priorities := make([]string, n), make([]string, n), make([]int16, n)
	runs, inputs := make([]*time.Time, n), make([][]byte, n)
	workers, leases := make([]*string, n), make([]int32, n)
	for i, j := range writes.Insert {
		id := ID(j.InstanceID, j.Activity)
		payload := j.Variables
		if j.Input != nil {
			payload = j.Input
		}
		if w, ok := s.hand(j, id, writes, q); ok {
			workers[i], leases[i] = &w.request.WorkerID, int32(w.request.Lease.Milliseconds())
		} else {
			dispatch, err := s.offer(ready{
				id: id, instance: j.InstanceID, step: j.Step, stepID: j.StepID, jobType: j.JobType, priority: j.Priority,
				attempt: j.Attempt, retries: j.RetriesRemaining,
				token: 1, created: time.Now(), payload: payload,
			}, j.RunAt, q)
			if err != nil {
				return err
			}
			dispatches[i] = dispatch
		}
		ids[i], instances[i] = id, j.InstanceID
		activities[i], steps[i], attempts[i], retries[i] = int32(j.Activity), int32(j.Step), int32(j.Attempt), int32(j.RetriesRemaining)
		stepIDs[i], types[i], priorities[i] = j.StepID, j.JobType, int16(j.Priority)
		runs[i], inputs[i] = timeOrNil(j.RunAt), j.Input
	}
	q.inserted = ids
	args := []any{
		ids, instances, activities, steps, stepIDs, types, priorities, column(runs, isTime), attempts, retries, column(inputs, isText),
	}
	if q.handing != nil {
		b.Queue(genericSQL)
		b.Queue(insertHandedSQL, append(args, workers, leases)...).Query(q.handing.read)
		return nil
	}
	b.Queue(insertSQL, append(args, column(dispatches, isID), s.lease.Milliseconds())...)
	return nil
}

// column is an array for unnest, or none when all of it is null, which comes to the same and
// costs nothing.
func column[T any](values []T, set func(T) bool) []T {
	if slices.ContainsFunc(values, set) {
		return values
	}
	return nil
}

func isTime(t *time.Time) bool   { return t != nil }
func isText(b []byte) bool       { return b != nil }
func isID(id uuid.NullUUID) bool { return id.Valid }

// hand gives a job that begins to a claim that waits for it, if there is one and nothing
// speaks against it.
func (s *Store) hand(j New, id uuid.UUID, writes Writes, q *Queued) (*waiter, bool) {
	if !writes.Handing || s.mode != Polling || j.RunAt.After(time.Now()) || s.limits.mayLimit(j.JobType) ||
		slices.Contains(writes.Cancel, id) || slices.Contains(writes.Hold, id) {
		return nil, false
	}
	g := q.handing
	if g == nil {
		g = &handing{hub: s.hub, room: make(map[*waiter]int), handed: make(map[uuid.UUID]*handed)}
	}
	w, ok := g.hand(j, id)
	if ok {
		q.handing = g
	}
	return w, ok
}

func (s *Store) queueAgain(b *pgx.Batch, list []Again, q *Queued) error {
	if len(list) == 0 {
		return nil
	}
	n := len(list)
	ids, dispatches, attempts, retries := make([]uuid.UUID, n), make([]uuid.NullUUID, n), make([]int32, n), make([]int32, n)
	runs, expired, inputs := make([]*time.Time, n), make([]bool, n), make([][]byte, n)
	for i, a := range list {
		payload := a.Variables
		switch {
		case a.Input != nil:
			payload = a.Input
		case a.Held.Input != nil:
			payload = a.Held.Input
		}
		r := ready{
			id: a.Held.ID, instance: a.Held.InstanceID, step: a.Held.Step, stepID: a.Held.StepID, jobType: a.Held.JobType,
			priority: a.Held.Priority, attempt: a.Attempt,
			retries: a.RetriesRemaining, token: a.Held.Token + 1, created: a.Held.CreatedAt, payload: payload,
		}
		if !a.Held.OnHold {
			var err error
			if dispatches[i], err = s.offer(r, a.RunAt, q); err != nil {
				return err
			}
		}
		ids[i], attempts[i], retries[i] = a.Held.ID, int32(a.Attempt), int32(a.RetriesRemaining)
		runs[i], expired[i], inputs[i] = timeOrNil(a.RunAt), a.Expired, a.Input
		if !a.Expired {
			s.metrics.retries.Inc()
		}
	}
	b.Queue(againSQL, ids, attempts, retries, column(runs, isTime), expired, column(inputs, isText), column(dispatches, isID), s.lease.Milliseconds())
	return nil
}

func (s *Store) queueFinish(b *pgx.Batch, list []Finished, q *Queued) {
	if len(list) == 0 {
		return
	}
	ids, statuses, workers := make([]uuid.UUID, len(list)), make([]string, len(list)), make([]string, len(list))
	for i, f := range list {
		ids[i], statuses[i], workers[i] = f.ID, string(f.Status), f.WorkerID
		if s.limits.mayLimit(f.JobType) {
			// Another one may be claimed in its place.
			q.Types = append(q.Types, f.JobType)
		}
	}
	b.Queue(finishSQL, ids, statuses, workers)
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
