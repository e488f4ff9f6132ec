// Package jobstest has what tests of jobs share: a small shell in the engine's place, and
// the suite that holds in both modes of dispatch and over every transport.
package jobstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

// Shell stores what happens to jobs as the engine does, in one transaction each, and
// knows nothing of workflows: an instance is its jobs.
type Shell struct {
	Pool    *pgxpool.Pool
	Store   *jobs.Store
	Signals *postgres.Signals
	// Backoff is how long after a failure a job may run again.
	Backoff time.Duration
}

// Spec is a job to begin.
type Spec struct {
	JobType  string
	Priority int
	// Retries is how many failures it may have.
	Retries int
	RunAt   time.Time
	// Variables are those of its instance.
	Variables json.RawMessage
	Input     json.RawMessage
	// Instance, when set, is one that exists, and Activity the job's number in it.
	Instance uuid.UUID
	Activity int
}

const instanceSQL = `
	INSERT INTO wf_instances (id, definition_id, definition_version, status, version, variables, state, started_at, updated_at)
	SELECT id, 'jobstest', 1, 'ACTIVE', 1, variables, '{}', now(), now() FROM unnest($1::uuid[], $2::json[]) AS u(id, variables)
	ON CONFLICT (id) DO NOTHING`

// Begin begins jobs, each of an instance of its own unless it names one, and returns
// their ids.
func (s *Shell) Begin(ctx context.Context, specs ...Spec) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(specs))
	instances, variables := make([]uuid.UUID, len(specs)), make([][]byte, len(specs))
	var w jobs.Writes
	for i, spec := range specs {
		instance, activity := spec.Instance, max(1, spec.Activity)
		if instance == (uuid.UUID{}) {
			instance = uuid.Must(uuid.NewV7())
		}
		if spec.Variables == nil {
			spec.Variables = json.RawMessage(`{}`)
		}
		if spec.Priority == 0 {
			spec.Priority = 3
		}
		instances[i], variables[i], ids[i] = instance, spec.Variables, jobs.ID(instance, activity)
		w.Insert = append(w.Insert, jobs.New{
			InstanceID: instance, Activity: activity, Step: activity, StepID: "step", JobType: spec.JobType, Priority: spec.Priority,
			Attempt: 1, RetriesRemaining: spec.Retries, RunAt: spec.RunAt, Input: spec.Input, Variables: spec.Variables,
		})
	}
	return ids, s.write(ctx, func(b *pgx.Batch) { b.Queue(instanceSQL, instances, variables) }, func(map[uuid.UUID]jobs.Held) jobs.Writes { return w })
}

// write locks jobs, decides, and writes, as one transaction with two round trips.
func (s *Shell) write(ctx context.Context, first func(*pgx.Batch), decide func(map[uuid.UUID]jobs.Held) jobs.Writes, ids ...uuid.UUID) error {
	var queued jobs.Queued
	err := postgres.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		s.Store.Abandoned(queued) // by an attempt before
		queued = jobs.Queued{}
		held := make(map[uuid.UUID]jobs.Held)
		if len(ids) > 0 {
			var lock pgx.Batch
			s.lockInstances(&lock, ids)
			lock.Queue(jobs.PlanSQL)
			s.Store.Lock(&lock, ids, held)
			if err := tx.SendBatch(ctx, &lock).Close(); err != nil {
				return err
			}
		}
		var b pgx.Batch
		if first != nil {
			first(&b)
		}
		writes := decide(held)
		writes.Handing = true
		var err error
		if queued, err = s.Store.Queue(&b, writes); err != nil {
			return err
		}
		if b.Len() > 0 {
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
		}
		return outbox.Append(ctx, tx, queued.Entries...)
	})
	if err != nil {
		s.Store.Abandoned(queued)
		return err
	}
	if len(queued.Entries) > 0 && s.Signals != nil {
		s.Signals.Wake(outbox.WakeName)
	}
	s.Store.Committed(queued)
	return nil
}

func (*Shell) lockInstances(b *pgx.Batch, ids []uuid.UUID) {
	b.Queue(`SELECT 1 FROM wf_instances WHERE id IN (SELECT instance_id FROM jobs WHERE id = ANY($1)) ORDER BY id FOR UPDATE`, ids)
}

// Complete reports that jobs are done, with an outcome each.
func (s *Shell) Complete(ctx context.Context, list ...jobs.Completion) []error {
	holders := make([]jobs.Holder, len(list))
	for i, c := range list {
		holders[i] = c.Holder
	}
	return s.report(ctx, holders, jobs.Completes, func(h jobs.Held, by jobs.Holder, w *jobs.Writes) {
		w.Finish = append(w.Finish, jobs.Finished{ID: h.ID, JobType: h.JobType, Status: jobs.Completed, WorkerID: by.WorkerID})
	})
}

// Fail reports that an attempt did not succeed.
func (s *Shell) Fail(ctx context.Context, f jobs.Failure) error {
	return s.report(ctx, []jobs.Holder{f.Holder}, jobs.Fails, func(h jobs.Held, by jobs.Holder, w *jobs.Writes) {
		if !f.Retryable || h.RetriesRemaining == 0 {
			w.Finish = append(w.Finish, jobs.Finished{ID: h.ID, JobType: h.JobType, Status: jobs.Failed, WorkerID: by.WorkerID})
			return
		}
		var runAt time.Time
		if wait := cmp.Or(f.RetryAfter, s.Backoff); wait > 0 {
			runAt = h.Now.Add(wait)
		}
		w.Again = append(w.Again, jobs.Again{Held: h, Attempt: h.Attempt + 1, RetriesRemaining: h.RetriesRemaining - 1, RunAt: runAt, Variables: json.RawMessage(`{}`)})
	})[0]
}

func (s *Shell) report(ctx context.Context, holders []jobs.Holder, what jobs.Report, accept func(jobs.Held, jobs.Holder, *jobs.Writes)) []error {
	ids := make([]uuid.UUID, len(holders))
	for i, h := range holders {
		ids[i] = h.JobID
	}
	outcomes := make([]error, len(holders))
	err := s.write(ctx, nil, func(held map[uuid.UUID]jobs.Held) jobs.Writes {
		var w jobs.Writes
		for i, by := range holders {
			h, found := held[by.JobID]
			if !found {
				outcomes[i] = fmt.Errorf("job %s: %w", by.JobID, jobs.ErrNotFound)
				continue
			}
			outcomes[i] = jobs.Judge(h, by, what)
			if outcomes[i] == nil {
				accept(h, by, &w)
			}
			if errors.Is(outcomes[i], jobs.ErrAgain) {
				outcomes[i] = nil
			}
		}
		return w
	}, slices.Compact(slices.Clone(ids))...)
	if err != nil {
		for i := range outcomes {
			outcomes[i] = err
		}
	}
	return outcomes
}

// JobsExpired implements jobs.Reporter.
func (s *Shell) JobsExpired(ctx context.Context, list []jobs.Expired) error {
	ids := make([]uuid.UUID, len(list))
	for i, e := range list {
		ids[i] = e.JobID
	}
	return s.write(ctx, nil, func(held map[uuid.UUID]jobs.Held) jobs.Writes {
		var w jobs.Writes
		for _, e := range list {
			h := held[e.JobID]
			switch {
			case !jobs.JudgeExpired(h, e):
			case e.Quarantine:
				w.Finish = append(w.Finish, jobs.Finished{ID: h.ID, JobType: h.JobType, Status: jobs.Failed})
			default:
				w.Again = append(w.Again, jobs.Again{
					Held: h, Attempt: h.Attempt, RetriesRemaining: h.RetriesRemaining, Expired: true, Variables: json.RawMessage(`{}`),
				})
			}
		}
		return w
	}, ids...)
}

// Do writes what a test says.
func (s *Shell) Do(ctx context.Context, w jobs.Writes) error {
	return s.write(ctx, nil, func(map[uuid.UUID]jobs.Held) jobs.Writes { return w })
}
