package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
)

// Validator decides whether a requested execution may be queued at all. It
// returns a stable reason and a message to refuse it, or an empty reason.
type Validator func(e *execution.Execution) (reason, message string)

// Queue moves requested executions into the admission queue, or rejects them, in
// the caller's transaction. Ids that are unknown or have moved on already are
// skipped: a repeated event changes nothing. After the commit the caller wakes
// WakeAdmission and the outbox (Committed).
func (s *Store) Queue(ctx context.Context, tx pgx.Tx, ids []string, validate Validator) error {
	found, err := lockByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	change := &change{}
	for _, id := range ids {
		l, ok := found[id]
		if !ok || l.State != execution.Requested {
			continue
		}
		if reason, message := validate(l.Execution); reason != "" {
			err = l.Reject(l.now, reason, message, 0)
		} else {
			err = l.Execution.Queue(l.now, s.policy)
		}
		if err != nil {
			return err
		}
		change.touch(l.Execution)
	}
	return change.save(ctx, tx)
}

// Committed wakes those who wait for what the caller's own transaction did
// through Queue.
func (s *Store) Committed() { s.wake(WakeAdmission) }

// Admission is one round of admitting.
type Admission struct {
	Class string
	// Admitter names who decides; it is recorded in the events.
	Admitter string
	// Limit is how many slots may be in use at once, beyond what the workers
	// announce; 0 is no limit of its own.
	Limit int
	// Max is how many executions to admit at most in this round.
	Max int
	// Fence is called first in the transaction and fails when the caller is no
	// longer the admitter of the class.
	Fence func(ctx context.Context, tx pgx.Tx) error
}

// Admitted is the outcome of one round.
type Admitted struct {
	// Executions is how many were admitted.
	Executions int
	// Free is how many slots were left after the round.
	Free int
	// More says that another round may admit more at once.
	More bool
}

// Admit admits queued executions of a class, in the order of their rank, as far
// as capacity goes. Executions with a concurrency key are admitted one at a time
// and in the order of submission. One that needs more slots than are free holds
// up those behind it, so that it cannot starve; one that needs more than any
// worker has waits without holding up anybody.
func (s *Store) Admit(ctx context.Context, a Admission) (Admitted, error) {
	var out Admitted
	opened := false
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		out = Admitted{}
		if err := a.Fence(ctx, tx); err != nil {
			return err
		}
		var err error
		if opened, err = openGates(ctx, tx); err != nil {
			return err
		}
		room, err := readCapacity(ctx, tx, a)
		if err != nil {
			return fmt.Errorf("read capacity: %w", err)
		}
		out.Free = room.total - room.used
		return s.admit(ctx, tx, a, room, &out)
	})
	if err != nil {
		return Admitted{}, fmt.Errorf("admit: %w", err)
	}
	if out.Executions > 0 {
		crash.At("admitter.admitted")
	}
	if opened {
		// It may be one of another class, whose admitter sleeps.
		s.waker.Wake(WakeAdmission)
	}
	return out, nil
}

// lookAhead is how many executions a round looks at even if fewer can be admitted:
// those whose keys are taken get out of the way.
const lookAhead = 64

func (s *Store) admit(ctx context.Context, tx pgx.Tx, a Admission, room capacity, out *Admitted) error {
	if out.Free <= 0 {
		return nil
	}
	wanted := min(max(out.Free, lookAhead), a.Max)
	queued, err := load(ctx, tx, admissible, a.Class, room.executors, room.largest, wanted)
	if err != nil {
		return fmt.Errorf("read queue: %w", err)
	}
	turn, shut, err := takeTurns(ctx, tx, queued)
	if err != nil {
		return err
	}
	// Where gates were shut, others behind them may fit.
	out.More = len(queued) == wanted && shut > 0
	change := &change{}
	for _, l := range queued {
		now := l.now
		if l.Request.ConcurrencyKey != "" {
			var first bool
			if now, first = turn[l.ID]; !first {
				continue
			}
		}
		if l.Slots() > out.Free {
			out.More = false
			break
		}
		task, err := l.Schedule(now, a.Admitter, s.policy)
		if err != nil {
			return err
		}
		change.touch(l.Execution)
		change.tasks = append(change.tasks, task)
		out.Free -= l.Slots()
		out.Executions++
	}
	out.More = out.More || out.Executions == a.Max
	err = change.save(ctx, tx)
	if out.Executions > 0 {
		crash.At("admitter.admitting")
	}
	return err
}

// admissible selects, in order, what may be admitted. A row that somebody else
// has locked is being cancelled or timed out: it is skipped.
const admissible = `SELECT ` + columns + ` FROM executions e
	WHERE state = 'QUEUED' AND NOT gated AND resource_class = $1 AND executor = ANY($2) AND slots <= $3
	  AND ready_at <= clock_timestamp()
	ORDER BY rank, id LIMIT $4 FOR UPDATE SKIP LOCKED`

// capacity is what a class has: slots in all and in use, the slots of its largest
// worker, and the executors that its workers offer.
type capacity struct {
	total, used, largest int
	executors            []string
}

// readCapacity derives the capacity of a class from the rows themselves: what
// the live workers announce, less what is scheduled or running. There is no
// counter that could drift.
func readCapacity(ctx context.Context, tx pgx.Tx, a Admission) (capacity, error) {
	var c capacity
	err := tx.QueryRow(ctx, `
		WITH live AS (
			SELECT slots, executors FROM workers WHERE resource_class = $1 AND expires_at > clock_timestamp())
		SELECT coalesce((SELECT sum(slots) FROM live), 0),
		       coalesce((SELECT max(slots) FROM live), 0),
		       coalesce((SELECT array_agg(DISTINCT name) FROM live, unnest(executors) AS name), '{}'),
		       coalesce((SELECT sum(slots) FROM executions
		                 WHERE resource_class = $1 AND state IN ('SCHEDULED', 'RUNNING')), 0)`,
		a.Class).Scan(&c.total, &c.largest, &c.executors, &c.used)
	if a.Limit > 0 {
		c.total, c.largest = min(c.total, a.Limit), min(c.largest, a.Limit)
	}
	return c, err
}

// Worker is what a worker announces of itself.
type Worker struct {
	ID        string
	Classes   []string
	Executors []string
	// Slots is how many slots it has, for all its classes together; each class is
	// offered all of them.
	Slots int
	// CPUMillis is its processor time in thousandths of a core, MemoryBytes its
	// memory; zero means that it does not count them. GPUs is how many graphics
	// processors it has.
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int
}

// Announce renews a worker's entry for the given time and tells the coordinator
// of capacity that is new.
func (s *Store) Announce(ctx context.Context, w Worker, ttl time.Duration) error {
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO workers (id, resource_class, slots, executors, announced_at, expires_at, cpu_millis, memory_bytes, gpus)
		SELECT $1, class, $3, $4, clock_timestamp(), clock_timestamp() + $5::interval,
			nullif($6::bigint, 0), nullif($7::bigint, 0), $8
		FROM unnest($2::text[]) AS class
		ON CONFLICT (id, resource_class) DO UPDATE SET
			slots = excluded.slots, executors = excluded.executors,
			cpu_millis = excluded.cpu_millis, memory_bytes = excluded.memory_bytes, gpus = excluded.gpus,
			announced_at = excluded.announced_at, expires_at = excluded.expires_at`,
		w.ID, w.Classes, w.Slots, w.Executors, ttl, w.CPUMillis, w.MemoryBytes, w.GPUs)
	if err != nil {
		return fmt.Errorf("announce worker: %w", err)
	}
	if tag.RowsAffected() > 0 {
		s.waker.Wake(WakeAdmission)
	}
	return nil
}

// Withdraw removes a worker's entry: it takes no further work.
func (s *Store) Withdraw(ctx context.Context, id string) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM workers WHERE id = $1`, id); err != nil {
		return fmt.Errorf("withdraw worker: %w", err)
	}
	return nil
}

// Classes returns the resource classes for which there are live workers.
func (s *Store) Classes(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx,
		`SELECT DISTINCT resource_class FROM workers WHERE expires_at > clock_timestamp() ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list resource classes: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
