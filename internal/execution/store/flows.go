package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/holds"
)

const (
	// readsPerRound is how many flows are read at once.
	readsPerRound = 512
	// ripePerRound bounds how many executions come into the queue in one round because
	// their time has come or there is a worker for them.
	ripePerRound = 5000
	// asleepPerRound bounds how many keys are asked for at once.
	asleepPerRound = 2000
)

// restore reads what the class has in its flows. What the ledger does not know yet is
// in the feed, which is read after this.
func (r *admissionRound) restore(ctx context.Context) error {
	q := admission.NewQueue(r.Config)
	rows, err := r.tx.Query(ctx, `
		SELECT l.id::text, l.tenant, l.user_name, l.executor, l.priority, l.keys,
			g.queued, g.running, g.slots, g.cpu_millis, g.memory_bytes, g.gpus, head.rank
		FROM admission_ledger g JOIN admission_flows l ON l.id = g.flow
		LEFT JOIN LATERAL (
			SELECT e.rank FROM executions e WHERE e.flow = g.flow AND e.state = 'QUEUED' AND e.waits = 0
			ORDER BY e.rank, e.id LIMIT 1) AS head ON g.queued > 0
		WHERE g.resource_class = $1 AND (g.queued <> 0 OR g.running <> 0)`, r.Class)
	if err != nil {
		return err
	}
	var id string
	var d admission.Delta
	var rank *time.Time
	flow := admission.Flow{Class: r.Class}
	_, err = pgx.ForEachRow(rows, []any{
		&id, &flow.Tenant, &flow.User, &flow.Executor, &flow.Priority, &flow.Keys, &d.Queued, &d.Running,
		&d.Used[admission.Slots], &d.Used[admission.CPUMillis], &d.Used[admission.MemoryBytes], &d.Used[admission.GPUs], &rank,
	}, func() error {
		var err error
		if flow.ID, err = uuid.Parse(id); err != nil {
			return err
		}
		q.Define(flow)
		d.Flow, d.Rank = flow.ID, moment(rank)
		q.Restore(d)
		flow.Keys = nil // not to be written over
		return nil
	})
	if err != nil {
		return err
	}
	r.memory = Memory{queue: q, feedFrom: "0"}
	return nil
}

// look brings the queue up to date: with what has become due, with the feed, and with
// what the workers offer. It asks for all of that in one round trip.
func (r *admissionRound) look(ctx context.Context) error {
	var (
		batch   pgx.Batch
		feed    folded
		workers []admission.Worker
		first   *time.Time
		held    []holds.Hold
	)
	openGates(&batch, &r.opened)
	batch.Queue(foldSQL, r.Class, r.memory.feedFrom, feedPerRound).Query(func(rows pgx.Rows) (err error) {
		feed, err = collectFeed(rows, r.memory.feedFrom)
		return err
	})
	batch.Queue(workersSQL, r.Class, admission.Unlimited).Query(func(rows pgx.Rows) (err error) {
		workers, err = collectWorkers(rows)
		return err
	})
	batch.Queue(`SELECT min(ready_at), clock_timestamp() FROM executions
		WHERE resource_class = $1 AND state = 'QUEUED' AND waits = 2`, r.Class).QueryRow(func(row pgx.Row) error {
		return row.Scan(&first, &r.now)
	})
	holds.QueueRead(&batch, &held)
	if err := r.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("read feed, workers and holds: %w", err)
	}
	r.now = r.now.UTC()
	early := moment(first)
	q := r.queue()
	q.Begin(r.now)
	if !slices.Equal(held, r.memory.holds) {
		r.memory.holds = held
		q.SetHolds(func(tenant, user string) bool {
			return slices.ContainsFunc(held, func(h holds.Hold) bool { return h.Covers(r.Class, tenant, user) })
		})
	}
	if err := r.fold(ctx, feed); err != nil {
		return err
	}
	if q.SetCapacity(admission.Capacity{Workers: workers, Cap: r.Cap}) {
		if err := r.arrive(ctx, `resource_class = $1 AND state = 'QUEUED' AND waits = 3`, "id"); err != nil {
			return fmt.Errorf("look at large executions again: %w", err)
		}
	}
	r.memory.earlyAt = early
	if early.IsZero() || early.After(r.now) {
		return nil
	}
	// The next one that is early is looked for in the next round.
	r.memory.earlyAt = time.Time{}
	if err := r.arrive(ctx, `resource_class = $1 AND state = 'QUEUED' AND waits = 2 AND ready_at <= clock_timestamp()`, "ready_at"); err != nil {
		return fmt.Errorf("queue what has become ready: %w", err)
	}
	return nil
}

// fold takes the feed over into the queue and the ledger.
func (r *admissionRound) fold(ctx context.Context, f folded) error {
	q := r.queue()
	r.memory.feedFrom, r.feedLeft = f.from, f.more
	if err := r.define(ctx, f.deltas); err != nil {
		return err
	}
	for _, d := range f.deltas {
		q.Fold(d)
		if d.Queued != 0 || d.Running != 0 || d.Used != (admission.Resources{}) {
			r.book(d.Flow, d)
		}
	}
	return nil
}

// define makes the flows known that the deltas are about.
func (r *admissionRound) define(ctx context.Context, all []admission.Delta) error {
	q := r.queue()
	var ids []string
	for _, d := range all {
		if !q.Knows(d.Flow) {
			ids = append(ids, d.Flow.String())
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.tx.Query(ctx, `SELECT id::text, tenant, user_name, executor, priority, keys FROM admission_flows
		WHERE id = ANY ($1::text[]::uuid[])`, ids)
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (admission.Flow, error) {
		var id string
		l := admission.Flow{Class: r.Class}
		if err := row.Scan(&id, &l.Tenant, &l.User, &l.Executor, &l.Priority, &l.Keys); err != nil {
			return l, err
		}
		var err error
		l.ID, err = uuid.Parse(id)
		return l, err
	})
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	for _, l := range found {
		q.Define(l)
	}
	for _, d := range all {
		if !q.Knows(d.Flow) {
			return fmt.Errorf("the feed speaks of flow %s, which is not there", d.Flow)
		}
	}
	return nil
}

// arrive lets executions into the queue that waited outside of it.
func (r *admissionRound) arrive(ctx context.Context, where, order string) error {
	rows, err := r.tx.Query(ctx, `
		WITH ripe AS (
			UPDATE executions SET waits = 0 WHERE id IN (
				SELECT id FROM executions WHERE `+where+` ORDER BY `+order+` LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING flow, rank)
		SELECT flow::text, min(rank) FROM ripe GROUP BY flow`, r.Class, ripePerRound)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (admission.Delta, error) {
		var id string
		var d admission.Delta
		if err := row.Scan(&id, &d.Rank); err != nil {
			return d, err
		}
		var err error
		d.Rank = d.Rank.UTC()
		d.Flow, err = uuid.Parse(id)
		return d, err
	})
	if err != nil {
		return err
	}
	if err := r.define(ctx, all); err != nil {
		return err
	}
	for _, d := range all {
		r.queue().Fold(d)
	}
	return nil
}

// ask reads the states of keys that are new, and now and then of those at which flows
// sleep, since the admitters of other classes and operators may have changed them.
func (r *admissionRound) ask(ctx context.Context) error {
	q := r.queue()
	keys := q.Unasked()
	if r.now.Sub(r.memory.askedAt) >= askEvery {
		r.memory.askedAt = r.now
		keys = append(keys, q.Asleep(asleepPerRound)...)
	}
	if r.now.Sub(r.memory.forgotAt) >= forgetEvery {
		r.memory.forgotAt = r.now
		q.Forget()
		if err := r.sweep(ctx); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	states, err := readBuckets(ctx, r.tx, keys)
	if err != nil {
		return err
	}
	for i := range states {
		// What has ended and is not saved yet.
		states[i].InUse = max(states[i].InUse-q.Released()[states[i].Key], 0)
	}
	q.Know(states)
	return nil
}

// read reads flows on.
func (r *admissionRound) read(ctx context.Context, reads []admission.Read) error {
	if len(reads) == 0 {
		return nil
	}
	flows, afterIDs := make([]string, len(reads)), make([]string, len(reads))
	ranks, sizes := make([]time.Time, len(reads)), make([]int, len(reads))
	for i, read := range reads {
		flows[i], ranks[i], sizes[i] = read.Flow.String(), read.After.Rank, read.Limit
		if afterIDs[i] = read.After.ID; afterIDs[i] == "" {
			afterIDs[i] = uuid.Nil.String()
		}
	}
	rows, err := r.tx.Query(ctx, `
		SELECT w.n, e.id::text, e.rank, e.ready_at, e.slots, e.cpu_millis, e.memory_bytes, e.gpus
		FROM unnest($1::text[]::uuid[], $2::timestamptz[], $3::text[]::uuid[], $4::integer[]) WITH ORDINALITY AS w(flow, rank, id, size, n),
		LATERAL (
			SELECT * FROM executions e
			WHERE e.flow = w.flow AND e.state = 'QUEUED' AND e.waits = 0 AND (e.rank, e.id) > (w.rank, w.id)
			ORDER BY e.rank, e.id LIMIT w.size) AS e
		ORDER BY w.n, e.rank, e.id`, flows, ranks, afterIDs, sizes)
	if err != nil {
		return fmt.Errorf("read flows on: %w", err)
	}
	items := make([][]admission.Item, len(reads))
	var n int
	var item admission.Item
	need := &item.Need
	_, err = pgx.ForEachRow(rows, []any{
		&n, &item.ID, &item.Rank, &item.Ready,
		&need[admission.Slots], &need[admission.CPUMillis], &need[admission.MemoryBytes], &need[admission.GPUs],
	}, func() error {
		item.Rank, item.Ready = item.Rank.UTC(), item.Ready.UTC()
		items[n-1] = append(items[n-1], item)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read flows on: %w", err)
	}
	for i, read := range reads {
		r.queue().Loaded(read, items[i])
	}
	return nil
}
