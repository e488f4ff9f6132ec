package jobs

import (
	"container/list"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// genericSQL has the rest of a transaction carried out by plans that are made once: to plan
// insertHandedSQL for each length of its arrays takes longer than to carry it out.
const genericSQL = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true)`

// insertHandedSQL is insertSQL for jobs of which some begin in somebody's hands. Types that
// have got a limit by now are left to claims, which count.
const insertHandedSQL = `
	INSERT INTO jobs (id, instance_id, activity, step, step_id, job_type, status, priority, run_at, attempt, retries_remaining,
		token, worker_id, locked_at, lock_expires_at, lease_ms, input)
	SELECT id, instance_id, activity, step, step_id, job_type, CASE WHEN holder IS NULL THEN 'UNLOCKED' ELSE 'LOCKED' END, priority,
		coalesce(run_at, clock_timestamp()), attempt, retries, (holder IS NOT NULL)::integer, holder,
		CASE WHEN holder IS NOT NULL THEN clock_timestamp() END,
		CASE WHEN holder IS NOT NULL THEN clock_timestamp() + lease * interval '1 millisecond' END,
		CASE WHEN holder IS NOT NULL THEN lease END, input
	FROM (
		SELECT u.*, CASE WHEN worker IS NOT NULL AND NOT EXISTS (SELECT FROM wf_job_types l WHERE l.job_type = u.job_type) THEN worker END AS holder
		FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::smallint[], $8::timestamptz[],
			$9::integer[], $10::integer[], $11::json[], $12::text[], $13::integer[])
			AS u(id, instance_id, activity, step, step_id, job_type, priority, run_at, attempt, retries, input, worker, lease)
	) AS u
	RETURNING id, worker_id IS NOT NULL, locked_at, lock_expires_at, created_at`

// handing is the jobs of one transaction that begin in the hands of claims that wait: no
// statement is needed to claim them. Their waiters are set aside until it is known what
// became of the transaction.
type handing struct {
	hub *hub
	// waiters are those set aside, with how many more jobs each takes.
	waiters []*waiter
	room    map[*waiter]int
	// handed has the jobs by id, order their ids as they were put up.
	handed map[uuid.UUID]*handed
	order  []uuid.UUID
}

// handed is a job for a waiter.
type handed struct {
	Job
	waiter *waiter
	// told is set once the server has answered, taken when it gave the job to the waiter.
	told, taken bool
}

// hand looks for a claim that waits for a job that begins, and sets it aside. It reports
// whether there is one.
func (g *handing) hand(j New, id uuid.UUID) (*waiter, bool) {
	w := g.sitting(j.JobType)
	if w == nil {
		if w = g.hub.reserve(j.JobType); w == nil {
			return nil, false
		}
		g.waiters = append(g.waiters, w)
		g.room[w] = w.request.Max
	}
	g.room[w]--
	variables := j.Input
	if variables == nil {
		variables = j.Variables
	}
	g.handed[id] = &handed{waiter: w, Job: Job{
		ID: id, JobType: j.JobType, InstanceID: j.InstanceID, Activity: j.Activity, Step: j.Step, StepID: j.StepID,
		Status: Locked, Priority: j.Priority, Attempt: j.Attempt, RetriesRemaining: j.RetriesRemaining,
		Token: 1, WorkerID: w.request.WorkerID, Variables: variables,
	}}
	g.order = append(g.order, id)
	return w, true
}

// sitting is a waiter set aside before that takes one more of a type.
func (g *handing) sitting(jobType string) *waiter {
	for _, w := range g.waiters {
		if g.room[w] > 0 && slices.Contains(w.request.Types, jobType) {
			return w
		}
	}
	return nil
}

// read takes what the server says of the jobs that were put up.
func (g *handing) read(rows pgx.Rows) error {
	var id uuid.UUID
	var taken bool
	var lockedAt, ends *time.Time
	var created time.Time
	_, err := pgx.ForEachRow(rows, []any{&id, &taken, &lockedAt, &ends, &created}, func() error {
		if j := g.handed[id]; j != nil {
			j.told, j.taken = true, taken
			j.LockedAt, j.LockExpiresAt, j.CreatedAt = timeOf(lockedAt), timeOf(ends), created
		}
		return nil
	})
	return err
}

// Committed tells that a transaction of Writes is committed: claims that wait are answered
// or woken, here and in other processes. It does not block. Doubtful are attempts at the
// same transaction before, of which nothing was heard at their commit: jobs that they may
// have put into somebody's hands, and this one has not put up, are given back.
func (s *Store) Committed(q Queued, doubtful ...Queued) {
	types := q.Types
	var lost []Job
	if q.handing != nil {
		claimed, refused, unheard := q.handing.committed()
		s.metrics.claimed(claimed)
		s.metrics.handed.Add(float64(len(claimed)))
		types, lost = append(types, refused...), unheard
	}
	for _, before := range doubtful {
		if before.handing == nil {
			continue
		}
		for _, id := range before.handing.order {
			if !slices.Contains(q.inserted, id) {
				lost = append(lost, before.handing.handed[id].Job)
			}
		}
	}
	if len(lost) > 0 {
		go s.hub.giveBack(lost)
	}
	s.Woken(types)
}

// Abandoned tells that a transaction of Writes is not committed, or that nobody knows. It is
// called instead of Committed, and does not block.
func (s *Store) Abandoned(q Queued) {
	if q.handing == nil {
		return
	}
	h := q.handing.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range q.handing.waiters {
		h.restore(w)
	}
}

// committed answers the waiters. It returns the jobs that they have got, the types of those
// that are to be claimed after all, and the jobs that are given back: those whose caller
// has gone, and those of which it is not known whether the server has given them away.
func (g *handing) committed() (claimed []taken, refused []string, back []Job) {
	h := g.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	own := make(map[*waiter][]Job, len(g.waiters))
	for _, id := range g.order {
		switch j := g.handed[id]; {
		case !j.told || j.taken && j.waiter.gone:
			back = append(back, j.Job)
		case j.taken:
			own[j.waiter] = append(own[j.waiter], j.Job)
			claimed = append(claimed, taken{Job: j.Job})
		default:
			refused = append(refused, j.JobType)
		}
	}
	for _, w := range g.waiters {
		if len(own[w]) > 0 {
			h.answer(w, answer{jobs: own[w]}, outcomeClaimed)
			continue
		}
		h.restore(w)
	}
	return claimed, refused, back
}

// reserve sets the waiter aside who has waited longest for a type. It has to be one of a
// lane that has found nothing and was not woken since: what begins now is then the first
// that there is for it.
func (h *hub) reserve(jobType string) *waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first *waiter
	for _, l := range h.lanes {
		if l.running || l.retry != nil || l.waiters.Len() == 0 || !slices.Contains(l.types, jobType) {
			continue
		}
		if w := l.waiters.Front().Value.(*waiter); w.patient && (first == nil || w.arrival < first.arrival) {
			first = w
		}
	}
	if first == nil {
		return nil
	}
	first.lane.remove(first)
	h.drop(first.lane)
	return first
}

// restore has a waiter that was set aside wait again, in its old place. The caller holds
// the lock.
func (h *hub) restore(w *waiter) {
	if w.gone {
		return
	}
	w.patient = w.patient && !h.closed
	l := h.lane(w.request.Types)
	w.lane = l
	var before *list.Element
	for before = l.waiters.Front(); before != nil && before.Value.(*waiter).arrival < w.arrival; {
		before = before.Next()
	}
	if before != nil {
		w.place = l.waiters.InsertBefore(w, before)
	} else {
		w.place = l.waiters.PushBack(w)
	}
	h.look(l, w)
}

// look has a lane look for jobs for a waiter that has joined it, unless it is known that
// there are none. The caller holds the lock.
func (h *hub) look(l *lane, w *waiter) {
	if _, quiet := h.quiet[l.key]; quiet && w.patient && !l.running && l.retry == nil {
		return
	}
	h.start(l)
}

// maxQuiet is of how many lanes is kept that there is nothing for them.
const maxQuiet = 256

// calm notes that there is nothing for a lane: its last statement found no more, and since
// it began nobody has told of a job of these types. Waiters that join the lane need not look then.
// That somebody was not heard is made up for by the poll, which forgets all of it. The
// caller holds the lock.
func (h *hub) calm(l *lane, o outcome) {
	if !h.watching || l.dirty || l.stale || o.contended || o.limited {
		return
	}
	if len(h.quiet) >= maxQuiet {
		clear(h.quiet)
	}
	h.quiet[l.key] = l.types
}

// stir forgets that there is nothing of a type. The caller holds the lock.
func (h *hub) stir(jobType string) {
	for key, types := range h.quiet {
		if slices.Contains(types, jobType) {
			delete(h.quiet, key)
		}
	}
}

// watch says whether wake-ups of other processes are heard and polls are made: only then
// is anything known for longer than a statement takes.
func (h *hub) watch(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watching = on
	clear(h.quiet)
}
