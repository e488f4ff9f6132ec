package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
)

// Ref names one attempt of one execution.
type Ref struct {
	ID      string
	Attempt int
}

// Claim asks for scheduled executions.
type Claim struct {
	Worker    string
	Classes   []string
	Executors []string
	// Lease is how long the worker may run them before it has to renew.
	Lease time.Duration
	// Refs, when set, limits the claim to these attempts, for which the worker has
	// room.
	Refs []Ref
	// Slots, without Refs, is how many slots the worker has free: the most urgent
	// executions on offer that fit are taken. What is not on offer has its task
	// record still to come; see Offer.
	Slots int
	// CPUMillis, MemoryBytes and GPUs, without Refs, are what else is free; nil means
	// that the worker does not count it.
	CPUMillis   *int64
	MemoryBytes *int64
	GPUs        int
}

// take takes the room of an execution, if there is as much left.
func (c *Claim) take(e *execution.Execution) bool {
	need := e.Request.Requirements
	if e.Slots() > c.Slots || need.GPUs > c.GPUs ||
		c.CPUMillis != nil && need.CPUMillis > *c.CPUMillis ||
		c.MemoryBytes != nil && need.MemoryBytes > *c.MemoryBytes {
		return false
	}
	c.Slots -= e.Slots()
	c.GPUs -= need.GPUs
	c.CPUMillis = reduced(c.CPUMillis, need.CPUMillis)
	c.MemoryBytes = reduced(c.MemoryBytes, need.MemoryBytes)
	return true
}

// reduced returns what is left of an amount that may not be counted.
func reduced(of *int64, by int64) *int64 {
	if of == nil {
		return nil
	}
	left := *of - by
	return &left
}

// Claim leases scheduled executions to a worker and records that they started.
// What another worker is claiming at the same moment is skipped, never waited
// for. It returns the executions as they stand under the new lease.
func (s *Store) Claim(ctx context.Context, c Claim) ([]*execution.Execution, error) {
	var claimed []*execution.Execution
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		claimed = nil
		candidates, err := claimable(ctx, tx, c)
		if err != nil {
			return err
		}
		change := &change{}
		for _, l := range candidates {
			if err := l.Start(l.now, c.Worker, l.Attempt, c.Lease); err != nil {
				return err
			}
			change.touch(l.Execution)
		}
		claimed = change.executions
		err = change.save(ctx, tx)
		if len(claimed) > 0 {
			crash.At("worker.claiming")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if len(claimed) > 0 {
		crash.At("worker.claimed")
	}
	return claimed, nil
}

func claimable(ctx context.Context, tx pgx.Tx, c Claim) ([]loaded, error) {
	if len(c.Refs) > 0 {
		ids, attempts := split(c.Refs)
		return load(ctx, tx, `SELECT `+columns+` FROM executions
			WHERE (id, attempt) IN (SELECT * FROM unnest($1::text[]::uuid[], $2::integer[]))
			  AND state = 'SCHEDULED' AND resource_class = ANY($3) AND executor = ANY($4)
			ORDER BY id FOR UPDATE SKIP LOCKED`,
			ids, attempts, c.Classes, c.Executors)
	}
	var taken []loaded
	for _, class := range c.Classes {
		// What does not fit by itself is left out here, so that it hides nothing behind
		// it; what does not fit together is left out below.
		found, err := load(ctx, tx, `SELECT `+columns+` FROM executions
			WHERE state = 'SCHEDULED' AND offered_at IS NOT NULL
			  AND resource_class = $1 AND executor = ANY($2) AND slots <= $3
			  AND cpu_millis <= coalesce($4::bigint, cpu_millis) AND memory_bytes <= coalesce($5::bigint, memory_bytes) AND gpus <= $6
			ORDER BY rank, id LIMIT $3 FOR UPDATE SKIP LOCKED`,
			class, c.Executors, c.Slots, c.CPUMillis, c.MemoryBytes, c.GPUs)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			if c.take(l.Execution) {
				taken = append(taken, l)
			}
		}
		if c.Slots == 0 {
			break
		}
	}
	return taken, nil
}

func split(refs []Ref) (ids []string, attempts []int) {
	for _, r := range refs {
		ids, attempts = append(ids, r.ID), append(attempts, r.Attempt)
	}
	return ids, attempts
}

// Beat is what a heartbeat, or an append of output, brought back for one attempt.
type Beat struct {
	Ref
	// Cancel is true when somebody asked for the execution to stop.
	Cancel bool
	// Renewed is true when the lease was renewed. Where it is false the attempt is
	// still the worker's, but its lease ends when it did before.
	Renewed bool
	// Stored is true when the report of the attempt, if there was one, was stored. It
	// is where the lease was renewed.
	Stored bool
}

// The statement leaves out a row that another transaction has locked, rather than
// let it hold up the renewal of all others. Who that may be, and why it is right to
// report the attempt as held and not renewed:
//
//   - this worker's own append of output, which renews the lease itself, or its own
//     result, after which there is nothing to renew;
//   - a cancel, which leaves the lease as it is and wakes the worker once it is
//     committed: it asks then (Cancelled), and the next heartbeat brings it, too;
//   - the sweeper, which ends a lease that has run out. The worker's deadline for it
//     has passed before that, and the next heartbeat finds the attempt missing.
//
// The last SELECT sees the rows as they were when the statement began. So a cancel
// is delivered although the row is locked for something else.
const heartbeatSQL = `
	WITH held AS (
		SELECT id, attempt FROM unnest($2::text[]::uuid[], $3::integer[]) AS h(id, attempt)
	), free AS (
		SELECT e.id, e.attempt FROM executions e JOIN held USING (id, attempt)
		WHERE e.state = 'RUNNING' AND e.worker = $1
		FOR NO KEY UPDATE OF e SKIP LOCKED
	), renewed AS (
		UPDATE executions e SET
			lease_expires_at = clock_timestamp() + $4::interval,
			due_at = clock_timestamp() + $4::interval
		FROM free WHERE e.id = free.id
		RETURNING e.id, e.cancel IS NOT NULL AS cancel
	), told AS (
		SELECT t.* FROM unnest($5::text[]::uuid[], $6::integer[], $7::float8[], $8::float8[], $9::text[], $10::bytea[])
			AS t(id, attempt, done, total, message, checkpoint)
		JOIN free USING (id, attempt)
	), stored AS (` + upsertProgress + ` RETURNING p.execution_id AS id
	)
	SELECT e.id::text, e.attempt, coalesce(renewed.cancel, e.cancel IS NOT NULL), renewed.id IS NOT NULL,
		e.id IN (SELECT id FROM stored)
	FROM held JOIN executions e USING (id, attempt) LEFT JOIN renewed ON renewed.id = e.id
	WHERE e.state = 'RUNNING' AND e.worker = $1`

// Heartbeat renews the leases of a worker by another lease from now. It waits for
// nobody: the lease of an execution that is being changed at this moment is not
// renewed, which the answer says. An attempt that is missing from the answer is
// not the worker's any more.
//
// The reports are stored with the renewals, in the same statement and under the same
// locks: those of attempts that are not the worker's any more are refused.
func (s *Store) Heartbeat(
	ctx context.Context, worker string, refs []Ref, lease time.Duration, reports ...Report,
) ([]Beat, error) {
	ids, attempts := split(refs)
	r := arraysOf(reports)
	// No event and no new version: a renewal changes no fact about the execution.
	rows, err := s.pool.Query(ctx, heartbeatSQL, worker, ids, attempts, lease,
		r.ids, r.attempts, r.done, r.total, r.messages, r.checkpoints)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	beats, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Beat, error) {
		var b Beat
		return b, row.Scan(&b.ID, &b.Attempt, &b.Cancel, &b.Renewed, &b.Stored)
	})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	crash.At("worker.renewed")
	return beats, nil
}

// Finish is the end of one attempt.
type Finish struct {
	Ref
	Worker string
	Result executor.Result
	// Output is what was captured and not yet appended.
	Output []OutputChunk
	// Progress and Checkpoint are what the attempt told last and no heartbeat has
	// stored; nil if there is nothing.
	Progress   *executor.Progress
	Checkpoint []byte
}

// Finish records the ends of attempts. The errors are in the order of the input:
// execution.ErrStaleAttempt or execution.ErrTerminal where the attempt had been
// taken away, nil where the result was recorded. A second error return means that
// nothing was recorded and the call should be repeated.
func (s *Store) Finish(ctx context.Context, finishes []Finish) ([]error, error) {
	var outcomes []error
	ids := make([]string, len(finishes))
	for i, f := range finishes {
		ids[i] = f.ID
	}
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		outcomes = make([]error, len(finishes))
		found, err := lockByID(ctx, tx, ids)
		if err != nil {
			return err
		}
		var outputs []OutputChunk
		for i, f := range finishes {
			l, ok := found[f.ID]
			if !ok {
				outcomes[i] = fmt.Errorf("execution %s: %w", f.ID, ErrNotFound)
				continue
			}
			if outcomes[i] = l.CheckHolder(f.Worker, f.Attempt); outcomes[i] == nil {
				outputs = append(outputs, f.Output...)
			}
		}
		fresh, err := insertOutputs(ctx, tx, outputs)
		if err != nil {
			return err
		}
		for _, chunk := range fresh {
			l := found[chunk.ID]
			l.Execution.Output(l.now, chunk.event())
		}
		change := &change{}
		var reports []Report
		for i, f := range finishes {
			if outcomes[i] != nil {
				continue
			}
			l := found[f.ID]
			if outcomes[i] = l.Execution.Finish(l.now, f.Worker, f.Attempt, f.Result, s.policy); outcomes[i] == nil {
				change.touch(l.Execution)
				if r, some := f.lastReport(l.Execution); some {
					reports = append(reports, r)
				}
			}
		}
		if err := saveReports(ctx, tx, reports); err != nil {
			return err
		}
		err = change.save(ctx, tx)
		crash.At("worker.finishing")
		return err
	}, WakeAdmission)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	crash.At("worker.finished")
	return outcomes, nil
}

// Sweep applies the limits and leases that have run out, at most max of them,
// and returns how many executions it changed. Any number of sweepers may run:
// each skips what another is at.
func (s *Store) Sweep(ctx context.Context, max int) (int, error) {
	n := 0
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		due, err := load(ctx, tx, `SELECT `+columns+` FROM executions
			WHERE due_at <= clock_timestamp() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED`, max)
		if err != nil {
			return err
		}
		change := &change{}
		for _, l := range due {
			if l.Expire(l.now, s.policy) {
				change.touch(l.Execution)
			}
		}
		n = len(change.executions)
		err = change.save(ctx, tx)
		if n > 0 {
			crash.At("sweeper.sweeping")
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	if n > 0 {
		crash.At("sweeper.swept")
		s.waker.Wake(WakeAdmission)
	}
	return n, nil
}
