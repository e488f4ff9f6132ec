package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// beatSQL extends the leases of those jobs of many that nobody else has locked just
	// now. It never waits while it holds something, so it takes part in no deadlock.
	// Judge's rules are those of mine in Go; the last holder of a lease that is over may
	// extend it as long as nobody has noticed.
	beatSQL = `
	WITH beats AS (
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[]) WITH ORDINALITY AS u(id, worker, token, lease, place)
	), mine AS MATERIALIZED (
		SELECT j.id, b.worker, b.lease FROM beats b JOIN jobs j ON j.id = b.id
		WHERE j.status = 'LOCKED' AND CASE
			WHEN j.dispatch_id IS NOT NULL AND j.worker_id IS NULL THEN b.token IN (0, j.token)
			WHEN b.token = 0 THEN b.worker <> '' AND b.worker = j.worker_id
			ELSE b.token = j.token AND (j.dispatch_id IS NULL OR b.worker = '' OR b.worker = j.worker_id) END
		FOR UPDATE OF j SKIP LOCKED
	)
	UPDATE jobs SET worker_id = coalesce(jobs.worker_id, nullif(m.worker, '')),
		lease_ms = coalesce(nullif(m.lease, 0), jobs.lease_ms),
		lock_expires_at = clock_timestamp() + coalesce(nullif(m.lease, 0), jobs.lease_ms) * interval '1 millisecond'
	FROM mine m WHERE jobs.id = m.id
	RETURNING jobs.id, jobs.lock_expires_at`

	// lookSQL reads what tells why a lease was not extended.
	lookSQL = `
	SELECT id, instance_id, attempt, status, token, expired, coalesce(worker_id, ''), dispatch_id IS NOT NULL AND status = 'LOCKED'
	FROM jobs WHERE id = ANY($1)`

	lockOneSQL = `SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE`
)

// Heartbeat extends leases: one result for each beat, in their order. A beat for a job
// that goes over Kafka makes it its sender's. Beats for one job are judged each for itself,
// in their order; of several by one holder the last counts.
func (s *Store) Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error) {
	results := make([]BeatResult, len(beats))
	for _, b := range beats {
		if b.Lease != 0 && (b.Lease < LeaseMin || b.Lease > LeaseMax) {
			return nil, fmt.Errorf("heartbeat: %w: a lease lasts from %s to %s, not %s", ErrInvalid, LeaseMin, LeaseMax, b.Lease)
		}
	}
	for _, round := range rounds(beats) {
		if err := s.beatRound(ctx, beats, round, results); err != nil {
			return nil, fmt.Errorf("heartbeat: %w", err)
		}
	}
	return results, nil
}

// rounds are the indexes of beats, parted so that within a round no two holders speak of
// one job: a worker may have read the record of a lease that is over and the one behind it.
func rounds(beats []Beat) [][]int {
	left := make([]int, len(beats))
	for i := range left {
		left[i] = i
	}
	var all [][]int
	for len(left) > 0 {
		speakers := make(map[uuid.UUID]Holder, len(left))
		var round, later []int
		for _, i := range left {
			h := beats[i].Holder
			if first, met := speakers[h.JobID]; met && first != h {
				later = append(later, i)
				continue
			}
			speakers[h.JobID] = h
			round = append(round, i)
		}
		all, left = append(all, round), later
	}
	return all
}

// beatRound fills in the results of a round.
func (s *Store) beatRound(ctx context.Context, beats []Beat, round []int, results []BeatResult) error {
	some := make([]Beat, len(round))
	for n, i := range round {
		some[n] = beats[i]
	}
	extended, err := s.beat(ctx, s.pool, some)
	if err != nil {
		return err
	}
	var missed []int
	for _, i := range round {
		if until, ok := extended[beats[i].JobID]; ok {
			results[i].LockExpiresAt = until
		} else {
			missed = append(missed, i)
		}
	}
	if len(missed) == 0 {
		return nil
	}
	return s.explain(ctx, beats, missed, results)
}

// beat extends what it can and returns the new ends by job. Of each job one holder speaks.
func (s *Store) beat(ctx context.Context, db batcher, beats []Beat) (map[uuid.UUID]time.Time, error) {
	last := make(map[uuid.UUID]Beat, len(beats))
	for _, b := range beats {
		last[b.JobID] = b
	}
	n := len(last)
	ids, workers, tokens, leases := make([]uuid.UUID, 0, n), make([]string, 0, n), make([]int64, 0, n), make([]int32, 0, n)
	for id, b := range last {
		ids, workers, tokens = append(ids, id), append(workers, b.WorkerID), append(tokens, b.Token)
		leases = append(leases, int32(b.Lease.Milliseconds()))
	}
	extended := make(map[uuid.UUID]time.Time, n)
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(beatSQL, ids, workers, tokens, leases).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var until time.Time
		_, err := pgx.ForEachRow(rows, []any{&id, &until}, func() error {
			extended[id] = until
			return nil
		})
		return err
	})
	return extended, db.SendBatch(ctx, &b).Close()
}

// explain finds out why leases were not extended: the job is somebody else's, has ended,
// or was locked for a moment, in which case it is waited for.
func (s *Store) explain(ctx context.Context, beats []Beat, missed []int, results []BeatResult) error {
	ids := make([]uuid.UUID, len(missed))
	for i, n := range missed {
		ids[i] = beats[n].JobID
	}
	held, err := s.look(ctx, ids)
	if err != nil {
		return err
	}
	for _, n := range missed {
		h, found := held[beats[n].JobID]
		if !found {
			results[n].Err = fmt.Errorf("job %s: %w", beats[n].JobID, ErrNotFound)
			continue
		}
		results[n] = judgeBeat(h, beats[n].Holder)
		if results[n].Err == nil {
			if results[n], err = s.beatOne(ctx, beats[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func judgeBeat(h Held, by Holder) BeatResult {
	switch {
	case h.Status == Locked && h.mine(by) && (h.WorkerID != "" || by.Token == 0 || by.Token == h.Token):
		return BeatResult{}
	case h.Status == Locked || h.Status == Unlocked:
		return BeatResult{Err: h.refuse(ErrLeaseLost)}
	}
	return BeatResult{Err: h.refuse(ErrFinished), Cancelled: h.Status == Cancelled}
}

// beatOne waits for the lock of one job and extends its lease.
func (s *Store) beatOne(ctx context.Context, beat Beat) (BeatResult, error) {
	var result BeatResult
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockOneSQL, beat.JobID); err != nil {
			return err
		}
		extended, err := s.beat(ctx, tx, []Beat{beat})
		if err != nil {
			return err
		}
		if until, ok := extended[beat.JobID]; ok {
			result.LockExpiresAt = until
			return nil
		}
		held, err := s.lookIn(ctx, tx, []uuid.UUID{beat.JobID})
		if h, found := held[beat.JobID]; found {
			result = judgeBeat(h, beat.Holder)
		} else {
			result.Err = fmt.Errorf("job %s: %w", beat.JobID, ErrNotFound)
		}
		return err
	})
	return result, err
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Store) look(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Held, error) {
	return s.lookIn(ctx, s.pool, ids)
}

// lookIn reads what judging takes, without locking.
func (s *Store) lookIn(ctx context.Context, db querier, ids []uuid.UUID) (map[uuid.UUID]Held, error) {
	rows, err := db.Query(ctx, lookSQL, ids)
	if err != nil {
		return nil, err
	}
	held := make(map[uuid.UUID]Held, len(ids))
	var h Held
	_, err = pgx.ForEachRow(rows, []any{&h.ID, &h.InstanceID, &h.Attempt, &h.Status, &h.Token, &h.Expired, &h.WorkerID, &h.Dispatched}, func() error {
		held[h.ID] = h
		return nil
	})
	return held, err
}

// giveBackSQL takes leases back that were not used. The token stays, so that the next
// lease has a higher one.
const giveBackSQL = `
	WITH given AS (SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS u(id, worker, token)),
	mine AS MATERIALIZED (
		SELECT j.id FROM given g JOIN jobs j ON j.id = g.id
		WHERE j.status = 'LOCKED' AND j.dispatch_id IS NULL
			AND CASE WHEN g.token = 0 THEN g.worker <> '' AND g.worker = j.worker_id ELSE g.token = j.token END
		FOR UPDATE OF j SKIP LOCKED
	)
	UPDATE jobs SET status = 'UNLOCKED', worker_id = NULL, lock_expires_at = NULL, limited = false
	FROM mine m WHERE jobs.id = m.id
	RETURNING jobs.job_type`

// Release gives jobs back that their holders did not begin, so that others can claim
// them at once. What is not theirs (any more) is passed over.
func (s *Store) Release(ctx context.Context, holders []Holder) error {
	ids, workers, tokens := make([]uuid.UUID, len(holders)), make([]string, len(holders)), make([]int64, len(holders))
	for i, h := range holders {
		ids[i], workers[i], tokens[i] = h.JobID, h.WorkerID, h.Token
	}
	var types []string
	var b pgx.Batch
	b.Queue(PlanSQL)
	b.Queue(giveBackSQL, ids, workers, tokens).Query(func(rows pgx.Rows) (err error) {
		types, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("release jobs: %w", err)
	}
	s.Woken(types)
	return nil
}
