package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
)

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
	// Pools are those in whose room some of its executors run things, at most one for
	// each. A worker all of whose executors have one, and that has no graphics processors
	// of its own, offers those of its pool.
	Pools []Pool
	// Topics are the topics that it reads tasks from, by their names at the broker.
	Topics []string
}

// Announce renews a worker's entry for the given time and tells the coordinator
// of capacity that is new.
func (s *Store) Announce(ctx context.Context, w Worker, ttl time.Duration) error {
	gpus, pools := make([]int, len(w.Classes)), make([]string, len(w.Classes))
	for i, class := range w.Classes {
		var err error
		if pools[i], err = w.poolsOf(class); err != nil {
			return fmt.Errorf("announce worker: %w", err)
		}
		gpus[i] = w.gpusOf(class)
	}
	if err := s.recordClasses(ctx, w, gpus); err != nil {
		return fmt.Errorf("announce worker: %w", err)
	}
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO workers (id, resource_class, slots, executors, announced_at, expires_at, cpu_millis, memory_bytes, gpus, topics, pools)
		SELECT $1, c.class, $3, $4, clock_timestamp(), clock_timestamp() + $5::interval,
			nullif($6::bigint, 0), nullif($7::bigint, 0), c.gpus, coalesce($9::text[], '{}'), c.pools::jsonb
		FROM unnest($2::text[], $8::integer[], $10::text[]) AS c(class, gpus, pools)
		ON CONFLICT (id, resource_class) DO UPDATE SET
			slots = excluded.slots, executors = excluded.executors, topics = excluded.topics, pools = excluded.pools,
			cpu_millis = excluded.cpu_millis, memory_bytes = excluded.memory_bytes, gpus = excluded.gpus,
			announced_at = excluded.announced_at, expires_at = excluded.expires_at,
			since = CASE WHEN workers.expires_at > clock_timestamp() THEN workers.since ELSE excluded.since END`,
		w.ID, w.Classes, w.Slots, w.Executors, ttl, w.CPUMillis, w.MemoryBytes, gpus, w.Topics, pools)
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

// AdmitterLease names the lease of whoever admits executions of a class.
func AdmitterLease(class string) string { return "admitter:" + class }

// Classes returns the resource classes that need an admitter: those for which there
// are live workers, and those in which something has ever been queued.
func (s *Store) Classes(ctx context.Context) ([]string, error) {
	// Flows may be many and classes are few: each step looks up the next class.
	rows, err := s.pool.Query(ctx, `
		WITH RECURSIVE queued(class) AS (
			SELECT min(resource_class) FROM admission_flows
			UNION ALL
			SELECT (SELECT min(resource_class) FROM admission_flows WHERE resource_class > queued.class)
			FROM queued WHERE queued.class IS NOT NULL)
		SELECT class FROM queued WHERE class IS NOT NULL
		UNION SELECT resource_class FROM workers WHERE expires_at > clock_timestamp()
		ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list resource classes: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// workerColumns are what a worker offers. What it does not count is unlimited: $2.
const workerColumns = `slots, coalesce(cpu_millis, $2), coalesce(memory_bytes, $2), gpus, executors, pools`

// workersSQL selects what the live workers of the class $1 offer, in a stable order.
const workersSQL = `SELECT ` + workerColumns + ` FROM workers
	WHERE resource_class = $1 AND expires_at > clock_timestamp() ORDER BY id`

// collectWorkers reads rows of workersSQL.
func collectWorkers(rows pgx.Rows) ([]admission.Worker, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (admission.Worker, error) { return scanWorker(row) })
}

// scanWorker reads workerColumns, and what comes behind them.
func scanWorker(row pgx.CollectableRow, more ...any) (admission.Worker, error) {
	var w admission.Worker
	var pools []byte
	r := &w.Resources
	err := row.Scan(append([]any{
		&r[admission.Slots], &r[admission.CPUMillis], &r[admission.MemoryBytes], &r[admission.GPUs], &w.Executors, &pools,
	}, more...)...)
	if err != nil {
		return w, err
	}
	w.Pools, err = readPools(pools)
	return w, err
}
