package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
)

// Situation returns an execution with what it waits among, or ErrNotFound. All of it is
// as of one moment. What is counted is counted to execution.AheadMax, so it costs the
// same however long the queue is.
func (s *Store) Situation(ctx context.Context, id string, terms Terms) (execution.Situation, error) {
	if err := checkID(id); err != nil {
		return execution.Situation{}, err
	}
	var found execution.Situation
	err := s.inSnapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		r := situationReader{tx: tx, terms: terms, step: s.policy.AgeingStep}
		err := r.read(ctx, id)
		found = r.Situation
		return err
	})
	if err != nil {
		return execution.Situation{}, fmt.Errorf("read situation: %w", err)
	}
	return found, nil
}

// inSnapshot runs fn in a transaction that only reads, and all at one moment.
func (s *Store) inSnapshot(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// situationReader gathers a situation.
type situationReader struct {
	execution.Situation
	tx    pgx.Tx
	terms Terms
	step  time.Duration
	// capacity is what the class has, user its user, and rivals the others of whose
	// executions some wait.
	capacity admission.Resources
	user     execution.Party
	rivals   []execution.Party
}

func (r *situationReader) read(ctx context.Context, id string) error {
	rows, err := r.tx.Query(ctx, `SELECT `+columns+` FROM executions WHERE id = $1::text::uuid`, id)
	if err != nil {
		return err
	}
	found, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("execution %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return err
	}
	r.Execution, r.Now, r.Overtake = found.Execution, found.now, r.terms.Config.Overtake
	steps := []func(context.Context) error{r.readWorkers}
	if r.Execution.State == execution.Running {
		steps = append(steps, r.readPod)
	}
	if r.Execution.State == execution.Queued {
		steps = append(steps, r.readHolds, r.readAdmitter, r.readPredecessors, r.readUse, r.readLimits, r.readAhead, r.readNext, r.readRate)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readWorkers reads what the workers of the class offer.
func (r *situationReader) readWorkers(ctx context.Context) error {
	q := r.Execution.Request
	rows, err := r.tx.Query(ctx, workersSQL, q.ResourceClass, admission.Unlimited)
	if err != nil {
		return fmt.Errorf("read workers: %w", err)
	}
	workers, err := collectWorkers(rows)
	if err != nil {
		return fmt.Errorf("read workers: %w", err)
	}
	capacity := admission.Capacity{Workers: workers}
	var largest admission.Resources
	for _, w := range workers {
		r.Executors = append(r.Executors, w.Executors...)
		if all, offers := w.Gives(q.Executor); offers {
			for k := range largest {
				largest[k] = max(largest[k], all[k])
			}
		}
	}
	slices.Sort(r.Executors)
	r.Executors = slices.Compact(r.Executors)
	r.Pool = poolOf(workers, q.Executor)
	if room, bounded := capacity.Room(q.Executor); bounded {
		r.Pool.Total = amounts(room)
	}
	r.Workers, r.Total, r.Largest = len(workers), amounts(capacity.Total()), amounts(largest)
	r.Cap = r.terms.Cap(q.ResourceClass)
	capacity.Cap = r.terms.Caps[q.ResourceClass]
	r.capacity = capacity.Total()
	r.Servable = capacity.Servable(q.Executor, admission.Need(q.Requirements))
	return nil
}

// readPod reads what the execution runs in.
func (r *situationReader) readPod(ctx context.Context) error {
	var at *time.Time
	err := r.tx.QueryRow(ctx, `SELECT namespace, name, node, phase, phase_at FROM execution_pods
		WHERE execution_id = $1::text::uuid AND first_attempt = $2 AND standing ORDER BY created_at DESC, uid LIMIT 1`,
		r.Execution.ID, r.Execution.Origin()).Scan(&r.Pod.Namespace, &r.Pod.Name, &r.Pod.Node, &r.Pod.Phase, &at)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read pod: %w", err)
	}
	r.Pod.At = moment(at)
	return nil
}

// poolOf returns the pool in which an executor runs things; without a name there is none.
func poolOf(workers []admission.Worker, executor string) execution.Pool {
	var found execution.Pool
	for _, w := range workers {
		for _, p := range w.Pools {
			if p.Executor == executor && !slices.Contains(found.Names, p.Name) {
				found.Names = append(found.Names, p.Name)
			}
			found.Known = found.Known || p.Executor == executor && p.Known
		}
	}
	slices.Sort(found.Names)
	return found
}

func (r *situationReader) readHolds(ctx context.Context) error {
	list, err := holds.List(ctx, r.tx)
	r.Holds = covering(list, r.Execution.Request)
	return err
}

// readAdmitter reads whether somebody admits executions of the class.
func (r *situationReader) readAdmitter(ctx context.Context) error {
	holder, err := lease.HolderOf(ctx, r.tx, AdmitterLease(r.Execution.Request.ResourceClass))
	r.Admitter = execution.Admitter{Absent: !holder.Live, Last: holder.Owner, Until: holder.Until}
	return err
}

// readPredecessors reads what comes first with the same concurrency key.
func (r *situationReader) readPredecessors(ctx context.Context) error {
	if r.Execution.Request.ConcurrencyKey == "" {
		return nil
	}
	err := r.tx.QueryRow(ctx, `
		WITH e AS (SELECT tenant, concurrency_key, concurrency_seq FROM executions WHERE id = $1::text::uuid),
		earlier AS (
			SELECT k.id, k.state, k.concurrency_seq FROM executions k, e
			WHERE k.tenant = e.tenant AND k.concurrency_key = e.concurrency_key
			  AND k.concurrency_seq < e.concurrency_seq AND k.state IN `+openStates+`
			ORDER BY k.concurrency_seq LIMIT $2)
		SELECT (SELECT count(*) FROM earlier),
			coalesce((SELECT id::text FROM earlier ORDER BY concurrency_seq LIMIT 1), ''),
			coalesce((SELECT state FROM earlier ORDER BY concurrency_seq LIMIT 1), '')`,
		r.Execution.ID, execution.AheadMax).Scan(&r.Predecessors, &r.Predecessor.ID, &r.Predecessor.State)
	if err != nil {
		return fmt.Errorf("read predecessors: %w", err)
	}
	return nil
}

// readUse reads what is in use, and who else has something that waits.
func (r *situationReader) readUse(ctx context.Context) error {
	q := r.Execution.Request
	rows, err := r.tx.Query(ctx, `
		SELECT l.tenant, l.user_name, sum(b.queued)::bigint,
			sum(b.slots)::bigint, sum(b.cpu_millis)::bigint, sum(b.memory_bytes)::bigint, sum(b.gpus)::bigint,
			coalesce(sum(b.slots) FILTER (WHERE l.executor = $2), 0)::bigint, coalesce(sum(b.cpu_millis) FILTER (WHERE l.executor = $2), 0)::bigint,
			coalesce(sum(b.memory_bytes) FILTER (WHERE l.executor = $2), 0)::bigint, coalesce(sum(b.gpus) FILTER (WHERE l.executor = $2), 0)::bigint
		FROM `+ledgerAndFeed+` AS b JOIN admission_flows l ON l.id = b.flow
		WHERE b.resource_class = $1
		GROUP BY l.tenant, l.user_name HAVING sum(b.queued) <> 0 OR sum(b.running) <> 0`, q.ResourceClass, q.Executor)
	if err != nil {
		return fmt.Errorf("read use: %w", err)
	}
	var tenant, user string
	var queued int
	var used, all, pooled, allPooled admission.Resources
	_, err = pgx.ForEachRow(rows, []any{
		&tenant, &user, &queued, &used[admission.Slots], &used[admission.CPUMillis], &used[admission.MemoryBytes], &used[admission.GPUs],
		&pooled[admission.Slots], &pooled[admission.CPUMillis], &pooled[admission.MemoryBytes], &pooled[admission.GPUs],
	}, func() error {
		all, allPooled = all.Plus(used), allPooled.Plus(pooled)
		if tenant == q.Tenant && user == q.User {
			r.UserUsed, r.user.Share = amounts(used), share(used, r.capacity)
		} else if queued > 0 {
			r.rivals = append(r.rivals, execution.Party{Weight: r.terms.Weight(tenant, user), Share: share(used, r.capacity), Queued: queued})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read use: %w", err)
	}
	r.Used, r.Pool.Used = amounts(all), amounts(allPooled)
	r.user.Weight = r.terms.Weight(q.Tenant, q.User)
	return nil
}

// readLimits reads the keys that the execution is under, and of those that let nothing
// through how many of the same key come first.
func (r *situationReader) readLimits(ctx context.Context) error {
	e := r.Execution
	rows, err := r.tx.Query(ctx, `
		SELECT k.limit, k.value, coalesce(b.tat_nanos, 0), coalesce(b.in_use, 0)
		FROM admission_flows l, jsonb_to_recordset(l.keys) AS k("limit" text, value text)
		LEFT JOIN limit_buckets b ON b.limit_name = k.limit AND b.key = k.value
		WHERE l.id = $1::text::uuid ORDER BY 1, 2`, e.Flow)
	if err != nil {
		return fmt.Errorf("read keys of limits: %w", err)
	}
	buckets, err := pgx.CollectRows(rows, scanBucket)
	if err != nil {
		return fmt.Errorf("read keys of limits: %w", err)
	}
	for _, b := range buckets {
		limit, inForce := r.terms.Config.Limits.Lookup(b.Limit)
		if !inForce {
			continue
		}
		trial := b
		next, open := admission.Spend(limit, &trial, r.Now)
		if open {
			continue
		}
		x := execution.Exhausted{Name: b.Limit, Key: b.Value, InUse: int(b.InUse), Concurrency: limit.Concurrency}
		if x.Before, err = r.countBefore(ctx, b.Key); err != nil {
			return err
		}
		if !next.IsZero() {
			x.Rate, x.Next = limit.Rate.String(), next
			x.Turn = next.Add(time.Duration(x.Before) * limit.Rate.Interval())
		}
		r.Limits = append(r.Limits, x)
	}
	return nil
}

// countBefore counts the executions that are under a key too and come first.
func (r *situationReader) countBefore(ctx context.Context, key limits.Key) (n int, err error) {
	err = r.tx.QueryRow(ctx, `
		SELECT count(*) FROM (
			SELECT FROM admission_flows l JOIN executions q ON q.flow = l.id
			WHERE l.keys <> '[]' AND l.keys @> jsonb_build_array(jsonb_build_object('limit', $1::text, 'value', $2::text))
			  AND q.state = 'QUEUED' AND q.waits = 0 AND (q.rank, q.id) < ($3, $4::text::uuid)
			LIMIT $5) AS before`,
		key.Limit, key.Value, r.Execution.Rank, r.Execution.ID, execution.AheadMax).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count executions of a limit: %w", err)
	}
	return n, nil
}

// readAhead counts those that are to be admitted first: what others ask for with a
// higher priority, what the same user has before it, and as much of the others'
// of the same priority as comes to their turn meanwhile. Users of whom nothing was
// admitted for a while stand higher than their priority, which only the admitter knows.
func (r *situationReader) readAhead(ctx context.Context) error {
	e := r.Execution
	var higher, all, ownHigher, own, ownBefore int
	err := r.tx.QueryRow(ctx, `
		SELECT ahead.n, peers.n, own.higher, own.peers, own.before
		FROM (
			SELECT count(*) AS n FROM (
				SELECT FROM generate_series($4::integer + 1, 5) AS p, LATERAL (
					SELECT FROM executions q WHERE q.state = 'QUEUED' AND q.resource_class = $1 AND q.request ->> 'priority' = p::text
					  AND q.waits = 0 LIMIT $7) AS picked LIMIT $7) AS c) AS ahead, (
			SELECT count(*) AS n FROM (
				SELECT FROM executions q WHERE q.state = 'QUEUED' AND q.resource_class = $1 AND q.request ->> 'priority' = $4::integer::text
				  AND q.waits = 0 LIMIT $7) AS c) AS peers, (
			SELECT count(*) FILTER (WHERE priority > $4) AS higher, count(*) FILTER (WHERE priority = $4) AS peers,
				count(*) FILTER (WHERE priority > $4 OR priority = $4 AND (rank, id) < ($5, $6::text::uuid)) AS before
			FROM (
				SELECT q.rank, q.id, (q.request ->> 'priority')::integer AS priority FROM admission_flows l JOIN executions q ON q.flow = l.id
				WHERE l.tenant = $2 AND l.user_name = $3 AND l.resource_class = $1 AND q.state = 'QUEUED' AND q.waits = 0
				ORDER BY q.rank, q.id LIMIT $7) AS picked) AS own`,
		e.Request.ResourceClass, e.Request.Tenant, e.Request.User, e.Request.Priority, e.Rank, e.ID, execution.AheadMax,
	).Scan(&higher, &all, &ownHigher, &own, &ownBefore)
	if err != nil {
		return fmt.Errorf("count executions ahead: %w", err)
	}
	if higher < execution.AheadMax {
		higher = max(higher-ownHigher, 0)
	}
	r.Ahead = execution.Ahead{Higher: higher, Own: ownBefore}
	cost := share(admission.Need(e.Request.Requirements), r.capacity)
	if cost == 0 {
		cost = 1
	}
	others := max(all-own, 0)
	if all == execution.AheadMax {
		others = all // there are more than were counted
	}
	r.Ahead.Others = min(others, execution.Turns(ownBefore, r.user, cost, r.rivals))
	for _, rival := range r.rivals {
		r.Ahead.Rivals += rival.Weight / r.user.Weight
	}
	return nil
}

// share is the largest part of any one resource of a class that used is.
func share(used, total admission.Resources) float64 {
	most := 0.0
	for k, n := range used {
		if total[k] > 0 && total[k] < admission.Unlimited {
			most = max(most, float64(n)/float64(total[k]))
		}
	}
	return most
}

// readNext reads the execution of the class that has waited for longest, by rank.
func (r *situationReader) readNext(ctx context.Context) error {
	var need admission.Resources
	var ready *time.Time
	err := r.tx.QueryRow(ctx, `
		SELECT f.id::text, f.state, f.ready_at, f.slots, f.cpu_millis, f.memory_bytes, f.gpus
		FROM generate_series(1, 5) AS p, LATERAL (
			SELECT q.* FROM executions q
			WHERE q.state = 'QUEUED' AND q.resource_class = $1 AND q.request ->> 'priority' = p::text AND q.waits = 0
			ORDER BY q.rank LIMIT 1) AS f
		ORDER BY f.rank, f.id LIMIT 1`, r.Execution.Request.ResourceClass,
	).Scan(&r.Next.ID, &r.Next.State, &ready, &need[admission.Slots], &need[admission.CPUMillis], &need[admission.MemoryBytes], &need[admission.GPUs])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read head of the queue: %w", err)
	}
	r.Next.Ready, r.Next.Needs = moment(ready), amounts(need)
	return nil
}

// rateMemory is how long a rate says something about the future.
const rateMemory = 10 * time.Minute

// readRate reads how fast the class was admitted lately.
func (r *situationReader) readRate(ctx context.Context) error {
	err := r.tx.QueryRow(ctx, `SELECT coalesce((SELECT per_second FROM admission_rates
		WHERE resource_class = $1 AND updated_at > clock_timestamp() - $2::interval), 0)`,
		r.Execution.Request.ResourceClass, rateMemory).Scan(&r.Rate)
	if err != nil {
		return fmt.Errorf("read rate of admission: %w", err)
	}
	return nil
}

// RecordRate remembers how many executions of a class are admitted per second while
// others wait.
func (s *Store) RecordRate(ctx context.Context, class string, perSecond float64) error {
	_, err := s.pool.Exec(ctx, `INSERT INTO admission_rates (resource_class, per_second) VALUES ($1, $2)
		ON CONFLICT (resource_class) DO UPDATE SET per_second = excluded.per_second, updated_at = clock_timestamp()`, class, perSecond)
	if err != nil {
		return fmt.Errorf("record rate of admission: %w", err)
	}
	return nil
}
